// Lets other Python threads run while a replay waits for the device, as the waits of an eager call do.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "python_hooks/replay/call.h"
#include "shim/device/thread_context.h"
#include "shim/observation/device_exclusion.h"
#include "shim/replay/program_run.h"

namespace grape::python::replay {

// The guards of the call held, and the bindings of `proven` are set (null: nothing runs). The region is busy, so its
// proofs, their execs and the arena stay; the objects of the call are kept. All else may change in a pause: unchanged()
// asks for it again. With the GIL; begin() gives it up until end(). Where the interpreter is going away, end() ends the
// thread, and destructors run without the GIL: none on the way may give up references.
class GilRelease final : public grape::replay::Pause {
 public:
  // `keep`: keeps the objects of the call; pass false once the call has run, as some of them may be gone. `scope`: the
  // context of the run, which is left while PyTorch is asked; null: none.
  GilRelease(Region& region, Proven* proven, const Call& call, bool keep = true,
             device::ContextScope* scope = nullptr) noexcept;
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  // What is called next may give the GIL up for a while: keeps what begin() keeps. False: no memory.
  bool expect() noexcept;
  bool begin() override;
  void end() override;
  bool unchanged() override;
  // After the run, and always: lets go of what was kept. May run Python code.
  void release() noexcept;

 private:
  bool same_call() const;
  bool same_random_state() const noexcept;
  bool same_walk(const walk::Walk& now) const noexcept;

  Region& region_;
  Proven* proven_;
  const Call& call_;
  bool keep_;
  device::ContextScope* scope_;
  std::vector<Object*> kept_;  // owned
  ThreadState* thread_ = nullptr;
  bool asked_ = true;  // unchanged() since the last end()
};

enum class Settled : std::uint8_t { kIdle, kBusy, kChanged };
// Waits until all streams of the process are idle, before memory that the call can reach is copied. kBusy: they were
// not in time. kChanged: other threads changed the call meanwhile.
Settled let_device_finish(Region& region, const Call& call);
// Does the same after the call. Waits longer before the first pause, since a pause lets other threads change what the
// call left. Null: busy.
std::unique_ptr<grape::observation::DeviceExclusion> quiet_after_call(Region& region, const Call& call);

}  // namespace grape::python::replay
