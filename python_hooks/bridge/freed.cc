// What passes have freed of a replayed call's nodes, and what another pass over these comes to.
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "python_hooks/bridge/cut.h"

namespace grape::python::bridge {
namespace {

constexpr const char* kGone =
    "grape: another backward pass over a replayed call comes behind one that did not keep the graph. PyTorch would run "
    "nodes that keep nothing, or that an error kept from running. retain_graph=True keeps the graph; GRAPE_AUTOGRAD=0 "
    "runs calls under autograd as always";

// Is what comes to one of the link's edges added up at once, as the engine runs AccumulateGrad before all else?
bool leads_to_leaf(const Border& border, const Link& link) {
  const Target* const first = border.edges + link.first_edge;
  return std::any_of(first, first + link.edge_count, [](const Target& edge) {
    return dynamic_cast<const autograd::AccumulateGrad*>(static_cast<const autograd::Node*>(edge.node)) != nullptr;
  });
}

}  // namespace

bool adds_up_first(const Border& border) {
  for (std::uint32_t top = 0; top < border.top_count; ++top) {
    const std::int64_t error = first_keeper(border, top);
    const std::uint32_t* const reach = border.reach + border.tops[top].first_reach;
    const bool adds_up = std::any_of(reach, reach + border.tops[top].reach_count, [&](std::uint32_t link) {
      return link > error && (error < 0 || leads_to_leaf(border, border.links[link]));
    });
    if (adds_up) return true;
  }
  return false;
}

Cut::Path Cut::path_of(std::uint32_t keeper) const noexcept {
  const std::size_t link_words = words(form.link_count), all_words = link_words + words(form.top_count);
  const std::uint64_t* const links_behind = form.paths + keeper * all_words;
  return {links_behind, links_behind + link_words};
}

bool Cut::is_freed(std::uint32_t keeper) const {
  const Path path = path_of(keeper);
  return std::any_of(freed_by.begin(), freed_by.begin() + freed_before, [&](const Freeing& pass) {
    return form.keepers[keeper].link >= pass.down_to && meet(path.links, pass.links) && meet(path.tops, pass.tops);
  });
}

bool Cut::will_free(std::uint32_t keeper, const std::vector<std::uint64_t>& from) const {
  const Path path = path_of(keeper);
  return meet(path.links, running) && meet(path.tops, from);
}

bool Cut::meets_freed() {
  if (freed_before == 0) return false;
  find_running();
  std::vector<std::uint64_t> from(words(form.top_count), 0);
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    const std::shared_ptr<autograd::Node> top = tops[i].lock();
    if (top != nullptr && will_run(top.get())) from[i / 64] |= std::uint64_t{1} << i % 64;
  }
  for (std::uint32_t keeper = 0; keeper < form.keeper_count; ++keeper) {
    if (will_free(keeper, from) && is_freed(keeper)) return true;
  }
  return false;
}

bool Cut::uses_all(const std::vector<std::uint64_t>& from) const {
  std::vector<std::uint32_t> left;
  std::vector<bool> freed(form.keeper_count);
  for (std::uint32_t keeper = 0; keeper < form.keeper_count; ++keeper) {
    freed[keeper] = will_free(keeper, from) || is_freed(keeper);
    if (!freed[keeper]) left.push_back(keeper);
  }
  for (std::uint32_t top = 0; top < form.top_count && !left.empty(); ++top) {
    if (tops[top].expired()) continue;  // a result that was dropped takes its nodes with it
    std::vector<std::uint64_t> open(words(form.link_count),
                                    ~std::uint64_t{0});  // links without a freed node before them
    for (std::uint32_t keeper = 0; keeper < form.keeper_count; ++keeper) {
      const Path path = path_of(keeper);
      if (!freed[keeper] || !has(path.tops, top)) continue;
      for (std::size_t i = 0; i < open.size(); ++i) open[i] &= ~path.links[i];
    }
    const bool used = std::any_of(left.begin(), left.end(), [&](std::uint32_t keeper) {
      const Path path = path_of(keeper);
      return has(path.tops, top) && meet(path.links, open);
    });
    if (used) return false;
  }
  return true;
}

void Cut::check_freed(std::uint32_t node, std::uint32_t link, const std::vector<std::uint64_t>& from) {
  for (; next_keeper < form.keeper_count; ++next_keeper) {
    const Keeper& keeper = form.keepers[next_keeper];
    if (keeper.node > node || keeper.link < link) return;
    TORCH_CHECK(!will_free(next_keeper, from) || !is_freed(next_keeper), autograd::ERR_BACKWARD_TWICE);
  }
}

void Cut::check_there() {
  if (!gone) return;
  if (!form.adds_up_first) check(0);
  TORCH_CHECK(false, kGone);
}

}  // namespace grape::python::bridge
