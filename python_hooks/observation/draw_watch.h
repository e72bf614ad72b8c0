// Which random numbers of PyTorch's CPU generator an observed call draws, and whether it looks at any of them. That is
// seen by the interpreter's own instructions (sys.monitoring, from Python 3.12): a number that goes from the call of
// torch.rand() straight into a local variable which no instruction reads from then on, and that is gone by the end, was
// seen by nobody. With the GIL.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/local_uses.h"
#include "python_hooks/observation/host_draws.h"

namespace grape::python::state {

class DrawWatch {
 public:
  DrawWatch() = default;
  ~DrawWatch();
  DrawWatch(const DrawWatch&) = delete;
  DrawWatch& operator=(const DrawWatch&) = delete;

  // From now on, for the calling thread. Nothing but the following comes in between.
  void begin() noexcept;
  // A frame of this code begins, met for the first time. Where it names what draws, its instructions are told of from
  // now on. May run Python code that is not the program's.
  void meet(Object* code) noexcept;
  // Any frame begins.
  void frame_began() noexcept { ++frames_; }
  // A function of PyTorch's that draws was called, by the definition at `place`, and has returned (null: raised).
  void drew(const void* place, Object* arguments, Object* keywords, Object* result) noexcept;
  // Somebody looks at the local variables of a frame.
  void locals_seen() noexcept { unseen_ = false; }
  void end() noexcept;
  // After end(): is it known of all numbers drawn by such functions that nobody looked at them?
  bool unseen() const noexcept { return unseen_; }
  // These, in their order.
  HostDraws& draws() noexcept { return draws_; }

  // Of the interpreter, on the thread that runs the code.
  static void on_instruction(Object* code, std::size_t offset) noexcept;
  static void on_call(Object* code, std::size_t offset, Object* callable) noexcept;

 private:
  struct Watched {
    Object* code;  // a reference
    LocalUses uses;
    std::bitset<256> held;  // local variables that hold, or held, what was drawn
  };
  struct Place {
    Object* code = nullptr;
    std::size_t offset = 0;
  };

  bool watch(Object* code) noexcept;
  Watched* find(Object* code) noexcept;
  void instruction(Object* code, std::size_t offset) noexcept;
  void let_go() noexcept;

  std::vector<Watched> watched_;
  std::vector<Object*> drawn_;  // references
  HostDraws draws_;
  std::uint64_t frames_ = 0, bytes_ = 0;  // bytes: of what was drawn
  bool unseen_ = true;
  Place call_;                // under way in the code that is watched
  Object* called_ = nullptr;  // borrowed, and alive meanwhile
  std::uint64_t frames_at_call_ = 0;
  Place taken_;  // where the number drawn last must be taken up
};

}  // namespace grape::python::state
