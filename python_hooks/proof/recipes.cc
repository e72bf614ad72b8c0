#include "python_hooks/proof/recipes.h"

#include <algorithm>
#include <utility>

#include "compressor/program/plan.h"
#include "python_hooks/torch/autocast.h"

namespace grape::python::proof {
namespace {

// Is the storage exactly as long as a new tensor of this shape would make it?
bool is_whole(const effects::MadeTensor& made) {
  if (made.offset != 0) return false;
  std::uint64_t last = 0, elements = 1;
  for (std::size_t i = 0; i < made.sizes.size(); ++i) {
    if (made.sizes[i] == 0) return made.storage_bytes == 0;
    elements *= static_cast<std::uint64_t>(made.sizes[i]);
    last += static_cast<std::uint64_t>(made.sizes[i] - 1) * static_cast<std::uint64_t>(made.strides[i]);
  }
  const std::uint64_t item_bytes = made.item_bytes;
  return made.storage_bytes == (last + 1) * item_bytes && elements != 0;
}

// Pieces of about equal sizes, in the order of birth: backward passes need the last ones first.
void place_saved(std::vector<replay::OutputRecipe>& recipes, std::size_t first) {
  constexpr std::uint64_t kLeastPiece = 256 << 10;
  std::uint64_t all = 0, before = 0, at = 0;
  for (std::size_t i = first; i < recipes.size(); ++i) all += program::aligned(recipes[i].saved_bytes);
  const std::uint64_t pieces =
      std::max<std::uint64_t>(1, std::min<std::uint64_t>(program::kMostPieces, all / kLeastPiece));
  std::uint32_t piece = 0;
  for (std::size_t i = first; i < recipes.size(); ++i) {
    const std::uint64_t bytes = program::aligned(recipes[i].saved_bytes);
    if (at != 0 && before * pieces >= (piece + 1) * all) {
      ++piece;
      at = 0;
    }
    recipes[i].saved_at = program::place_in(piece, at);
    at += bytes;
    before += bytes;
  }
}

}  // namespace

std::vector<program::BlockEvent> surviving_blocks(const program::RegionRecord& record) {
  std::vector<program::BlockEvent> alive;
  for (const program::BlockEvent& event : record.block_events) {
    const auto at = std::find_if(alive.rbegin(), alive.rend(), [&](const program::BlockEvent& block) {
      return block.address == event.address &&
             !std::binary_search(record.given_away.begin(), record.given_away.end(), block.serial);
    });
    if (at != alive.rend()) alive.erase(std::next(at).base());
    if (event.alloc) alive.push_back(event);
  }
  return alive;
}

std::vector<std::uint64_t> blocks_without_result(const program::RegionRecord& record,
                                                 const effects::CallOutcome& outcome) {
  std::vector<std::uint64_t> blocks;
  for (const program::BlockEvent& block : surviving_blocks(record)) blocks.push_back(block.address);
  const auto held = [&outcome](std::uint64_t address) {
    return std::any_of(outcome.made().begin(), outcome.made().end(), [address](const effects::MadeTensor& made) {
      return made.storage_bytes != 0 && made.storage == address;
    });
  };
  blocks.erase(std::remove_if(blocks.begin(), blocks.end(), held), blocks.end());
  return blocks;
}

bool make_recipes(const program::RegionRecord& record, const effects::CallOutcome& outcome,
                  const std::vector<replay::LeftCast>& casts, const std::vector<std::uint64_t>& saved,
                  std::vector<replay::OutputRecipe>& recipes, std::vector<std::uint64_t>& addresses,
                  refusal::Refusal& refusal) {
  const std::vector<program::BlockEvent> blocks = surviving_blocks(record);
  addresses.clear();
  for (const program::BlockEvent& block : blocks) addresses.push_back(block.address);
  std::vector<bool> held(addresses.size(), false);
  const auto hold = [&](std::uint64_t address, replay::OutputRecipe& recipe) {
    const auto at = std::find(addresses.begin(), addresses.end(), address);
    if (at == addresses.end()) return false;
    recipe.has_block = true;
    recipe.block = static_cast<std::uint32_t>(at - addresses.begin());
    held[recipe.block] = true;
    return true;
  };
  const auto& made = outcome.made();
  for (std::uint32_t i = 0; i < made.size(); ++i) {
    if (made[i].device_type != torch::kCudaDevice) return refusal::refuse(refusal, refusal::returns_cpu_tensor);
    if (made[i].group >= recipes.size()) recipes.resize(made[i].group + 1);
    replay::OutputRecipe& recipe = recipes[made[i].group];
    recipe.made.push_back(i);
    const bool of_none = made[i].view_of == effects::MadeTensor::kNoView;
    if (recipe.whole == replay::OutputRecipe::kNone && of_none && is_whole(made[i])) recipe.whole = i;
    if (made[i].storage_bytes != 0 && !hold(made[i].storage, recipe)) {
      return refusal::refuse(refusal, refusal::returns_older_memory);
    }
  }
  for (const replay::LeftCast& cast : casts) {
    replay::OutputRecipe recipe;
    if (!hold(cast.address, recipe)) continue;
    recipe.cast = static_cast<std::int32_t>(cast.weight);
    recipe.cast_bytes = cast.bytes;
    recipe.cast_device = cast.device;
    recipes.push_back(std::move(recipe));
  }
  const std::size_t others = recipes.size();
  for (const std::uint64_t address : saved) {
    replay::OutputRecipe recipe;
    if (!hold(address, recipe)) continue;
    recipe.saved_bytes = blocks[recipe.block].bytes;
    recipes.push_back(std::move(recipe));
  }
  place_saved(recipes, others);
  if (std::find(held.begin(), held.end(), false) != held.end()) {
    return refusal::refuse(refusal, torch::autocast_keeps_casts() ? refusal::keeps_casts : refusal::keeps_memory);
  }
  return true;
}

}  // namespace grape::python::proof
