#include "python_hooks/replay/region_report.h"

namespace grape::python::replay {
namespace {

const char* state_of(const Region& region, const StageCounts& counts) {
  if (region.no_gpu) return "no GPU work";
  if (region.given_up) return "given up";
  if (region.statistics.replayed != 0) return "replayed";
  if (counts.proven != 0) return "proven";
  return counts.given_up != 0 && counts.seen + counts.observed == 0 ? "given up" : "observing";
}

double average_ms(double seconds, std::uint64_t calls) {
  return calls == 0 ? 0 : seconds * 1000 / static_cast<double>(calls);
}

}  // namespace

RegionReport report_of(const Region& region) {
  RegionReport report;
  static_cast<Statistics&>(report) = region.statistics;
  region.evidence.count(report.signatures);
  report.name = region.name;
  report.state = state_of(region, report.signatures);
  report.calls = region.calls;
  report.fell_back = region.fell_back;
  report.rested = region.budget.payoff.rested();
  const Times& times = region.times;
  report.seconds = times.all;
  report.eager_ms = average_ms(times.eager, times.eager_calls);
  report.observed_ms = average_ms(times.observed, times.observed_calls);
  report.replay_ms = average_ms(times.replayed, region.statistics.replayed);
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

}  // namespace grape::python::replay
