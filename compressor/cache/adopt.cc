#include "compressor/cache/adopt.h"

namespace grape::cache {
namespace {

bool adopt_functions(program::Program& cached, const program::Program& seen, const std::vector<Digest>& kernels,
                     std::string& why) {
  if (cached.functions.size() != seen.functions.size() || kernels.size() != seen.functions.size()) {
    why = "it ran " + std::to_string(seen.functions.size()) + " different kernels; there, " +
          std::to_string(cached.functions.size());
    return false;
  }
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    program::FunctionInfo& own = cached.functions[i];
    const program::FunctionInfo& other = seen.functions[i];
    if (own.name != other.name) {
      why = "it ran " + other.name + "; there, " + own.name;
    } else if (own.handle != handle_of(kernels[i]) || own.has_layout != other.has_layout ||
               own.parameters != other.parameters) {
      why = "the code of " + own.name + " was another one";
    }
    if (!why.empty()) return false;
    own.handle = other.handle;
  }
  return true;
}

// Serial numbers count from 1, and addresses are none of these.
program::StaticBlock nobodys(const program::StaticBlock& block, std::uint64_t number) {
  return {~std::uint64_t{0} - number, block.bytes, ~number};
}

void adopt_statics(program::Program& cached, const program::Program& seen) {
  const std::vector<bool> known = put_on_statics_of(cached, seen);
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (!known[i]) cached.statics[i] = nobodys(cached.statics[i], i);
  }
}

}  // namespace

// No two become one: weights that were two are not those that are tied.
std::vector<bool> put_on_statics_of(program::Program& program, const program::Program& other) {
  std::vector<bool> known(program.statics.size(), false), taken(other.statics.size(), false);
  auto there = other.references.begin();
  for (const program::Reference& own : program.references) {
    while (there != other.references.end() && there->word < own.word) ++there;
    if (there == other.references.end()) break;
    if (own.role != program::Role::kStatic || known[own.block]) continue;
    if (there->word != own.word || there->role != own.role) continue;
    const program::StaticBlock& block = other.statics[there->block];
    if (taken[there->block] || block.bytes != program.statics[own.block].bytes) continue;
    program.statics[own.block] = block;
    known[own.block] = taken[there->block] = true;
  }
  return known;
}

bool adopt(program::Program& cached, const program::Program& seen, const std::vector<Digest>& kernels,
           std::string& why) {
  why.clear();
  for (const program::Program* each : {static_cast<const program::Program*>(&cached), &seen}) {
    if (!each->waited_events.empty() || !each->recorded_events.empty() || !each->waited_streams.empty()) {
      why = "it waits for events of before it, or others for its";
      return false;
    }
  }
  if (!adopt_functions(cached, seen, kernels, why)) return false;
  adopt_statics(cached, seen);
  cached.streams = seen.streams;
  return true;
}

}  // namespace grape::cache
