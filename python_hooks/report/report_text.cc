#include "python_hooks/report/report_text.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace grape::python::report {
namespace {

// printf would ask the program's locale for the decimal point.
std::string decimal(double value, int digits) {
  std::uint64_t factor = 1;
  for (int i = 0; i < digits; ++i) factor *= 10;
  const double scaled = value * static_cast<double>(factor);
  const std::uint64_t whole = scaled > 0 && scaled < 1e18 ? static_cast<std::uint64_t>(std::llround(scaled)) : 0;
  std::string fraction = std::to_string(whole % factor);
  fraction.insert(0, static_cast<std::size_t>(digits) - fraction.size(), '0');
  return std::to_string(whole / factor) + "." + fraction;
}

// Bytes of the UTF-8 character at the text's begin; 0: it is none.
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) >= 0xa0)) return 0;  // too long; a surrogate
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) >= 0x90)) return 0;
  return bytes;
}

std::string quoted(std::string_view text) {
  constexpr const char kHexadecimal[] = "0123456789abcdef";
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t bytes = character(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (bytes == 0) {
      out += "\xef\xbf\xbd";
    } else if (byte == '"' || byte == '\\') {
      out += {'\\', text[0]};
    } else if (byte < 0x20) {
      out += {'\\', 'u', '0', '0', kHexadecimal[byte >> 4], kHexadecimal[byte & 15]};
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out + '"';
}

// The members of an object, one after the other.
class Members {
 public:
  Members& raw(const char* key, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + quoted(key) + ": " + value;
    return *this;
  }
  Members& text(const char* key, std::string_view value) { return raw(key, quoted(value)); }
  Members& text_or_null(const char* key, std::string_view value) {
    return raw(key, value.empty() ? "null" : quoted(value));
  }
  Members& number(const char* key, std::uint64_t value) { return raw(key, std::to_string(value)); }
  Members& number(const char* key, double value, int digits) { return raw(key, decimal(value, digits)); }
  // 0: not known.
  Members& measured(const char* key, double value) { return raw(key, value > 0 ? decimal(value, 4) : "null"); }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

double share(double part, double whole) { return whole > 0 ? std::min(part / whole, 1.0) : 0; }

double gain_of(const RegionReport& region) {
  const bool known = region.eager_interval_ms > 0 && region.replay_interval_ms > 0;
  return known ? region.eager_interval_ms / region.replay_interval_ms : 0;
}

// Calls that only served to know their arguments: run as always, or looked at, with success.
std::uint64_t first_calls(const RegionReport& region) {
  if (region.signatures.given_up != 0 || std::string_view(region.state) == "given up") return region.first_calls;
  std::uint64_t others = region.replayed + region.validated + region.rested + region.put_off + region.other_reasons;
  for (const Reason& reason : region.reasons) others += reason.count;
  const std::uint64_t rest = region.calls > others ? region.calls - others : 0;
  return std::max(region.first_calls, rest);
}

std::vector<Reason> all_reasons(const RegionReport& region) {
  std::vector<Reason> reasons = region.reasons;
  if (const std::uint64_t calls = first_calls(region); calls != 0) {
    const auto& counts = region.signatures;
    const std::size_t kinds = counts.seen + counts.observed + counts.proven + counts.given_up;
    reasons.push_back({refusal::make(refusal::first_calls, std::to_string(kinds)), calls});
  }
  if (region.put_off != 0) reasons.push_back({refusal::make(refusal::put_off), region.put_off});
  const auto more = [](const Reason& a, const Reason& b) { return a.count > b.count; };
  std::stable_sort(reasons.begin(), reasons.end(), more);
  return reasons;
}

std::string json_of(const std::vector<Reason>& reasons) {
  std::string list;
  for (const Reason& reason : reasons) {
    Members members;
    members.number("count", reason.count).text("id", refusal::name_of(reason.id));
    members.text("kind", refusal::kind_of(reason.id)).text("text", reason.text);
    members.text_or_null("place", reason.place).text_or_null("advice", refusal::advice_of(reason.id));
    list += (list.empty() ? "\n        " : ",\n        ") + members.object();
  }
  return "[" + list + "]";
}

std::string json_of(const RegionReport& region, const RunReport& report) {
  Members signatures, parts, members;
  signatures.number("seen", region.signatures.seen).number("observed", region.signatures.observed);
  signatures.number("proven", region.signatures.proven).number("given_up", region.signatures.given_up);
  for (std::size_t i = 0; i < kReplayParts; ++i) {
    parts.number(kReplayPartNames[i], region.parts.seconds[i] * 1e6, 2);
  }
  members.text("region", region.name).text("state", region.state);
  members.number("seconds", region.seconds, 6).number("share", share(region.seconds, report.region_seconds), 4);
  members.number("share_of_run", share(region.seconds, report.seconds), 4);
  members.number("calls", region.calls).number("replayed", region.replayed).number("observed", region.observed);
  members.number("validated", region.validated).number("fell_back", region.fell_back);
  members.number("rested", region.rested);
  members.raw("signatures", signatures.object());
  members.measured("eager_ms", region.eager_ms).measured("observed_ms", region.observed_ms);
  members.measured("replay_ms", region.replay_ms).measured("eager_interval_ms", region.eager_interval_ms);
  members.measured("replay_interval_ms", region.replay_interval_ms).measured("gain", gain_of(region));
  members.raw("replay_us", parts.object()).number("arena_bytes", region.arena_bytes);
  members.text_or_null("reason", region.last_reason).raw("reasons", json_of(all_reasons(region)));
  members.number("other_reasons", region.other_reasons);
  return members.object();
}

std::string json_of(const virtual_execs::GraphsReport& graphs) {
  Members store, members;
  store.number("programs", graphs.programs).number("unique", graphs.unique).number("raw_bytes", graphs.raw_bytes);
  store.number("stored_bytes", graphs.stored_bytes).number("resident_bytes", graphs.resident_bytes);
  members.number("virtual", graphs.made).number("destroyed", graphs.destroyed).number("pinned", graphs.pinned);
  members.number("launches", graphs.launches).number("taken_over", graphs.taken_over).number("ahead", graphs.ahead);
  members.number("by_node", graphs.by_node).number("built", graphs.built).number("evicted", graphs.evicted);
  members.number("execs", graphs.execs).number("device_bytes", graphs.device_bytes).raw("store", store.object());
  std::string left;
  for (const auto& [count, refusal] : graphs.left) {
    Members reason;
    reason.number("count", count).text("id", refusal::name_of(refusal.id)).text("reason", refusal.text);
    left += (left.empty() ? "" : ", ") + reason.object();
  }
  return members.raw("left", "[" + left + "]").object();
}

void sort_by_time(RunReport& report) {
  const auto more = [](const RegionReport& a, const RegionReport& b) { return a.seconds > b.seconds; };
  std::stable_sort(report.regions.begin(), report.regions.end(), more);
}

std::string number_of(std::uint64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string percent(double part) { return decimal(100 * part, 1) + "%"; }

std::string json_of(const store::Statistics& programs) {
  Members members;
  members.number("programs", programs.programs).number("unique", programs.unique).number("families", programs.families);
  members.number("raw_bytes", programs.raw).number("deduplicated_bytes", programs.deduplicated);
  members.number("stored_bytes", programs.compressed).number("resident_bytes", programs.resident);
  return members.object();
}

std::string json_of(const CacheReport& cache) {
  Members members;
  members.text("file", cache.file).number("programs", cache.programs).number("used", cache.used);
  return members.number("added", cache.added).object();
}

double share_of(const OutsideReport& outside) {
  return share(static_cast<double>(outside.launches), static_cast<double>(outside.all));
}

std::string json_of(const OutsideReport& outside) {
  std::string functions;
  for (const OutsideFunction& function : outside.functions) {
    Members members;
    members.text("region", function.region).number("share", function.share, 4).text("place", function.place);
    functions += (functions.empty() ? "\n    " : ",\n    ") + members.object();
  }
  Members members;
  members.number("launches", outside.launches).number("share", share_of(outside), 4);
  members.text("named", outside.named).raw("found", outside.automatic ? quoted(outside.found) : "null");
  return members.raw("functions", "[" + functions + "]").object();
}

std::string line_of(const virtual_execs::GraphsReport& graphs) {
  std::uint64_t left = 0;
  for (const auto& reason : graphs.left) left += reason.count;
  return "graphs of the program: " + std::to_string(graphs.made) + " virtual, " + std::to_string(graphs.launches) +
         " launches of them; " + std::to_string(left) + " left to the driver" +
         (left == 0 ? "" : ": the first " + graphs.left.front().refusal.text);
}

std::string line_of(const RegionReport& region, const RunReport& report) {
  std::string line = "  " + percent(share(region.seconds, report.region_seconds)) + "  " + region.name + ": " +
                     std::to_string(region.replayed) + " of " + number_of(region.calls, "call") + " replayed";
  if (gain_of(region) > 0) {
    line += ", " + decimal(region.replay_interval_ms, 2) + " ms from call to call, " +
            decimal(region.eager_interval_ms, 2) + " without";
  }
  return line;
}

// "": not worth a line, or nothing can be named.
std::string line_of(const OutsideReport& outside) {
  constexpr double kLeastShare = 0.2;
  const double part = share_of(outside);
  if (part < kLeastShare || outside.functions.empty() || outside.automatic) return {};
  const OutsideFunction& first = outside.functions.front();
  return "  " + percent(part) + " of the launches come from outside of modules, " + percent(first.share) +
         " of these from " + first.region + ": see GRAPE_REPORT";
}

}  // namespace

std::string to_json(RunReport report) {
  sort_by_time(report);
  std::string regions;
  for (const RegionReport& region : report.regions) {
    regions += (regions.empty() ? "\n    " : ",\n    ") + json_of(region, report);
  }
  return "{\n  \"version\": 1,\n  \"seconds\": " + decimal(report.seconds, 6) +
         ",\n  \"region_seconds\": " + decimal(report.region_seconds, 6) +
         ",\n  \"regions_left_out\": " + std::to_string(report.regions_left_out) + ",\n  \"regions\": [" + regions +
         "\n  ]" + (report.outside.launches != 0 ? ",\n  \"outside\": " + json_of(report.outside) : "") +
         (report.programs.programs != 0 ? ",\n  \"store\": " + json_of(report.programs) : "") +
         (!report.cache.file.empty() ? ",\n  \"cache\": " + json_of(report.cache) : "") +
         (report.graphs.any ? ",\n  \"graphs\": " + json_of(report.graphs) : "") + "\n}\n";
}

std::vector<std::string> summary_of(const RunReport& whole, const std::string& file) {
  constexpr std::size_t kMostRegions = 3, kMostBytes = 300;
  constexpr double kLeastShare = 0.01, kMostlyReplayed = 0.9;
  RunReport report = whole;
  const auto idle = [](const RegionReport& region) { return std::string_view(region.state) == "no GPU work"; };
  report.regions.erase(std::remove_if(report.regions.begin(), report.regions.end(), idle), report.regions.end());
  sort_by_time(report);
  std::vector<std::string> lines;
  if (report.graphs.any) lines.push_back(line_of(report.graphs));
  const std::string outside = line_of(report.outside);
  if (report.regions.empty()) {
    if (!outside.empty()) lines.push_back("replay: no module called;" + outside.substr(1));
    return lines;
  }
  lines.push_back("replay: " + number_of(report.regions.size(), "module") + " called, for " +
                  percent(share(report.region_seconds, report.seconds)) + " of " + decimal(report.seconds, 1) +
                  " s; of that time:");
  std::size_t shown = 0;
  bool advised = false;
  for (const RegionReport& region : report.regions) {
    if (shown == kMostRegions || (shown > 0 && share(region.seconds, report.region_seconds) < kLeastShare)) break;
    ++shown;
    lines.push_back(line_of(region, report));
    const std::vector<Reason> reasons = all_reasons(region);
    if (reasons.empty() ||
        static_cast<double>(region.replayed) >= kMostlyReplayed * static_cast<double>(region.calls)) {
      continue;
    }
    const std::string reason = refusal::in_words(reasons.front());
    lines.push_back("         not replayed: " + std::string(shortened(reason, kMostBytes)) +
                    (reason.size() > kMostBytes ? "..." : ""));
    const char* const advice = refusal::advice_of(reasons.front().id);
    if (!advised && *advice != '\0') lines.push_back(std::string("         ") + advice);
    advised = true;
  }
  if (!outside.empty()) lines.push_back(outside);
  const std::string rest =
      shown < report.regions.size() ? std::to_string(report.regions.size() - shown) + " more; " : "";
  lines.push_back(
      "  " + rest +
      (file.empty() ? "GRAPE_REPORT=FILE keeps all for `grape report FILE`" : "`grape report " + file + "` shows all"));
  return lines;
}

}  // namespace grape::python::report
