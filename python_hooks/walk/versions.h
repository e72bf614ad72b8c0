// Versions of tensors, and what else autograd notes of them. A version is how often autograd was told of a write. A
// tensor and its views share one; by it a backward pass finds out that what it saved is not as it was. A replay writes
// to memory and tells nobody: it moves the versions as the call did. With the GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::walk {

struct TensorVersion {
  Object* tensor = nullptr;                  // borrowed
  torch::VersionCounter* counter = nullptr;  // null: it has none
  std::uint32_t count = 0;
  torch::AutogradNotes autograd;  // as it was then
};

// What the first of them moved of what autograd notes of it (AutogradNotes::moved). They are alive.
refusal::Form<1> moved_autograd(const std::vector<TensorVersion>& before) noexcept;

// As they are now. Appends; throws std::bad_alloc.
void take_versions(const std::vector<WalkedTensor>& tensors, std::vector<TensorVersion>& out);

// Of a tensor that nobody has seen yet. PyTorch may have written to it already, to fill it.
void set_version(Object* tensor, std::uint32_t version) noexcept;

// As if it were written to so often.
void move_version(Object* tensor, std::uint32_t times) noexcept;

// A tensor that a call wrote to and that only globals hold, by its number among these.
struct GlobalWrite {
  std::uint32_t tensor = 0, times = 0;
};

}  // namespace grape::python::walk
