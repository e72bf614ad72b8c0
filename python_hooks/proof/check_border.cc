// The border of a call that runs in place of a replay (GRAPE_VALIDATE), compared with the one that was proven.
#include <algorithm>

#include "python_hooks/proof/border.h"

namespace grape::python::proof {
namespace {

// Blocks that only nodes keep have no recipe that tells where they are. They are known by the order in which the nodes
// keep them.
void find_saved_blocks(const replay::Proven& proven, const replay::Call& call, const bridge::Border& border,
                       std::vector<std::uint64_t>& addresses) {
  const auto only_saved = [&](std::uint32_t block) {
    return std::any_of(proven.recipes.begin(), proven.recipes.end(), [block](const replay::OutputRecipe& recipe) {
      return recipe.saved_bytes != 0 && recipe.block == block;
    });
  };
  const auto is_known = [&](std::uint64_t address) {
    const auto& extents = call.walk->extents();
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end() ||
           std::any_of(extents.begin(), extents.end(), [address](const auto& each) { return each.address == address; });
  };
  const replay::Border& known = *proven.border;
  const std::size_t count = std::min<std::size_t>(border.saved_count, known.saved_tensors.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t place = known.saved_tensors[i].first;
    if (place == replay::Border::kNone || known.saved[place].of != replay::SavedMemory::Of::kBlock) continue;
    const std::uint32_t block = known.saved[place].index;
    const bridge::Saved& saved = border.saved[i];
    if (only_saved(block) && addresses[block] == 0 && !is_known(saved.storage)) addresses[block] = saved.storage;
  }
}

}  // namespace

bool is_border_of(const replay::Proven& proven, const replay::Call& call, GradientTargets& targets,
                  std::uint64_t first_node, std::vector<std::uint64_t> addresses, ObservedBorder& observed,
                  refusal::Refusal& difference) {
  if (!targets.add_arguments(call, proven.outcome->made_to_require_grad())) return false;
  if (!find_border(targets, {first_node, nullptr, &proven.border->freed}, observed, difference)) {
    if (difference.id == refusal::no_host_memory.id) difference = {};
    return false;
  }
  find_saved_blocks(proven, call, *observed.border, addresses);
  find_saved_memory(call, addresses, proven.recipes, observed);
  const bool same =
      proven.border->same_as(*observed.lasting) && proven.border->saved_tensors == observed.lasting->saved_tensors;
  return same || refusal::refuse(difference, refusal::other_border_than_replay);
}

}  // namespace grape::python::proof
