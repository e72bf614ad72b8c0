// A call of a region, as the hook passes it on.
#pragma once

#include "compressor/program/numbers.h"
#include "python_hooks/replay/region.h"
#include "python_hooks/replay/work_place.h"
#include "python_hooks/torch/torch_api.h"

namespace grape::python::replay {

// A call as the interpreter makes it.
struct PlainCall {
  Vectorcall eager;
  Object* function;
  Object* const* arguments;
  std::size_t count;  // with the vectorcall's flag
  Object* names;
  Object* root;            // the module, or the function itself
  Object* self = nullptr;  // the module that is a function's first argument, and guarded as modules are; null: none
  std::size_t first = 0;   // argument that is none of these
};

inline Object* run_as_it_is(const PlainCall& call) {
  return call.eager(call.function, call.arguments, call.count, call.names);
}

// The same with the state that decides whether the call is replayed.
struct Call : PlainCall {
  explicit Call(const PlainCall& plain) noexcept : PlainCall(plain) {}
  torch::DispatchState dispatch;
  const walk::Walk* walk = nullptr;     // of the arguments without the root
  WorkPlace work;                       // once its arguments were walked
  const CallTimes* replayed = nullptr;  // its signature's, once it was replayed
  bool checked = false;                 // a replay of it was compared with the call itself
  bool check_asked = false;             // by GRAPE_VALIDATE
  // What its signature leaves out, by number in `arguments`, and the numbers that follow from it
  // (optimizer_numbers.h): a rate, and tensors on the CPU that count steps. kNone, and no numbers: nothing.
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t rate_at = kNone, steps_at = kNone;
  program::Numbers numbers;
};

}  // namespace grape::python::replay
