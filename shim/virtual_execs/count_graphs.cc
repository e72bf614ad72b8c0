// The report of virtual execs.
#include <algorithm>

#include "shim/virtual_execs/virtual_execs.h"

namespace grape::virtual_execs {

GraphsReport VirtualExecs::report() {
  GraphsReport report;
  VirtualExecs& all = instance();
  const Counters& counters = all.counters_;
  report.made = counters.made.load();
  report.destroyed = counters.destroyed.load();
  report.pinned = counters.pinned.load();
  report.taken_over = counters.taken_over.load();
  report.ahead = counters.ahead.load();
  report.built = counters.built.load();
  report.by_node = counters.by_node.load();
  report.evicted = counters.evicted.load();
  report.device_bytes = all.device_bytes();
  {
    Lock table(all.table_);
    report.launches = all.launches_;
    report.execs = all.execs_.size();
  }
  const store::Statistics store = all.store_.statistics();
  report.programs = store.programs;
  report.unique = store.unique;
  report.raw_bytes = store.raw;
  report.stored_bytes = store.compressed;
  report.resident_bytes = store.resident;
  for (std::size_t i = 0; i < refusal::kRefusals; ++i) {
    const std::uint64_t count = counters.refused[i].load();
    if (count != 0) report.left.push_back({count, refusal::make(refusal::Form<0>{static_cast<refusal::RefusalId>(i)})});
  }
  std::stable_sort(report.left.begin(), report.left.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  report.any = report.made != 0 || !report.left.empty();
  return report;
}

}  // namespace grape::virtual_execs
