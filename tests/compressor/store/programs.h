// Programs made up for tests: every field in use, and relatives of each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compressor/program/program.h"

namespace grape::store {

// Field by field, without the store's own code.
bool equal(const program::Program& a, const program::Program& b);

// Consistent, of `nodes` operations drawn by `seed`; every list has something in it if there are nodes.
program::Program made_program(std::uint64_t seed, std::size_t nodes = 40);

// The same operations with another length: pointers move together, sizes and some grids grow.
program::Program relative_of(const program::Program& program, std::uint64_t length);

// One operation more in the middle of a consistent program.
program::Program with_node_inserted(const program::Program& program);

// Each changes one field of a made program, and leaves it consistent.
struct Change {
  std::string field;
  std::function<void(program::Program&)> apply;
};
std::vector<Change> every_change();

}  // namespace grape::store
