// What a call did for Python: the object that it returned, and the attributes and items of its arguments that it
// replaced. Learned from observed calls, repeated at each replay with fresh tensors. With the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python_hooks/cpython.h"
#include "python_hooks/state/module_guard.h"
#include "python_hooks/state/walk.h"

namespace grape::python::state {

// The arguments' mutable objects before the call: shallow copies of their attributes and items, references held.
class Before {
 public:
  // `arguments`: the walk of the call's arguments, just taken.
  static std::unique_ptr<Before> take(const Walk& arguments, std::string& reason) noexcept;
  ~Before();

 private:
  friend class Outcome;
  Before();
  struct State;
  std::unique_ptr<State> state_;
};

// A tensor that the call made: where its memory lies, and its shape.
struct MadeTensor {
  std::uint64_t storage = 0, storage_bytes = 0;  // as observed
  std::int64_t offset = 0;                       // elements
  std::vector<std::int64_t> sizes, strides;
  std::int32_t type = 0, device_type = 0, device_index = 0;
  std::uint32_t group = 0;  // tensors with the same number share one storage; numbered in order
};

class Outcome {
 public:
  // After the call returned `result`. Compares arguments with `before`. Null: refused; `reason`: the call changed
  // something that cannot be repeated (an opaque object in the result, a tensor that requires grad, a generator,
  // a plain value that ..., an object of the module that moved, ...).
  //   the result: tensors made; argument objects and module objects by place (walks' objects()); views of arguments'
  //   tensors; tuple, list, dict, OrderedDict, dataclasses, ModelOutput-like and other plain instances, rebuilt without
  //   calling their __init__; immutable values; None.
  static std::unique_ptr<Outcome> learn(Object* result, const Walk& arguments, const Before& before,
                                        const ModuleGuard& module, std::string& reason) noexcept;
  ~Outcome();

  // Two observed calls of one signature must have done the same: structure, places, shapes, plain values.
  bool same_as(const Outcome& other, std::string& difference) const noexcept;

  // Tensors made, each once, in the order met (effects first, then the result).
  const std::vector<MadeTensor>& made() const noexcept;

  // Repeats: `tensors[i]` stands for made()[i] (references are not stolen); `arguments` is a walk of this call's
  // arguments with bytes equal to the learned one's. First builds everything, then applies the replaced attributes and
  // items, which cannot fail half way but for memory. Returns the result, a new reference; null: nothing was changed.
  Object* repeat(Object* const* tensors, const Walk& arguments) const noexcept;

 private:
  Outcome();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace grape::python::state
