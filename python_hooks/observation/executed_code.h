// The Python code that ran during an observed call, the host effects that it had, and the globals and closure cells
// that it names. Collected by the interpreter's frame evaluation (call_hook.h) and by traps on C functions (traps.h),
// on the calling thread and on those that are attached to its CallScope; only in observed calls. With the GIL.
#pragma once

#include <memory>
#include <vector>

#include "compressor/cache/cache.h"
#include "compressor/refusal/refusal.h"
#include "python_hooks/bridge/bridge.h"
#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/cpython.h"
#include "shim/observation/call_scope.h"

namespace grape::python::observation {

class ExecutedCode final : grape::observation::CallScope::Follower {
 public:
  // False: the call is not to be observed: somebody else profiles or traces this thread, a debugger or torch.compile
  // is at work, this thread's call is observed already, or this interpreter is not as expected.
  bool begin() noexcept;
  // Always after a successful begin(), also when the call raised: the exception stays set. False: the code did
  // something that no state shows; refusal() says what and where ("calls print()", "models/model.py:12"): print, files
  // and streams, logging and warnings that were shown, clocks, setting the environment, sockets, processes, signals,
  // host random sources (also NumPy's and PyTorch's generators read or set; torch's operators that draw from the CPU
  // generator show only in HostRandom), threads started or signalled, input, import of a module that was not
  // imported, backward passes, collectives, gc. C functions of other extensions count as functions of their arguments.
  bool end() noexcept;
  const refusal::Refusal& refusal() const noexcept;
  bool ran_backward() const noexcept;  // it is for a backward pass
  // Of the first backward pass that ran inside of the call and was followed; none: there was none. `differentiated`:
  // the tensors that gradients were asked for; identities.
  const refusal::Refusal& followed_pass() const noexcept;
  const std::vector<const Object*>& differentiated() const noexcept;
  const bridge::InnerNodes* nodes_of_passes() const noexcept;  // that these ran; null: none
  // What it drew from PyTorch's CPU generator, by functions that are known, where nobody looked at what was drawn; for
  // the caller to keep. Null: somebody did, or that is not known.
  host_draws::HostDraws* followed_draws() const noexcept;
  bool looks_at_draws() const noexcept;  // it drew, and it is not known that nobody looked
  bool makes_weak_references() const noexcept;
  bool is_librarys() const noexcept;  // all code that ran is PyTorch's or the standard library's
  cache::Digest digest() const;       // of the code that ran (portable.h); throws std::bad_alloc

  ExecutedCode();
  ~ExecutedCode();

  struct State;  // executed_code_state.h
  const State& state() const noexcept { return *state_; }
  static State* of_thread() noexcept;  // null: nobody follows its code

 private:
  bool listen() noexcept;
  bool attached() noexcept override;
  void detached() noexcept override;

  std::unique_ptr<State> state_;
  grape::observation::CallScope* call_ = nullptr;
  bool undisturbed_ = true;  // all frames were told
};

}  // namespace grape::python::observation
