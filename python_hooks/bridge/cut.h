// What the nodes of a replayed call share.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <exception>
#include <memory>
#include <unordered_map>
#include <vector>

#include "python_hooks/bridge/border.h"

namespace grape::python::bridge {

namespace autograd = torch::autograd;
using autograd::variable_list;

class CastNode;

// Sets of links or of tops, as bits.
inline std::size_t words(std::uint32_t bits) noexcept { return (bits + 63) / 64; }
inline bool has(const std::uint64_t* bits, std::uint32_t which) noexcept {
  return (bits[which / 64] >> which % 64 & 1) != 0;
}
inline bool meet(const std::uint64_t* bits, const std::vector<std::uint64_t>& others) noexcept {
  for (std::size_t i = 0; i < others.size(); ++i) {
    if ((bits[i] & others[i]) != 0) return true;
  }
  return false;
}

// The engine descends from link to link. Before which one does a pass from the top run a node that keeps something? -1:
// before none.
template <class Form>
std::int64_t first_keeper(const Form& form, std::uint32_t top) noexcept {
  const std::size_t link_words = words(form.link_count), all_words = link_words + words(form.top_count);
  std::int64_t first = -1;
  for (std::uint32_t keeper = 0; keeper < form.keeper_count; ++keeper) {
    const std::int64_t link = form.keepers[keeper].link;
    if (link > first && has(form.paths + keeper * all_words + link_words, top)) first = link;
  }
  return first;
}

// What the nodes of one call share: its end is theirs.
struct Cut : std::enable_shared_from_this<Cut> {
  using PostHooks = std::vector<std::unique_ptr<autograd::FunctionPostHook>>;

  struct Part {
    at::Tensor tensor;   // with the memory that it had at the call
    at::Tensor itself;   // the caller's own, where a node has it; else undefined
    const void* memory;  // where that lay
    std::size_t bytes;
    std::uint32_t count, link;
    const std::uint64_t *links, *tops;
    const char* text;
    // No leaf: the caller's own, where nodes have it, as long as it lives. Results lead to the cut.
    WeakTensor living;
    bool is_leaf;  // at the call
    std::uint32_t node;
    bool freed;
    at::Tensor original() const;
  };

  // A pass that did not keep the graph, as bits: the tops that came, the links that ran. It came down to a link.
  struct Freeing {
    std::vector<std::uint64_t> tops, links;
    std::uint32_t down_to = ~0U;  // none yet
  };

  // A link: the node that runs it, gone where results that lead there were dropped, and where its edges begin there.
  struct LinkPlace {
    std::weak_ptr<autograd::Node> node;
    std::uint32_t first_edge = 0;
  };

  Cut(const Template& like, const Owner& owned_by, void* of) : form(like), owner(owned_by), call(of) {}
  ~Cut() { owner.gone(call); }
  Cut(const Cut&) = delete;
  Cut& operator=(const Cut&) = delete;

  void release_parts() noexcept;
  // Did a pass give back what the call saved, and fail then?
  bool is_spent() const noexcept;
  Remains remains_of(const Part& part) const noexcept;
  // A hook on a top is one on the node that eager has there.
  void take_hooks(std::uint32_t top, PostHooks&& hooks);

  // Returns false if the pass has begun already.
  bool begin(int now) {
    if (pass == now) return false;
    pass = now;
    ran = releases = false;
    next_part = next_keeper = 0;
    freed_before = freed_by.size();
    stopped = nullptr;
    came.assign(form.top_count, false);
    given.assign(form.slot_count, at::Tensor());
    contributions.assign(count_contributions(form), at::Tensor());
    go_inside.assign(form.edge_count, 0);
    held_inside.clear();
    return true;
  }
  void run();
  // Does somebody see, in the pass, what comes to a result to which inner nodes pass gradients? Then the engine has to
  // run the nodes of the call, made again.
  bool is_seen_inside() const;
  void splice();
  // Nobody but the call's links leads to its casts in this pass: the pass has their nodes, too, or else it has not.
  void take_casts();
  void leave_casts();
  void check(std::uint32_t link);
  // Is the part used in the pass? `from`: the tops that have run, as bits.
  bool is_used(const Part& part, const std::vector<std::uint64_t>& from) const;
  // Bits of Template::paths.
  struct Path {
    const std::uint64_t *links, *tops;
  };
  Path path_of(std::uint32_t keeper) const noexcept;
  // Has an earlier pass freed the node? Does it run in this one?
  bool is_freed(std::uint32_t keeper) const;
  bool will_free(std::uint32_t keeper, const std::vector<std::uint64_t>& from) const;
  // Is each pass to come that runs nodes which keep something an error of PyTorch's, unless this one keeps the graph?
  // Nodes that are left may lead to freed ones alone.
  bool uses_all(const std::vector<std::uint64_t>& from) const;
  // Does a freed node run in the pass, which no link has begun?
  bool meets_freed();
  // Raises an error if what the call saved was given back: PyTorch's, if a node of the pass would raise one.
  void check_there();
  // Raises PyTorch's error if freed nodes run in the pass: those up to `node`, and up to the link.
  void check_freed(std::uint32_t node, std::uint32_t link, const std::vector<std::uint64_t>& from);
  void check(const Part& part) const;
  std::vector<std::uint64_t> tops_that_came() const;
  // For a sealed form: raises what eager raises for the tops that have run. `waits`: not before the other tops have run
  // that eager runs before it raises that.
  void fail(bool waits);
  // Of a node of this call, by that of the observed call.
  std::uint64_t number(std::uint64_t observed) const noexcept {
    return first_sequence + observed - form.first_sequence;
  }
  // Tops know all results of their nodes, of the call that was made again. A second derivative may lead to some that
  // the call does not return, as norms have means.
  void complete_tops();
  // Gradients go to the nodes of the call that was made again, in passes to come.
  void redirect();
  // While no pass has tops in its queue: there they are in the order of their numbers.
  void number_as_eager();
  // Notes what the engine executes in the pass. False: not all links that are left.
  bool find_running();
  void has_owner_run(Pass& now);
  // Of the slot. Null: its result is gone.
  std::shared_ptr<autograd::Node> top_of(std::uint32_t slot, std::uint32_t& input) const;

  const Template& form;
  const Owner owner;
  void* const call;
  std::uint64_t first_sequence = 0;  // number at which the call's nodes begin
  std::vector<LinkPlace> links;
  std::vector<std::weak_ptr<autograd::Node>> tops;
  std::vector<PostHooks> hooks;  // per top, until they are where they belong
  std::vector<std::weak_ptr<CastNode>> casts;
  std::vector<const void*> cast_weights;  // of which the call left or found kept casts; tensors by their identity
  std::vector<bool> redirected;           // per top
  std::vector<at::Tensor> given, contributions;  // per slot, per contribution; of the pass
  std::vector<std::uint8_t> go_inside;           // per edge, in the pass: Contribution::goes_inside
  variable_list held_inside;                     // of these; LinkNode::hold_inside()
  std::vector<Part> parts;                       // in the order in which eager's nodes use them
  std::size_t next_part = 0;                     // to be checked, in the pass
  std::uint32_t next_keeper = 0;                 // the same
  std::vector<Freeing> freed_by;                 // passes, in their order
  std::size_t freed_before = 0;                  // how many before this pass
  std::vector<c10::Storage> memory;              // pieces of what is saved (CallTensors)
  std::vector<c10::DataPtr> rooms;               // of the pass
  std::exception_ptr failure;                    // of the pass
  std::exception_ptr stopped;                    // of a node in the pass: raised at the link, behind those before it
  std::uint32_t stopped_at = 0;
  std::unique_ptr<OwnedBorder> again;  // of the call that was made again; null: it was not
  std::vector<bool> came;              // per top, in the pass: it has run
  std::vector<std::uint8_t> runs;      // per contribution, in the pass
  std::vector<std::uint8_t> runs_without_casts;
  std::vector<std::uint64_t> running;  // links that run in the pass, as bits
  std::uint32_t last_link = 0;         // of these
  static constexpr int kNoPass = -2;   // -1 is what runs outside of any
  int pass = kNoPass;
  bool ran = false;
  bool splices = false;    // run_again() leaves the pass to the engine
  bool gone = false;       // what the call saved: a pass began that freed all of it
  bool releases = false;   // the pass: no other one will use what is kept
  int casts_of = kNoPass;  // take_casts(): in which pass
};

struct Blocks {
  std::vector<c10::Storage> storages;
  std::vector<at::Tensor> casts;
};

// PyTorch's allocator of device memory.
c10::Allocator* device_allocator();
// What is kMade, or what that is a view of.
at::Tensor make_tensor(const Contribution& like, c10::DeviceIndex current);

// The nodes of a call that was made again, and the tops that stand before those of results.
struct EagerNodes {
  explicit EagerNodes(const Cut& cut);
  bool has(const autograd::Node* node) const;
  std::unordered_map<const autograd::Node*, std::weak_ptr<autograd::Node>> inner, tops;
};

// A graph that such a node's run has made, from number `first` on, leads to the nodes that made results, where they
// keep those: a result's own node is the top, at which hooks are and gradients are added up.
void lead_to_tops(const variable_list& made, std::uint64_t first, const EagerNodes& eager);

// Made a cast that autocast keeps. It casts gradients back, as its base does, but in a pass that has it inside: there
// the weight's gradient is the pass's.
class CastNode final : public autograd::generated::ToCopyBackward0, public ReplayedNode {
 public:
  variable_list apply(variable_list&& gradients) override;
  // Does not keep the cut alive: the cast may outlive the call's nodes.
  std::weak_ptr<Cut> cut;
  std::uint32_t index = 0;
};

}  // namespace grape::python::bridge
