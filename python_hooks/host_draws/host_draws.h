// Random numbers that a call draws from PyTorch's CPU generator and never looks at (layer drop outside of training:
// `p = torch.rand([])`, and then `self.training and p < ...`). Such a call does the same whatever was drawn. Its
// replays draw as well, so that the next draw of the program gives the number that it would have given. The
// interpreter's reports of single instructions (sys.monitoring, from Python 3.12) tell whether a number is looked at.
// With the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/strong.h"

namespace grape::python::host_draws {

// The functions that are known to draw, as methods of a class in torch._C (a row of host_effects.def).
inline constexpr char kDrawingFunctions[] =
    "_VariableFunctionsClass.rand _VariableFunctionsClass.randn _VariableFunctionsClass.randint "
    "_VariableFunctionsClass.randperm";

// What a call drew, in order.
class HostDraws {
 public:
  bool empty() const noexcept { return draws_.empty(); }
  std::size_t count() const noexcept { return draws_.size(); }
  // A copy of the arguments is kept; `keywords` may be null. False: they are no plain values, or there is no memory.
  bool add(Object* function, Object* arguments, Object* keywords) noexcept;
  // The same functions with the same arguments, in the same order? False as well without memory.
  bool same_as(const HostDraws& other) const noexcept;
  // Draws all of them, from the generator that the program uses. False: one raised, and its exception is set.
  bool repeat() const noexcept;
  void clear() noexcept { draws_.clear(); }

 private:
  friend class HostRandom;
  struct Draw {
    Strong function;   // torch.rand or one like it
    Strong arguments;  // a tuple of plain values that nobody else can change
    Strong keywords;   // such a dictionary, or none
  };
  // The state that these lead to from `state` (both as of Generator.get_state()), a new reference; null: not known.
  // Moves no generator that anybody else knows.
  Object* state_behind(Object* state) const noexcept;

  std::vector<Draw> draws_;
};

// How the generators of random numbers of the host stood: `random`'s, NumPy's global one, PyTorch's CPU generator.
class HostRandom {
 public:
  void take() noexcept;  // as they stand now
  // Do they stand now where drawing these, and nothing else, leads to?
  bool moved_by(const HostDraws& draws) const noexcept;

 private:
  std::uint64_t others_ = 0;  // a hash over `random`'s and NumPy's
  Strong torch_;              // Generator.get_state(); none: PyTorch is not there
};

// Watches an observed call: what it draws, and whether anybody looks at it. A number that goes from the call of
// torch.rand() straight into a local variable which no instruction reads from then on, and that is gone by the end, was
// seen by nobody.
class DrawWatch {
 public:
  DrawWatch();
  ~DrawWatch();

  // From now on, for the calling thread. Nothing but the following comes in between.
  void begin() noexcept;
  // A frame of this code begins, met for the first time. Where it names what draws, its instructions are told of from
  // now on. May run Python code that is not the program's.
  void meet(Object* code) noexcept;
  // Any frame begins.
  void frame_began() noexcept;
  // A function of PyTorch's that draws was called, by the definition at `place`, and has returned (null: raised).
  void drew(const void* place, Object* arguments, Object* keywords, Object* result) noexcept;
  // Somebody looks at the local variables of a frame.
  void locals_seen() noexcept;
  void end() noexcept;
  // After end(): all that was drawn by such functions, if it is known that nobody looked at it; else null.
  HostDraws* unseen() noexcept;
  // The same: did it draw by such functions, with somebody who looked at it, for all that is known?
  bool seen() const noexcept;

  struct State;  // draw_watch.cc

 private:
  std::unique_ptr<State> state_;
};

}  // namespace grape::python::host_draws
