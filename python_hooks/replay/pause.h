// Other Python threads' turn while a replay waits for the device, as they have it in the waits of an eager call.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "python_hooks/replay/call.h"
#include "shim/device/thread_context.h"
#include "shim/observation/device_exclusion.h"
#include "shim/replay/steps.h"

namespace grape::python::replay {

// Of a call whose guards held; of a run of `proven` (may be null), whose bindings are set. The region is busy, so its
// proofs, their execs and the arena stay; the objects of the call are kept. Anything else may be another afterwards:
// unchanged() asks for all of it again. With the GIL; begin() gives it up until end(), which ends the thread where the
// interpreter is going away: destructors then run without the GIL, so nothing on the way may give up references in one.
class GilPause final : public grape::replay::Pause {
 public:
  // `keep`: the objects of the call are kept; else it has run, and some of them may be gone. `scope`: in which the run
  // is, and which what is asked of PyTorch must not show; null: none.
  GilPause(Region& region, Proven* proven, const Call& call, bool keep = true,
           grape::replay::ContextScope* scope = nullptr) noexcept;
  GilPause(const GilPause&) = delete;
  GilPause& operator=(const GilPause&) = delete;
  bool begin() override;
  void end() override;
  bool unchanged() override;
  // After the run, and always: lets go of what was kept. May run Python code.
  void release() noexcept;

 private:
  bool same_call() const;
  bool same_random_state() const noexcept;
  bool same_walk(const state::Walk& now) const noexcept;

  Region& region_;
  Proven* proven_;
  const Call& call_;
  bool keep_;
  grape::replay::ContextScope* scope_;
  std::vector<Object*> kept_;  // owned
  ThreadState* thread_ = nullptr;
  bool asked_ = true;  // unchanged() since the last end()
};

enum class Settled : std::uint8_t { kIdle, kBusy, kChanged };
// Ahead of a copy of what the call can reach: all that the process has put on streams is done first. kBusy: not within
// the time that is to be spent on that. kChanged: meanwhile the call became another one.
Settled let_device_finish(Region& region, const Call& call);
// The same after the call, which may have changed what it stands on; with great patience ahead of a pause, since what
// is looked at next should be as the call left it. Null: busy.
std::unique_ptr<grape::replay::DeviceExclusion> quiet_after_call(Region& region, const Call& call);

}  // namespace grape::python::replay
