#include "python_hooks/replay/signature.h"

#include <xxhash.h>

#include <iterator>

namespace grape::python::replay {
namespace {

constexpr std::size_t kMostSignatures = 8192;  // of one region
constexpr std::size_t kFewSignatures =
    1024;  // where its module is an argument, since they are long, or nobody named it

// Those that came once are forgotten: an argument may be another one in each call.
void make_room(Signatures& signatures) {
  for (auto at = signatures.begin(); at != signatures.end();) {
    const bool once = at->second->stage == Stage::kSeen && at->second->calls < 2;
    at = once ? signatures.erase(at) : std::next(at);
  }
}

std::size_t most_signatures(const Region& region) noexcept {
  return region.evidence.self_is_argument || region.is_found() ? kFewSignatures : kMostSignatures;
}

}  // namespace

bool write_call(const Call& call, walk::Walk& walk) {
  const std::size_t positional = positional_count(call.count);
  walk.add_bytes(call.dispatch.bytes, call.dispatch.byte_count);
  walk.add_bytes(&positional, sizeof positional);
  walk.add_bytes(&call.rate_at, sizeof call.rate_at);
  walk.add_bytes(&call.steps_at, sizeof call.steps_at);
  for (std::size_t i = call.first; i < positional; ++i) {
    const bool counts = i == call.steps_at;
    if (counts ? !walk.add_without_contents(call.arguments[i], "argument") : !walk.add(call.arguments[i], "argument"))
      return false;
  }
  if (call.names == nullptr) return walk.extents_are_apart();
  if (!walk.add(call.names, "keywords")) return false;
  const std::ptrdiff_t keywords = field<std::ptrdiff_t>(call.names, 16);
  for (std::ptrdiff_t i = 0; i < keywords; ++i) {
    if (positional + static_cast<std::size_t>(i) == call.rate_at) continue;
    if (!walk.add(call.arguments[positional + static_cast<std::size_t>(i)], "keyword argument")) return false;
  }
  return walk.extents_are_apart();
}

void write_sharing(Region& region, walk::Walk& walk) {
  std::vector<std::uint64_t>& shared = region.evidence.shared;
  shared.clear();
  region.evidence.guard->sharing().relate(walk, shared);
  walk.add_bytes(shared.data(), shared.size() * sizeof shared.front());
}

Signature* find_signature(Region& region, const std::vector<std::uint8_t>& bytes) {
  const std::uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  const auto known = region.evidence.signatures.find(hash);
  if (known != region.evidence.signatures.end()) return known->second->bytes == bytes ? known->second.get() : nullptr;
  if (region.evidence.signatures.size() >= most_signatures(region)) make_room(region.evidence.signatures);
  if (region.evidence.signatures.size() >= most_signatures(region)) return nullptr;
  auto signature = std::make_unique<Signature>();
  signature->bytes = bytes;
  return (region.evidence.signatures[hash] = std::move(signature)).get();
}

}  // namespace grape::python::replay
