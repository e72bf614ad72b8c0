// Random numbers that a call draws from PyTorch's CPU generator and that nobody looks at (layer drop outside of
// training: `p = torch.rand([])`, and then `self.training and p < ...`). Such a call does the same whatever was drawn;
// a replay of it draws as well, so that whoever draws next gets what he would have got. With the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {

// What was called: references.
struct Draw {
  Object* function = nullptr;   // torch.rand or one like it
  Object* arguments = nullptr;  // a tuple of plain values that nobody else can change
  Object* keywords = nullptr;   // such a dictionary, or null
};

class HostDraws {
 public:
  HostDraws() = default;
  ~HostDraws() { clear(); }
  HostDraws(HostDraws&& other) noexcept { draws_.swap(other.draws_); }
  HostDraws& operator=(HostDraws&& other) noexcept {
    draws_.swap(other.draws_);
    return *this;
  }
  HostDraws(const HostDraws&) = delete;
  HostDraws& operator=(const HostDraws&) = delete;

  bool empty() const noexcept { return draws_.empty(); }
  std::size_t count() const noexcept { return draws_.size(); }
  // A copy of the arguments is kept. False: they are no plain values, or there is no memory.
  bool add(Object* function, Object* arguments, Object* keywords) noexcept;
  // The same functions with the same arguments, in the same order? False as well without memory.
  bool same_as(const HostDraws& other) const noexcept;
  // Draws all of them, from the generator that the program uses. False: one raised, and its exception is set.
  bool repeat() const noexcept;
  void clear() noexcept;

 private:
  friend class HostRandom;
  // The state that these lead to from `state` (both as of Generator.get_state()), a new reference; null: not known.
  // Moves no generator that anybody else knows.
  Object* state_behind(Object* state) const noexcept;

  std::vector<Draw> draws_;
};

// How the generators of random numbers of the host stood: `random`'s, NumPy's global one, PyTorch's CPU generator.
class HostRandom {
 public:
  HostRandom() = default;
  ~HostRandom();
  HostRandom(const HostRandom&) = delete;
  HostRandom& operator=(const HostRandom&) = delete;

  void take() noexcept;  // as they stand now
  // Do they stand now where drawing these, and nothing else, leads to?
  bool moved_by(const HostDraws& draws) const noexcept;

 private:
  std::uint64_t others_ = 0;  // a hash over `random`'s and NumPy's
  Object* torch_ = nullptr;   // owned: Generator.get_state(); null: PyTorch is not there
};

}  // namespace grape::python::state
