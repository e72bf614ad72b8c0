// The environment variables, read once when the library is loaded. Bad input never stops the program: one warning on
// stderr, and the safe default.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grape {

enum class Mode : std::uint8_t { kOff, kObserve, kReplay };
enum class Stacks : std::uint8_t { kOff, kLeaf, kPython, kNative };  // kNative: Python stacks as well
enum class Range : std::uint8_t { kProcess, kProfiler };  // kProfiler: from cuProfilerStart to cuProfilerStop
// What is replayed of work that gives other bytes each time: kWithinSpread, if a replay is as near to eager as eager to
// itself, but for deterministic algorithms.
enum class Varying : std::uint8_t { kNever, kWithinSpread, kAlways };
enum class LogLevel : std::uint8_t { kError, kWarning, kInfo, kDebug };

struct Config {
  bool disabled = false;      // GRAPE_DISABLE: as if the library were not there
  Mode mode = Mode::kReplay;  // without GRAPE_MODE: kObserve where GRAPE_TRACE asks for a trace
  // Some variable asks for a trace, a mode, or something of a mode. Else nobody may know that the library is there, and
  // what it cannot do in this process is said at level info only.
  bool asked = false;
  Stacks stacks = Stacks::kPython;
  LogLevel log = LogLevel::kWarning;
  std::uint64_t memory_budget = std::uint64_t{256} << 20;  // GRAPE_MEMORY_BUDGET: bytes of device memory for graphs
  Range range = Range::kProcess;                           // GRAPE_TRACE_RANGE: what of the process is recorded
  bool virtual_graphs = false;  // GRAPE_GRAPHS: the program's own graphs share a few execs, within the budget
  bool replace = false;         // GRAPE_TRACE_REPLACE: write beside, rename at the end
  bool autograd = true;         // GRAPE_AUTOGRAD: replay calls under autograd with their backward passes
  Varying varying = Varying::kWithinSpread;  // GRAPE_ALLOW_NONDETERMINISTIC
  bool strict = false;                       // GRAPE_STRICT: what falls back to eager is an error
  bool early_regions = false;                // GRAPE_EARLY_REGIONS: for tests, functions are found at once
  bool families = false;                     // GRAPE_FAMILIES: for tests, similar calls prove each other
  bool unlimited_looks = false;              // GRAPE_LOOK_BUDGET: calls are looked at, whatever that costs
  std::uint32_t validate = 0;                // GRAPE_VALIDATE: every so many replays one is checked; 0: none
  std::uint32_t run_pid = 0;                 // GRAPE_RUN_PID: the process that `grape run` became; 0: none
  char trace[4096] = {};                     // GRAPE_TRACE, unexpanded
  char report[4096] = {};                    // GRAPE_REPORT: JSON on what became of each region; unexpanded
  char cache[4096] = {};                     // GRAPE_CACHE: folder of what earlier processes proved
  char regions[4096] = {};                   // GRAPE_REGIONS: comma-separated patterns, checked
  bool auto_regions = false;  // Grape finds others by itself, in mode replay: `auto` is there, or nothing
  char exclude[4096] = {};    // GRAPE_EXCLUDE
};

// Is a trace to be written? In mode replay only where GRAPE_TRACE names one.
inline bool writes_trace(const Config& settings) noexcept {
  return settings.mode == Mode::kObserve || (settings.mode == Mode::kReplay && settings.trace[0] != '\0');
}

// The process's configuration. Before the library's constructor ran: disabled. Read-only afterwards; any thread.
const Config& config() noexcept;

// Reads `environment` (null-terminated, as environ) into `out` and passes each complaint to `warn` (one line, no
// newline, escaped). A mode that is not understood never replays: it is kObserve where GRAPE_TRACE asks for a trace,
// else kOff. Never allocates. Pure: used by the tests.
void parse_environment(const char* const* environment, Config& out, void (*warn)(const char* line)) noexcept;

}  // namespace grape
