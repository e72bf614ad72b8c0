// What is launched next.
#include <algorithm>

#include "shim/virtual_execs/virtual_execs.h"

namespace grape::virtual_execs {
namespace {

constexpr int kMostTrust = 4;

struct ProgramRun {
  CUgraphExec last = nullptr, expected = nullptr;
  int trust = 0;  // grows with each expectation that is met, and shrinks faster
};
thread_local ProgramRun t_steps;

}  // namespace

// Learns what follows what, and says what is likely to follow now: what did the last time, else the graph that was made
// as far from this one as this one from the one before.
CUgraphExec VirtualExecs::foresee(CUgraphExec handle, Virtual& launched) noexcept {
  ProgramRun& steps = t_steps;
  if (steps.expected != nullptr) {
    steps.trust = steps.expected == handle ? std::min(steps.trust + 1, kMostTrust) : std::max(steps.trust - 2, 0);
  }
  Virtual* before = steps.last != nullptr ? find(steps.last) : nullptr;
  if (before != nullptr) before->follower = handle;
  steps.expected = launched.follower;
  if (steps.expected == nullptr && before != nullptr) {
    steps.expected = reinterpret_cast<CUgraphExec>(2 * reinterpret_cast<std::uintptr_t>(handle) -
                                                   reinterpret_cast<std::uintptr_t>(steps.last));
  }
  steps.last = handle;
  const Virtual* next = steps.expected != nullptr && ours(steps.expected) ? find(steps.expected) : nullptr;
  if (next == nullptr) steps.expected = nullptr;
  return next != nullptr && next->exec == nullptr && steps.trust > 0 ? steps.expected : nullptr;
}

// Were this thread's last launches, and this one, what was expected?
bool VirtualExecs::foreseen(CUgraphExec handle) noexcept {
  return t_steps.trust == kMostTrust && t_steps.expected == handle;
}

}  // namespace grape::virtual_execs
