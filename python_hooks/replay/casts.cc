#include "python_hooks/replay/casts.h"

#include <algorithm>
#include <utility>

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/replay/region.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/torch/autocast.h"
#include "python_hooks/torch/autograd_state.h"
#include "shim/device/copy_memory.h"
#include "shim/observation/device_exclusion.h"

namespace grape::python::replay {
namespace {

// In inference mode nothing is kept.
bool keeps_casts(const Call& call) noexcept {
  const bool replayed = !call.dispatch.grad_enabled || may_train(call.dispatch);
  return replayed && !call.dispatch.inference_mode && torch::autocast_keeps_casts() && torch::kept_casts_are_known();
}

// The kept cast of a weight, a new reference; null: there is none. Should somebody else refer to the weight weakly,
// PyTorch begins to cast it, and is stopped.
Object* kept_cast(Object* weight) noexcept {
  if (!torch::has_kept_cast(weight)) return nullptr;
  const grape::observation::NoWork no_work;
  return no_work.holds() ? torch::keep_cast(weight) : nullptr;
}

Object* cast_weight(const Region& region, const OutputRecipe& recipe) noexcept {
  return region.evidence.cast_weights[static_cast<std::size_t>(recipe.cast)];
}

bool names_memory(const program::RegionRecord& record, std::uint64_t address, std::uint64_t bytes) {
  return std::any_of(record.words.begin(), record.words.end(),
                     [=](std::uint64_t word) { return word >= address && word - address < bytes; });
}

}  // namespace

FoundCasts::~FoundCasts() { drop(held_); }

bool FoundCasts::write(const Region& region, const Call& call, walk::Walk& walk) {
  if (!depends_on_kept_casts(region, call)) return true;
  held_.reserve(region.evidence.cast_weights.size());
  for (Object* weight : region.evidence.cast_weights) {
    Object* cast = kept_cast(weight);
    const bool kept = cast != nullptr;
    walk.add_bytes(&kept, sizeof kept);
    if (!kept) continue;
    held_.push_back(cast);
    if (!walk.add(cast, "autocast's cast of a weight")) return false;
  }
  return held_.empty() || walk.extents_are_apart();
}

bool depends_on_kept_casts(const Region& region, const Call& call) noexcept {
  return !region.evidence.cast_weights.empty() && keeps_casts(call);
}

bool find_left_casts(Region& region, const Call& call, const program::RegionRecord& record,
                     const std::vector<std::uint64_t>& addresses, std::vector<LeftCast>& casts) {
  if (!keeps_casts(call)) return true;
  std::vector<Object*>& known = region.evidence.cast_weights;
  const std::size_t known_before = known.size();
  for (const walk::WalkedTensor& tensor : region.evidence.guard->tensors()) {
    Object* weight = tensor.view.object;
    if (!torch::is_castable_weight(weight)) continue;
    Reference cast(kept_cast(weight));
    torch::TensorView view;
    // As the block's own autocast makes them, and not one inside of the call.
    if (!cast || !torch::view_tensor(cast.get(), view) || view.type != torch::autocast_type()) continue;
    const auto left = std::find(addresses.begin(), addresses.end(), view.storage);
    const auto at = std::find(known.begin(), known.end(), weight);
    const auto number = static_cast<std::uint32_t>(at - known.begin());
    if (left != addresses.end()) {
      const std::uint64_t node = torch::autograd_mark(cast.get()).sequence;
      casts.push_back({number, view.storage, view.storage_bytes, view.device_index, node, std::move(cast)});
    } else if (at != known.end() || !names_memory(record, view.storage, view.storage_bytes)) {
      continue;
    }
    if (at == known.end()) known.push_back(weight);
  }
  std::sort(casts.begin(), casts.end(), [](const LeftCast& a, const LeftCast& b) { return a.node < b.node; });
  return known.size() == known_before;
}

void keep_casts(const Region& region, const Proven& proven, std::vector<Object*>& tensors, std::size_t made) noexcept {
  if (tensors.size() <= made) return;
  drop_behind(tensors, made);  // first all of them: the memory of those that were not kept is the casts'
  for (const OutputRecipe& recipe : proven.recipes) {
    if (recipe.cast >= 0) tensors.push_back(torch::keep_cast(cast_weight(region, recipe)));
  }
}

LeftBlocks::~LeftBlocks() {
  if (blocks_ != nullptr) bridge::loaded()->free_blocks(blocks_);
  if (written_before_ != nullptr) g_api.Py_DecRef(written_before_);
}

bool LeftBlocks::keep_written(const Border& border, const WorkPlace& work) {
  if (!border.depends_on_written) return true;
  std::uint64_t bytes = 0, to = 0;
  for (const program::Extent& written : border.written) bytes += written.bytes;
  written_before_ = new_bytes(bytes, torch::kCudaDevice, work.device, to);
  if (written_before_ == nullptr) return false;
  return std::all_of(border.written.begin(), border.written.end(), [&](const program::Extent& written) {
    return device::copy_on_device(work.driver_stream(), std::exchange(to, to + written.bytes), written.address,
                                  written.bytes);
  });
}

bool LeftBlocks::make(const Proven& proven, std::int32_t device, std::vector<std::uint64_t>& addresses,
                      std::vector<std::uint64_t>& pieces) {
  std::vector<std::uint64_t> bytes;
  for (const OutputRecipe& recipe : proven.recipes) {
    if (recipe.cast >= 0 && recipe.cast_device != device) return false;
    if (recipe.cast >= 0) bytes.push_back(recipe.cast_bytes);
  }
  casts_.resize(bytes.size());
  pieces = bytes_of_pieces(proven.recipes);
  bytes.insert(bytes.end(), pieces.begin(), pieces.end());
  if (bytes.empty()) return true;
  std::vector<std::uint64_t> made(bytes.size());
  blocks_ = bridge::loaded()->make_blocks(bytes.data(), bytes.size(), casts_.size(), device, made.data());
  if (blocks_ == nullptr) return false;
  std::copy(made.begin() + static_cast<std::ptrdiff_t>(casts_.size()), made.end(), pieces.begin());
  std::size_t cast = 0;
  for (const OutputRecipe& recipe : proven.recipes) {
    if (recipe.cast >= 0) {
      if (recipe.has_block) addresses[recipe.block] = made[cast];
      ++cast;
    } else if (recipe.saved_bytes != 0) {
      addresses[recipe.block] = program::address_in(pieces, recipe.saved_at);
    }
  }
  pieces_ = pieces.size();
  return true;
}

bool LeftBlocks::keep_casts(const Region& region, const Proven& proven) {
  if (casts_.empty()) return true;
  std::vector<bridge::Tensor> weights;
  weights.reserve(casts_.size());
  for (const OutputRecipe& recipe : proven.recipes) {
    if (recipe.cast >= 0) weights.push_back(torch::handle_of_tensor(cast_weight(region, recipe)));
  }
  bridge::loaded()->keep_casts(blocks_, weights.data(), weights.size(), torch::autocast_type(), casts_.data());
  return std::all_of(casts_.begin(), casts_.end(), [](const bridge::KeptCast& cast) { return cast.tensor != nullptr; });
}

bool find_kept_cast(const Region& region, const OutputRecipe& recipe, std::vector<LeftCast>& casts) {
  Reference kept(kept_cast(cast_weight(region, recipe)));
  torch::TensorView view;
  if (!kept || !torch::view_tensor(kept.get(), view) || view.storage_bytes != recipe.cast_bytes) return false;
  const std::uint64_t node = torch::autograd_mark(kept.get()).sequence;
  const auto weight = static_cast<std::uint32_t>(recipe.cast);
  casts.push_back({weight, view.storage, view.storage_bytes, view.device_index, node, std::move(kept)});
  return true;
}

}  // namespace grape::python::replay
