// Operators that PyTorch has for CUDA only, or that draw random numbers where nobody says so, by others for the CPU.
#pragma once

#include <ATen/core/stack.h>

#include <functional>
#include <string>

namespace host_torch {

using Replacement = std::function<void(torch::jit::Stack& stack)>;

// By name ("aten::..."); null: the CPU has the operator itself.
const Replacement* find_replacement(const std::string& name);

// Whether an operator (its name without "aten::") runs nothing on the device itself, or only copies by the driver.
bool is_kept(const std::string& name);

}  // namespace host_torch
