#include "python_hooks/proof/shadow_inputs.h"

#include <algorithm>

#include "python_hooks/torch/autocast.h"
#include "python_hooks/torch/torch_switches.h"
#include "shim/lifecycle/config.h"
#include "shim/memory/live_blocks.h"

namespace grape::python::proof {

using Range = grape::replay::Shadow::Range;
using Watched = grape::replay::Shadow::Watched;

std::vector<Watched> reachable_memory(const replay::Region& region, const program::Program& program,
                                      const guards::GlobalsGuard* globals, const replay::Call& call) {
  std::vector<Watched> ranges;
  const auto add = [&](const std::vector<walk::StorageExtent>& extents) {
    for (const walk::StorageExtent& extent : extents) ranges.push_back({{extent.address, extent.bytes}, false});
  };
  add(call.walk->extents());
  add(region.evidence.guard->extents());
  if (globals != nullptr) add(globals->extents());
  for (const program::StaticBlock& block : program.statics) {
    if (memory::LiveBlocks::instance().alive(block.address, block.serial)) {
      ranges.push_back({{block.address, block.bytes}, true});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.address < b.address; });
  std::vector<Watched> merged;
  for (const Watched& range : ranges) {
    if (range.bytes == 0) continue;
    if (!merged.empty() && range.address < merged.back().address + merged.back().bytes) {
      Watched& last = merged.back();
      last.bytes = std::max(last.bytes, range.address + range.bytes - last.address);
      last.hidden = last.hidden && range.hidden;
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

refusal::Refusal changed_by_call(const replay::Region& region, guards::GlobalsGuard* globals,
                                 const replay::Call& call) {
  torch::DispatchState after;
  refusal::Form<0> blocked;
  if (!torch::take_dispatch_state(after, blocked) || !after.same_as(call.dispatch) ||
      !replay::is_as_it_was(call.work)) {
    return refusal::make(refusal::changes_dispatch_state);
  }
  if (!region.evidence.guard->holds()) {
    const bool itself = region.of_function() && call.self == nullptr;
    return refusal::make(itself ? refusal::changes_function : refusal::changes_module, region.evidence.guard->change());
  }
  if (globals != nullptr && !globals->holds()) {
    return refusal::make(refusal::changes_names, globals->change());
  }
  return {};
}

refusal::Refusal moved_in_globals(const std::vector<walk::TensorVersion>& before) {
  const refusal::Form<1> moved = walk::moved_autograd(before);
  return moved ? refusal::make(moved, "a tensor that its code names") : refusal::Refusal();
}

std::vector<Range> output_ranges(const program::Program& program, const std::vector<std::uint64_t>& addresses,
                                 const std::vector<replay::OutputRecipe>& recipes,
                                 const effects::CallOutcome& outcome) {
  std::vector<Range> ranges;
  for (const replay::OutputRecipe& recipe : recipes) {
    if (!recipe.has_block || recipe.saved_bytes != 0) continue;  // what is saved is compared by its backward pass
    const std::uint64_t bytes = replay::bytes_of(recipe, outcome);
    ranges.push_back({addresses[recipe.block], std::min(bytes, program.outputs[recipe.block].bytes)});
  }
  return ranges;
}

device::Element element_of(std::int32_t type) noexcept {
  using device::Element;
  switch (type) {
    case 5:
    case 8:  // complex numbers are pairs
      return Element::kHalf;
    case 6:
    case 9:
      return Element::kFloat;
    case 7:
    case 10:
      return Element::kDouble;
    case 15:
      return Element::kBfloat16;
    default:
      return Element::kOther;
  }
}

bool claim_copies(const replay::Region& region, const replay::Call& call, const std::vector<Watched>& memory,
                  LookRoom& room, refusal::Refusal& refusal) {
  if (region.kind != replay::RegionKind::kOptimizer) return true;
  std::uint64_t bytes = 0;
  for (const Watched& range : memory) bytes += 2 * range.bytes;
  return room.claim(call.work, bytes, 0) ||
         refusal::refuse(refusal, refusal::little_device_memory, std::to_string(bytes >> 20));
}

std::vector<device::Element> output_elements(const std::vector<replay::OutputRecipe>& recipes,
                                             const effects::CallOutcome& outcome) {
  std::vector<device::Element> elements;
  for (const replay::OutputRecipe& recipe : recipes) {
    if (!recipe.has_block || recipe.saved_bytes != 0) continue;
    if (recipe.cast >= 0) {
      elements.push_back(element_of(torch::autocast_type()));
      continue;
    }
    const std::int32_t type = outcome.made()[recipe.made.front()].type;
    const bool same = std::all_of(recipe.made.begin(), recipe.made.end(),
                                  [&](std::uint32_t made) { return outcome.made()[made].type == type; });
    elements.push_back(same ? element_of(type) : device::Element::kOther);
  }
  return elements;
}

bool is_good(grape::replay::Shadow::Found found) noexcept {
  using Found = grape::replay::Shadow::Found;
  if (found == Found::kSame) return true;
  const bool varies = found == Found::kNotDeterministic || found == Found::kWithinSpread;
  if (!varies || config().varying == Varying::kNever) return false;
  if (config().varying == Varying::kAlways) return true;
  return found == Found::kWithinSpread && !torch::asks_for_determinism();
}

}  // namespace grape::python::proof
