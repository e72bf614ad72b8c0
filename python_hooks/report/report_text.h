// The report as plain data, as the JSON of GRAPE_REPORT, and as a few lines for stderr. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compressor/store/store.h"
#include "python_hooks/report/reasons.h"
#include "python_hooks/report/statistics.h"
#include "shim/virtual_execs/report.h"

namespace grape::python::report {

struct RegionReport : Statistics {
  std::string name;
  const char* state = "";  // "observing", "proven", "replayed", "given up", "no GPU work"
  std::uint64_t calls = 0, fell_back = 0;
  std::uint64_t rested = 0;  // ran as always because replays were no faster
  double seconds = 0;        // in its calls, with the regions inside
  // A call's, in the mean and up to its return, which may be before the GPU is done; 0: none was timed. `observed_ms`
  // includes what it takes to look on.
  double eager_ms = 0, observed_ms = 0, replay_ms = 0;
  // From the begin of such a call to the begin of the next one, the median; 0: not known.
  double eager_interval_ms = 0, replay_interval_ms = 0;
  ReplayParts parts;  // the medians of the latest replays
  std::uint64_t arena_bytes = 0;
  std::vector<Reason> reasons;      // of calls that were not replayed
  std::uint64_t other_reasons = 0;  // calls whose reasons found no room
  std::string last_reason;          // in words; "": none
};

// What GRAPE_CACHE had, and what came of it.
struct CacheReport {
  std::string file;            // "": none is used
  std::uint64_t programs = 0;  // that it had in the beginning
  std::uint64_t used = 0;      // of them: a proof stands on
  std::uint64_t added = 0;     // by this process
};

struct OutsideReport {
  std::uint64_t launches = 0;  // outside of regions; 0: none, few, or not known
  std::uint64_t all = 0;       // that the program made itself
  std::string named;           // the patterns in GRAPE_REGIONS
  bool automatic = false;      // `auto` is in it as well,
  std::string found;           // and has found these
  std::vector<OutsideFunction> functions;
};

struct RunReport {
  double seconds = 0;         // since the library was loaded
  double region_seconds = 0;  // in regions' calls, the outermost of each thread
  std::vector<RegionReport> regions;
  std::uint64_t regions_left_out = 0;  // of modules that are gone
  virtual_execs::GraphsReport graphs;  // of the program's own
  store::Statistics programs;          // of what was observed or proven
  CacheReport cache;
  OutsideReport outside;
};

// The report file (docs/replay/report.md). Regions by their seconds. The same whatever the locale; valid UTF-8 whatever
// is in the names. These may throw std::bad_alloc.
std::string to_json(RunReport report);

// At most eleven lines for stderr; none where no region was called, no graph made, and no function outside of regions
// is to be named. `file`: where the report went;
// "": nowhere.
std::vector<std::string> summary_of(const RunReport& report, const std::string& file);

}  // namespace grape::python::report
