// Random numbers that a call draws from PyTorch's CPU generator and at most compares with plain numbers. This is layer
// drop: `p = torch.rand([])`, and then `if self.training and p < 0.1:`. Such a call does the same
// whenever the comparisons have the same outcomes. Its replays draw as well, so that the next draw of the program gives
// the number that it would have given. The interpreter's reports of single instructions (sys.monitoring, from Python
// 3.12) tell what becomes of a number. With the GIL.
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

// Methods that compare a tensor (as above).
inline constexpr char kComparisons[] = "TensorBase.__lt__ TensorBase.__le__ TensorBase.__gt__ TensorBase.__ge__";

// Of PyTorch's CPU generator, as of get_state(): a new reference; null: PyTorch is not there, or an exception is set.
Object* generator_state() noexcept;
// False: an exception may be set.
bool set_generator_state(Object* state) noexcept;

// Whether a number that was drawn compares so with a plain one.
struct Decision {
  int comparison = 0;  // as of PyObject_RichCompare()
  Strong number;
  bool truth = false;
};

// What a call drew, in order, and what it decided by that.
class HostDraws {
 public:
  bool empty() const noexcept { return draws_.empty(); }
  std::size_t count() const noexcept { return draws_.size(); }
  std::size_t decisions() const noexcept;
  // Theirs, in order. Throws std::bad_alloc.
  std::vector<bool> outcomes() const;
  // A copy of the arguments is kept; `keywords` may be null. False: they are no plain values, or there is no memory.
  bool add(Object* function, Object* arguments, Object* keywords) noexcept;
  // Of the draw of that index. False: no memory.
  bool decide(std::size_t index, const Decision& decision) noexcept;
  // The same functions with the same arguments, in the same order, with the same decisions? False as well without
  // memory.
  bool same_as(const HostDraws& other) const noexcept;
  // Would the numbers that come next decide the same? Moves no generator. May let other threads run.
  bool decide_the_same() const noexcept;
  // Draws all of them, from the generator that the program uses. False: one raised, and its exception is set.
  bool repeat() const noexcept;
  void clear() noexcept { draws_.clear(); }

 private:
  friend class HostRandom;
  struct Draw {
    Strong function;   // torch.rand or one like it
    Strong arguments;  // a tuple of plain values that nobody else can change
    Strong keywords;   // such a dictionary, or none
    std::vector<Decision> decisions;
    Object* from(Object* generator) const noexcept;  // a new reference; null: it raised
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

// Watches an observed call: what it draws, and what becomes of it. A number is followed from the call of torch.rand()
// on, through local variables and the stack of that code. It may be given up, or compared with a plain number. The
// outcome is followed likewise, to where somebody asks whether it is true. All else that instructions do with them is a
// look, and so is what is not gone by the end.
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
  // A tensor was compared, by the method of that name (as users read it) with these arguments.
  void compared(const char* name, Object* tensor, Object* arguments, Object* result) noexcept;
  // Somebody asked whether a tensor is true.
  void asked(Object* tensor, Object* result) noexcept;
  // Somebody looks at the local variables of a frame.
  void locals_seen() noexcept;
  void end() noexcept;
  // After end(): all that was drawn by such functions, if it is known what became of it; else null.
  HostDraws* followed() noexcept;
  // The same: did it draw by such functions, with somebody who looked at it, for all that is known?
  bool seen() const noexcept;

  struct State;  // draw_watch.cc

 private:
  std::unique_ptr<State> state_;
};

}  // namespace grape::python::host_draws
