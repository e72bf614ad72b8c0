// What autocast keeps: the first time that an operator casts a weight (a leaf of float that requires grad), the cast
// one goes into a table for all of the process, and the operators that come use it, until the outermost autocast block
// ends: also when the weight was written to meanwhile. Made under grad mode in recent versions, so that gradients reach
// the weight. (at::autocast::cached_cast in aten/src/ATen/autocast_mode.cpp.) With the GIL.
#pragma once

#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {

// Is autocast at work on CUDA, and keeps its casts up to its end?
bool autocast_keeps_casts() noexcept;
// Are has_kept_cast() and keep_cast() to be had in this PyTorch?
bool kept_casts_are_known() noexcept;
// To which type autocast casts now, a c10::ScalarType; and whether it would keep its cast of this tensor's kind.
std::int32_t autocast_type() noexcept;
bool is_castable_weight(Object* plain_tensor) noexcept;
// May there be a kept cast of it? The table refers to the weight weakly; as a rule nobody else does.
bool has_kept_cast(Object* plain_tensor) noexcept;
// The kept one, a new reference; where there is none it is made and kept, as an operator would do it now. Null: no
// device memory (PyTorch's exception is dropped).
Object* keep_cast(Object* plain_tensor) noexcept;

}  // namespace grape::python::state
