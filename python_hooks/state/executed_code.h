// Which Python code ran during an observed call, what it reached for, and the globals and closure cells that it names.
// Collected by a C profile function (PyEval_SetProfile) on the calling thread; only in observed calls. With the GIL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "python_hooks/cpython.h"

namespace grape::python::state {

class ExecutedCode {
 public:
  // False: somebody else profiles or traces this thread, or a debugger is at work: the call is not to be observed.
  bool begin() noexcept;
  // Always after a successful begin(). False: the code did something that no state shows; reason() says what and where
  // ("calls print() at model.py:12"): print, logging, warnings, open and files, time and clocks, os.environ, sockets,
  // processes, random sources of the host (random, numpy.random, torch's CPU generator functions), threads and locks
  // made, input, import of a module that was not imported, gc and weakref callbacks of the user's, exceptions that left
  // the call.
  bool end() noexcept;
  const std::string& reason() const noexcept;

  ExecutedCode();
  ~ExecutedCode();

 private:
  friend class GlobalsGuard;
  struct State;
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
