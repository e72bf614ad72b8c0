// Which Python code ran during an observed call, what it reached for, and the globals and closure cells that it names.
// Collected by the interpreter's frame evaluation (call_hook.h) and by traps on C functions (traps.h), on the calling
// thread; only in observed calls. With the GIL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "python_hooks/cpython.h"

namespace grape::python::state {

class ExecutedCode {
 public:
  // False: the call is not to be observed: somebody else profiles or traces this thread, a debugger or torch.compile
  // is at work, this thread's call is observed already, or this interpreter is not as expected.
  bool begin() noexcept;
  // Always after a successful begin(), also when the call raised: the exception stays set. False: the code did
  // something that no state shows; reason() says what and where ("calls print() at models/model.py:12"): print, files
  // and streams, logging and warnings that were shown, clocks, setting the environment, sockets, processes, signals,
  // host random sources (also NumPy's and PyTorch's generators read or set; torch's operators that draw from the CPU
  // generator show only in host_random_hash()), threads started or signalled, input, import of a module that was not
  // imported, backward passes, collectives, gc, an exception that left the call. C functions of other extensions are
  // taken for functions of their arguments.
  bool end() noexcept;
  const std::string& reason() const noexcept;

  ExecutedCode();
  ~ExecutedCode();

  struct State;  // executed_code_state.h

 private:
  friend class GlobalsGuard;
  std::unique_ptr<State> state_;
};

// The globals, builtins, closure cells and defaults that the executed code names. Values of libraries (installed
// packages, the standard library) by identity, the user's (everything else) by value (walk.h). Watched by dictionary
// versions, and name by name where a version moved. Keeps code objects and dictionaries alive, nothing else.
class GlobalsGuard {
 public:
  static std::unique_ptr<GlobalsGuard> take(const ExecutedCode& code, std::string& reason) noexcept;
  ~GlobalsGuard();
  bool holds() noexcept;  // a few us
  const std::string& change() const noexcept;

 private:
  GlobalsGuard();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace grape::python::state
