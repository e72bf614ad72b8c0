// Counts the program's launches outside of regions' calls, and samples which functions launch most of them: these
// become regions (outside_regions.h), or the report advises to name them in GRAPE_REGIONS.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/report/statistics.h"
#include "shim/driver/captures.h"
#include "shim/record/thread_log.h"

namespace grape::python::report {
struct OutsideReport;  // report_text.h
}

namespace grape::python::discovery {

// A function that launches outside of regions, and could be one.
struct OutsideCandidate : report::OutsideFunction {
  Object* function = nullptr;  // borrowed from its module or class
};

inline record::LaunchCount& thread_launches() noexcept { return record::t_thread.launches; }

// Counts what came since the last look, and samples the stack. Keeps errno.
__attribute__((cold)) void look_at_launch(bool outside) noexcept;

// After each launch of a kernel that the program made itself, in mode replay; any thread, with or without the GIL. One
// in 16 is looked at, at distances that are no multiple of anything, since programs are loops.
inline void note_launch() noexcept {
  record::LaunchCount& mine = thread_launches();
  const bool outside = mine.depth == 0 && driver::g_captures.load(std::memory_order_relaxed) == 0;
  mine.outside += outside ? 1 : 0;
  ++mine.all;
  if (__builtin_expect(--mine.due <= 0, 0)) look_at_launch(outside);
}

// With the GIL. Of other threads up to 31 launches each are not counted. Throws std::bad_alloc.
report::OutsideReport outside_report();
// The largest share first; none where little is launched outside of regions, or little was sampled. `automatic`: those
// that may become regions though nobody named them, so only launches without gradients count, and no functions that
// call themselves. `callers_known`: note_module_call() was told of the modules' calls (outside_choice.h).
std::vector<OutsideCandidate> outside_candidates(bool automatic, bool callers_known);

// At a module's call that no other region's holds, with the GIL: those who call it are no regions, nor is their loop.
void note_module_call() noexcept;

}  // namespace grape::python::discovery
