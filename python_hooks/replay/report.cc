#include "python_hooks/replay/report.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>

#include "python_hooks/replay/cached_proofs.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/controller.h"
#include "python_hooks/replay/observe.h"
#include "python_hooks/replay/outside.h"
#include "python_hooks/replay/proof.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"
#include "shim/record/trace_file.h"

namespace grape::python::replay {
namespace {

std::atomic<bool> g_written{false};
void write_at_the_end() noexcept;

__attribute__((constructor)) void prepare() { lifecycle::add_finish(write_at_the_end); }

const char* state_of(const Region& region, const StageCounts& counts) {
  if (region.no_gpu) return "no GPU work";
  if (region.given_up) return "given up";
  if (region.replayed != 0) return "replayed";
  if (counts.proven != 0) return "proven";
  return counts.given_up != 0 && counts.seen + counts.observed == 0 ? "given up" : "observing";
}

double average_ms(double seconds, std::uint64_t calls) {
  return calls == 0 ? 0 : seconds * 1000 / static_cast<double>(calls);
}

// Returns where it went; "": nowhere.
std::string write_file(const char* pattern, const std::string& text) {
  record::TraceFile file;
  if (file.create(pattern, true) && file.write(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()) &&
      file.commit()) {
    return file.path();
  }
  notice("the report was not written to %s: %s", pattern, std::strerror(file.error() != 0 ? file.error() : errno));
  return {};
}

void write(RunReport& report) {
  report.seconds = now() - lifecycle::start_time();
  report.graphs = virtual_execs::graphs_report();
  report.programs = programs().statistics();
  if (const CachedProofs* proofs = CachedProofs::in_use()) report.cache = proofs->report();
  std::string file;
  if (config().report[0] != '\0') file = write_file(config().report, to_json(report));
  for (const std::string& line : summary_of(report, file)) log_line(LogLevel::kInfo, "%s", line.c_str());
}

// os._exit runs no handlers of the interpreter's; so do processes end that multiprocessing forked.
bool inside_python() noexcept {
  return config().mode == Mode::kReplay && g_api.PyGILState_Check != nullptr && g_api.Py_IsInitialized() != 0 &&
         g_api.PyGILState_Check() == 1;
}

// Of a process that has no interpreter, or one that is not replayed, there are its own graphs to tell of.
void write_at_the_end() noexcept {
  if (!g_written.load() && inside_python()) write_report();
  if (g_written.exchange(true)) return;
  try {
    RunReport report;
    if (virtual_execs::graphs_report().any) write(report);
  } catch (const std::exception&) {
    notice("no memory for the report");
  }
}

}  // namespace

StageCounts count_stages(const Region& region) noexcept {
  StageCounts counts = region.last_counts;
  const auto add = [&](const Signatures& signatures) {
    for (const auto& [hash, signature] : signatures) {
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
  };
  add(region.signatures);
  for (const ParkedState& state : region.parked) add(state.signatures);
  return counts;
}

RegionReport report_of(const Region& region) {
  RegionReport report;
  report.name = region.name;
  report.signatures = count_stages(region);
  report.state = state_of(region, report.signatures);
  report.calls = region.calls;
  report.replayed = region.replayed;
  report.observed = region.observed;
  report.fell_back = region.fell_back;
  report.first_calls = region.first_calls;
  report.validated = region.validated;
  report.rested = region.payoff.rested();
  report.put_off = region.put_off;
  const Times& times = region.times;
  report.seconds = times.all;
  report.eager_ms = average_ms(times.eager, times.eager_calls);
  report.observed_ms = average_ms(times.observed, times.observed_calls);
  report.replay_ms = average_ms(times.replayed, region.replayed);
  report.eager_interval_ms = times.eager_intervals.median() * 1000;
  report.replay_interval_ms = times.replay_intervals.median() * 1000;
  report.parts = region.latest_parts.median();
  for (const Arena& arena : region.arenas) report.arena_bytes += arena.bytes;
  report.reasons = region.reasons.all();
  if (region.autograd_again != 0) report.reasons[region.autograd_reason].count += region.autograd_again;
  report.other_reasons = region.reasons.others();
  if (const Reason* last = region.reasons.last()) report.last_reason = refusal::in_words(*last);
  return report;
}

void write_report() noexcept {
  write_cache();
  if (g_written.exchange(true)) return;
  try {
    RunReport report;
    report.region_seconds = seconds_in_regions();
    add_regions(report);
    report.outside = outside_report();
    write(report);
  } catch (const std::exception&) {
    notice("no memory for the report");
  }
}

}  // namespace grape::python::replay
