// Runs calls whose results require grad. Most calls of a training are of this kind. They are neither replayed nor
// observed, and must cost next to nothing. With the GIL.
#pragma once

#include "python_hooks/replay/region.h"
#include "python_hooks/replay/run.h"

namespace grape::python::control {

// Is the call to run as always, without a look at it, since gradients are on and the region's results require grad, or
// since nobody knows yet whether they do?
bool runs_under_autograd(replay::Region& region) noexcept;

// Runs it so; the modules inside are regions of their own. Looks at the result where that is not known.
Object* run_under_autograd(replay::Region& region, const replay::PlainCall& call);

// Counts a region's call, and its time, children's included. `each`: of each call, and of the intervals between calls;
// else where that is cheap: of each outermost call, and of the others one in 16.
class CountedCall {
 public:
  CountedCall(replay::Region& region, bool each) noexcept;
  ~CountedCall() noexcept;
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;

 private:
  replay::Region& region_;
  const double weight_;  // 0: it is not timed
  const double began_;
};

}  // namespace grape::python::control
