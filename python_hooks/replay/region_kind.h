// What the calls of a region are calls of. Each difference between kinds is a function here. Kinds under autograd
// (forward, backward, optimizer step) will join these. Compared, and not looked up, since calls that run as always ask.
#pragma once

#include <cstdint>

namespace grape::python::replay {

enum class RegionKind : std::uint8_t {
  kModule,
  kFunction,       // GRAPE_REGIONS names it
  kFoundFunction,  // nobody named it (discovery/outside_regions.h)
};

// Its root is a function and no module: what it works on may be in globals, so only observed calls tell whether it
// works on a GPU.
constexpr bool is_of_function(RegionKind kind) noexcept { return kind != RegionKind::kModule; }

// Nobody asked for it: looking at it has a budget, and it is given up as soon as that gains nothing.
constexpr bool is_found(RegionKind kind) noexcept { return kind == RegionKind::kFoundFunction; }

// In place of its name.
constexpr const char* unnamed(RegionKind kind) noexcept { return is_of_function(kind) ? "a function" : "a module"; }

}  // namespace grape::python::replay
