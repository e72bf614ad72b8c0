#include "compressor/cache/adopt.h"

namespace grape::cache {
namespace {

bool same_layout(const program::FunctionInfo& a, const program::FunctionInfo& b) {
  if (a.has_layout != b.has_layout || a.parameters.size() != b.parameters.size()) return false;
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    if (a.parameters[i].offset != b.parameters[i].offset || a.parameters[i].bytes != b.parameters[i].bytes)
      return false;
  }
  return true;
}

bool adopt_functions(program::Program& cached, const program::Program& seen, const std::vector<Digest>& kernels) {
  if (cached.functions.size() != seen.functions.size() || kernels.size() != seen.functions.size()) return false;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    program::FunctionInfo& own = cached.functions[i];
    const program::FunctionInfo& other = seen.functions[i];
    if (own.handle != handle_of(kernels[i]) || own.name != other.name || !same_layout(own, other)) return false;
    own.handle = other.handle;
  }
  return true;
}

// Serial numbers count from 1, and addresses are none of these.
program::StaticBlock nobodys(const program::StaticBlock& block, std::uint64_t number) {
  return {~std::uint64_t{0} - number, block.bytes, ~number};
}

void adopt_statics(program::Program& cached, const program::Program& seen) {
  std::vector<program::StaticBlock> statics;
  for (std::size_t i = 0; i < cached.statics.size(); ++i) statics.push_back(nobodys(cached.statics[i], i));
  // No two become one: weights that were two are not those that are tied.
  std::vector<bool> known(statics.size(), false), taken(seen.statics.size(), false);
  auto other = seen.references.begin();
  for (const program::Reference& own : cached.references) {
    while (other != seen.references.end() && other->word < own.word) ++other;
    if (own.role != program::Role::kStatic || known[own.block]) continue;
    if (other == seen.references.end() || other->word != own.word || other->role != own.role) continue;
    const program::StaticBlock& block = seen.statics[other->block];
    if (taken[other->block] || block.bytes != cached.statics[own.block].bytes) continue;
    statics[own.block] = block;
    known[own.block] = taken[other->block] = true;
  }
  cached.statics = std::move(statics);
}

}  // namespace

bool adopt(program::Program& cached, const program::Program& seen, const std::vector<Digest>& kernels) {
  for (const program::Program* each : {static_cast<const program::Program*>(&cached), &seen}) {
    if (!each->waited_events.empty() || !each->recorded_events.empty() || !each->waited_streams.empty()) return false;
  }
  if (!adopt_functions(cached, seen, kernels)) return false;
  adopt_statics(cached, seen);
  cached.streams = seen.streams;
  return true;
}

}  // namespace grape::cache
