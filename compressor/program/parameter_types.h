// Reads the types of a kernel's parameters from its mangled name. For prove.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace grape::program {

enum class ParameterType : std::uint8_t {
  kOther,     // numbers, enumerations, classes by a plain name
  kPointer,   // to anything
  kClosure,   // of a lambda expression
  kTemplate,  // an instance of a class template
  kEmpty      // of a class of PyTorch's that has no members
};

// One per parameter; empty where the name does not say, or cannot be read.
std::vector<ParameterType> parameter_types(const std::string& mangled);

}  // namespace grape::program
