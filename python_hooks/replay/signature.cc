#include "python_hooks/replay/signature.h"

namespace grape::python::replay {

bool write_call(const Call& call, state::Walk& walk) {
  const std::size_t positional = positional_count(call.count);
  walk.add_bytes(call.dispatch.bytes, call.dispatch.byte_count);
  walk.add_bytes(&positional, sizeof positional);
  for (std::size_t i = call.first; i < positional; ++i) {
    if (!walk.add(call.arguments[i], "argument")) return false;
  }
  if (call.names == nullptr) return walk.extents_are_apart();
  if (!walk.add(call.names, "keywords")) return false;
  const std::ptrdiff_t keywords = field<std::ptrdiff_t>(call.names, 16);
  for (std::ptrdiff_t i = 0; i < keywords; ++i) {
    if (!walk.add(call.arguments[positional + static_cast<std::size_t>(i)], "keyword argument")) return false;
  }
  return walk.extents_are_apart();
}

void write_sharing(Region& region, state::Walk& walk) {
  std::vector<std::uint64_t>& shared = region.shared;
  shared.clear();
  region.guard->sharing().relate(walk, shared);
  walk.add_bytes(shared.data(), shared.size() * sizeof shared.front());
}

}  // namespace grape::python::replay
