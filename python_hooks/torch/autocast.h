// Autocast's table of weights that were cast. The first operator that casts a weight (a leaf of float that requires
// grad) puts the cast one into a table of the process. Later operators use it until the outermost autocast block ends,
// even if the weight is written to meanwhile. Recent versions cast under grad mode, so that gradients reach the weight.
// (at::autocast::cached_cast in aten/src/ATen/autocast_mode.cpp.) With the GIL.
#pragma once

#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::torch {

// Is autocast at work on CUDA, and keeps its casts up to its end?
bool autocast_keeps_casts() noexcept;
// Do has_kept_cast() and keep_cast() work with this PyTorch?
bool kept_casts_are_known() noexcept;
// To which type autocast casts now, a c10::ScalarType; and whether it would keep its cast of this tensor's kind.
std::int32_t autocast_type() noexcept;
bool is_castable_weight(Object* plain_tensor) noexcept;
// May there be a kept cast of it? The table refers to the weight weakly; as a rule nobody else does.
bool has_kept_cast(Object* plain_tensor) noexcept;
// The cast weight from the table, a new reference. If there is none, it is made and kept, as an operator would do now.
// Null: no device memory (PyTorch's exception is dropped).
Object* keep_cast(Object* plain_tensor) noexcept;

}  // namespace grape::python::torch
