// The signature of a call: its dispatch state, its arguments, and what these share with the module, as bytes. Code that
// only reads cannot tell two calls with equal bytes apart. With the GIL.
#pragma once

#include "python_hooks/replay/call.h"

namespace grape::python::replay {

// Writes the dispatch state and the arguments. False: refused, see `walk.refusal()`.
bool write_call(const Call& call, walk::Walk& walk);
// Then writes what the arguments share with the region's module. The module's guard holds.
void write_sharing(Region& region, walk::Walk& walk);
// Finds the region's signature with these bytes, or makes it. Null: there are too many, or another one has its hash.
Signature* find_signature(Region& region, const std::vector<std::uint8_t>& bytes);

}  // namespace grape::python::replay
