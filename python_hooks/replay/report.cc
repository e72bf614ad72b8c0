#include "python_hooks/replay/report.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/record/trace_file.h"

namespace grape::python::replay {
namespace {

struct Counts {
  std::size_t seen = 0, observed = 0, proven = 0, given_up = 0;
};

Counts count(const Region& region) {
  Counts counts;
  for (const auto& [hash, signature] : region.signatures) {
    switch (signature->stage) {
      case Stage::kSeen:
        ++counts.seen;
        break;
      case Stage::kObserved:
        ++counts.observed;
        break;
      case Stage::kProven:
        ++counts.proven;
        break;
      case Stage::kGivenUp:
        ++counts.given_up;
        break;
    }
  }
  return counts;
}

const char* state_of(const Region& region, const Counts& counts) {
  if (region.given_up) return "given up";
  if (region.replayed != 0) return "replayed";
  if (counts.proven != 0) return "proven";
  return "observing";
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

double average_ms(double seconds, std::uint64_t calls) {
  return calls == 0 ? 0 : seconds * 1000 / static_cast<double>(calls);
}

struct Collected {
  std::string json;
  std::uint64_t replayed = 0, calls = 0;
};

void collect(const Region& region, void* context) {
  auto& collected = *static_cast<Collected*>(context);
  if (region.calls == 0) return;
  if (!collected.json.empty()) collected.json += ",\n";
  collected.json += "    " + report_of(region);
  collected.replayed += region.replayed;
  collected.calls += region.calls;
  log_line(LogLevel::kInfo, "%s: %s, %llu of %llu calls replayed%s%s", region.name.c_str(),
           state_of(region, count(region)), static_cast<unsigned long long>(region.replayed),
           static_cast<unsigned long long>(region.calls),
           region.reason.empty() ? "" : "; last reason for eager: ", region.reason.c_str());
}

void write_file(const char* pattern, const std::string& text) {
  record::TraceFile file;
  if (!file.create(pattern, true) || !file.write(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()) ||
      !file.commit()) {
    notice("the report was not written to %s: %s", pattern, std::strerror(file.error() != 0 ? file.error() : errno));
  }
}

// Microseconds of a replay, part by part.
std::string parts_of(const Region& region) {
  const auto us = [&](double seconds) { return 1000 * average_ms(seconds, region.replayed); };
  const ReplayParts& parts = region.parts;
  char text[256];
  std::snprintf(text, sizeof text,
                "{\"signature\": %.2f, \"guards\": %.2f, \"outputs\": %.2f, \"patches\": %.2f, \"launch\": %.2f, "
                "\"results\": %.2f}",
                us(parts.signature), us(parts.guards), us(parts.outputs), us(parts.patches), us(parts.launch),
                us(parts.results));
  return text;
}

}  // namespace

std::string report_of(const Region& region) {
  const Counts counts = count(region);
  std::uint64_t arena_bytes = 0;
  for (const Arena& arena : region.arenas) arena_bytes += arena.bytes;
  char numbers[512];
  std::snprintf(numbers, sizeof numbers,
                "\"calls\": %llu, \"replayed\": %llu, \"observed\": %llu, \"fell_back\": %llu, \"signatures\": "
                "{\"seen\": %zu, \"observed\": %zu, \"proven\": %zu, \"given_up\": %zu}, \"eager_ms\": %.4f, "
                "\"replay_ms\": %.4f, \"arena_bytes\": %llu",
                static_cast<unsigned long long>(region.calls), static_cast<unsigned long long>(region.replayed),
                static_cast<unsigned long long>(region.observed), static_cast<unsigned long long>(region.fell_back),
                counts.seen, counts.observed, counts.proven, counts.given_up,
                average_ms(region.eager_seconds, region.eager_timed),
                average_ms(region.replay_seconds, region.replayed), static_cast<unsigned long long>(arena_bytes));
  return "{\"region\": " + quoted(region.name) + ", \"state\": \"" + state_of(region, counts) + "\", " + numbers +
         ", \"replay_us\": " + parts_of(region) +
         ", \"reason\": " + (region.reason.empty() ? "null" : quoted(region.reason)) + "}";
}

void write_report() noexcept {
  try {
    Collected collected;
    for_each_region(collect, &collected);
    if (config().report[0] == '\0') return;
    write_file(config().report, "{\n  \"version\": 1,\n  \"regions\": [\n" + collected.json + "\n  ]\n}\n");
  } catch (const std::exception&) {
    notice("no memory for the report");
  }
}

}  // namespace grape::python::replay
