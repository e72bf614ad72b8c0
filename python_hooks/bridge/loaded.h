// Loads the bridge to the PyTorch that runs.
#pragma once

#include "python_hooks/bridge/bridge.h"

namespace grape::python::bridge {

// Null: there is none for this version of PyTorch, or it does not fit; a line in the log says so. With the GIL, after
// torch::load_torch_api(); cheap after the first call.
const Bridge* loaded() noexcept;
// Null also where nobody has needed one yet.
const Bridge* loaded_before() noexcept;

}  // namespace grape::python::bridge
