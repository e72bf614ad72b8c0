// A call's signature: equal bytes mean that code which only reads cannot tell two calls of a region apart. With the
// GIL.
#pragma once

#include "python_hooks/replay/call.h"

namespace grape::python::replay {

// Its dispatch state and its arguments. False: refused, see `walk.refusal()`.
bool write_call(const Call& call, state::Walk& walk);
// Behind it: what the arguments share with the region's module. The module's guard holds.
void write_sharing(Region& region, state::Walk& walk);
// What is known of the region's calls of that signature, as it was written; made anew where there is none. Null: too
// many, or two that share a hash.
Signature* find_signature(Region& region, const std::vector<std::uint8_t>& bytes);

}  // namespace grape::python::replay
