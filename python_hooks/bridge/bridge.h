// What libgrape.so and a bridge have to say to each other. Nodes of autograd's graph are subclasses of a class of
// PyTorch's. So a bridge is a small shared object, built with the headers of one minor version of PyTorch, and loaded
// where that version runs. Only plain data crosses: both sides have a C++ library of their own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grape::python::bridge {

constexpr std::uint32_t kVersion = 14;  // of this file: a bridge of another one is not used
constexpr char kEntry[] = "grape_bridge";

using Tensor = const void*;  // at::Tensor*, borrowed; null: an undefined one

// Where a gradient goes: an input of a node. Identities, never followed.
struct Target {
  const void* node;
  std::uint32_t input;
};

// An inner node of a call with edges that leave it: to older nodes and to leaves.
struct Link {
  std::uint64_t sequence;  // the node's number; numbers of one thread ascend as nodes are made
  const char* name;
  std::uint32_t first_edge, edge_count;  // in Border::edges, in the order of the node's outputs
};

// An inner node that keeps tensors, or works on a view. A pass frees it, unless it keeps the graph.
struct Keeper {
  std::uint32_t node, link;  // as in Saved
};

// A leaf that the call made, and that nobody has any more but the call's nodes, and maybe a Python object to which
// nobody refers: nobody sees its gradient.
struct Leaf {
  std::uint32_t edge;  // that leads to it
  const void* object;  // the Python object; null: there is none
  std::int64_t dimensions;
  const std::int64_t* sizes;
  std::int32_t type;  // it is on the device of the results
};

// A node that made results of the call.
struct Top {
  std::uint64_t sequence;
  const char* name;
  std::uint32_t first_slot, slot_count;    // gradients that may come: its inputs, numbered through all tops
  std::uint32_t first_reach, reach_count;  // in Border::reach: indices of links that gradients get to, ascending
  std::uint32_t first_fed, fed_count;      // in Border::fed: results' slots of older tops that gradients get to
};

// A tensor that an inner node keeps for the backward pass.
struct Saved {
  std::uint64_t storage, bytes;  // of its storage
  const void* version;           // its version counter
  const void* identity;          // of the tensor: that of the caller's own, if the node follows what is assigned to it
  std::uint32_t count;           // what that says
  std::int32_t device_type;      // c10::DeviceType
  std::uint64_t value;           // a hash of its bytes where the host has them; 0: they are on a device
  std::uint32_t link;            // that checks the version: the first to run with or after the node
  // Bits: links that gradients get to from the node, and tops from which they get to it.
  const std::uint64_t *links, *tops;
  const char* text;    // as PyTorch names it in its error: type, sizes, the node that made it
  std::uint32_t node;  // which of the inner nodes, in the order in which they run
  bool freed;          // no tensor: what the node kept was freed by a pass inside of the call, so that it cannot run
};

// The border of an observed call. Owned by the bridge until it is freed.
struct Border {
  // Ascending by sequence. Behind them stands one for each node that made a kept cast (CallNodes::casts). It counts
  // where a pass has that node inside; its only edge is behind `edge_count`.
  const Link* links;
  const Target* edges;
  const Leaf* leaves;  // ascending by edge
  const Top* tops;     // ascending by sequence
  const std::uint32_t *reach, *fed;
  const std::uint32_t* slots;    // of each result: which slot its gradient comes to
  const std::uint8_t* views;     // of each result: how it was made, if it is a view (autograd's CreationMeta)
  const Saved* saved;            // in the order in which the nodes run in a backward pass
  const Keeper* keepers;         // the same
  const std::uint64_t* paths;    // per keeper: Saved::links, and behind them Saved::tops
  const std::uint64_t* numbers;  // of all inner nodes, in the order in which they run
  std::uint32_t link_count, edge_count, top_count, slot_count, saved_count, node_count, cast_count;
  std::uint32_t leaf_count, keeper_count;
  const std::uint8_t* freed;  // as `numbers`: has a pass inside of the call freed what the node kept?
  // No gradient gets from a result to an edge, or to another result, but through a freed node: each pass over the call
  // is PyTorch's error. `saved` has no tensors of nodes behind freed ones then.
  bool sealed;
  // A pass over nodes that another one has freed gives leaves their gradients before it meets PyTorch's error, or
  // without one: these nodes keep nothing.
  bool adds_up_first;
  const std::uint64_t* hidden;  // storages on the device that only these nodes keep
  std::uint32_t hidden_count;
  std::uint64_t constants;  // a hash of all that the nodes are and keep beside tensors, and of how they are connected
};

// Sizes and strides of a tensor whose storage begins with its first element. Borrowed.
struct Shape {
  std::int64_t dimensions = 0;
  const std::int64_t *sizes = nullptr, *strides = nullptr;
};

// A gradient as it is at this moment. Borrowed.
struct Gradient {
  const void* identity = nullptr;  // of the tensor; null: undefined
  std::uint64_t data = 0, storage = 0, storage_bytes = 0;
  std::int64_t dimensions = 0;
  const std::int64_t *sizes = nullptr, *strides = nullptr;
  std::int64_t offset = 0;  // elements
  std::int32_t type = 0, device_type = 0, device_index = 0;
  std::uint32_t item_bytes = 0;
  std::uint32_t version = 0;   // how often it was written to
  bool plain = false;          // strided, no subclass, requires no grad
  bool unique = false;         // nobody else has the tensor or its storage: then it may be written to
  const void* base = nullptr;  // identity of the tensor that autograd knows it as a view of; null: it is no view
  bool by_strides = false;     // as_strided() of the base, called in a pass, makes such a view
  bool whole_base = false;     // the base's storage begins with its first element
  Shape of_base;               // where `by_strides`
  bool goes_inside = false;    // of a node's outputs: an inner node gets the tensor, too, or a view of it
};

// What a node's run goes on with when it has given its contributions: the engine adds those for which another one is
// there already.
enum class Leaving : std::uint8_t {
  kOutside,  // nothing of the call's own
  kInside,   // sums for inner nodes, until the thread turns to another node
  kBoth,     // sums for inner nodes and for others
  kDone,     // it was the last one of the call's
};

// What a link's node has done. Borrowed. Where nobody but the call leads to its kept casts in a pass, their nodes are
// the pass's. Then these give contributions, and those to the casts are not asked for.
struct Left {
  std::uint32_t link;
  const Gradient* outputs;  // per edge
  const bool* asked;        // per edge: is it wanted?
  Leaving how;
  const void* node;            // for at_node()
  const std::uint64_t* ended;  // of kDone: storages that nobody has any more as soon as the node is done
  std::size_t ended_count;
};

// A pass that comes to an inner node first.
struct Began {
  bool keeps_graph, makes_graph;
  bool waits;          // a gradient is still to come to a result, from elsewhere
  const char* hooked;  // an inner node on which there is a hook of somebody else's; null: none
};

// Somebody who watches an observed call's backward passes. All on the thread that runs the nodes; without the GIL.
struct Watcher {
  void (*began)(void* call, const Began& pass) noexcept;
  // A slot's gradient is complete, or will be added to by inner nodes only.
  void (*given)(void* call, std::uint32_t slot, const Gradient& gradient) noexcept;
  void (*entered)(void* call, const void* node) noexcept;  // an inner node runs, until at_node() says otherwise
  // A link's node has run: what comes next is not its work, but for what `how` tells.
  void (*left)(void* call, const Left& left) noexcept;
  void (*ended)(void* call) noexcept;  // the whole pass, without an error. Any thread that autograd works with
  void (*gone)(void* call) noexcept;   // the graph: the last one to be called. Any thread
};

// A contribution to a gradient outside, as a replay makes it.
struct Contribution {
  enum class Kind : std::uint8_t {
    kUndefined,
    kGiven,      // the very tensor that came to slot `of`
    kAnother,    // the very tensor of contribution `of`, which comes before
    kOfGiven,    // a view of the tensor of slot `of`, or of what that is a view of
    kOfAnother,  // a view of contribution `of`, or of what that is a view of
    kBase,       // the very tensor that contribution `of` is a view of
    kMade,       // in memory of its own
  };
  Kind kind = Kind::kUndefined;
  std::uint32_t of = 0;
  std::int64_t dimensions = 0;
  const std::int64_t *sizes = nullptr, *strides = nullptr;
  std::int64_t offset = 0;  // elements, from the storage's begin
  std::int32_t type = 0, device_type = 0, device_index = 0;
  std::uint32_t writes = 0;  // by nodes of the pass that autograd was told of: versions
  std::uint32_t part = 0;    // kMade: of the pass, which uses it first
  bool is_view = false;      // kMade: of a tensor that nobody else has
  Shape of_base;             // of that tensor
  bool goes_inside = false;  // an inner node has the tensor when it gets to where it goes: nobody may take it for good
};

// What has become of a kept tensor, in the order of CallTensors::kept.
struct Remains {
  std::uint64_t storage;  // where its memory lies now
  bool moved;             // is that elsewhere than at the call?
  bool replaced;          // has another one been assigned to the caller's tensor (`x.data = y`)?
  bool alike;             // has it the same type, shape and size?
};

// One backward pass of a replayed call.
struct Pass {
  const Gradient* given;     // per slot; undefined: none, or the top did not run
  const std::uint8_t* runs;  // per contribution (count_contributions): is it asked for?
  bool whole = false;        // is all asked for that there is?
  bool all_run = false;      // do all links, and all nodes that keep something? Unless the graph is kept, that is freed
  bool keeps_graph = false, makes_graph = false;
  bool looks_at_nodes = false;  // torch.autograd.detect_anomaly, or a hook on a node: each one's outputs are looked at
  const Remains* kept = nullptr;
};

// One replayed call's nodes.
struct Cut;

// Owner of a replayed call. Without the GIL.
struct Owner {
  // Launches the backward pass, having asked for memory with make_contributions(), or has it run by run_again(). False:
  // `error` is what PyTorch is to raise, at most `room` bytes with its end.
  bool (*run)(void* call, Cut* cut, const Pass& pass, char* error, std::size_t room) noexcept;
  void (*gone)(void* call) noexcept;  // its last node. Any thread
};

// What a saved tensor that is not the pair's own was at the call. Without `links` it is kept, and not checked.
// In the order of Border::saved.
struct Kept {
  Tensor tensor;        // shares its memory and version counter; null: one that nobody else has, or a freed node
  bool itself;          // the node has this very tensor, and follows what is assigned to it
  std::uint32_t count;  // of its version, as it is to be
  std::uint32_t link;
  const std::uint64_t *links, *tops;  // as in Saved
  const char* text;                   // outlives the cut, as these do
  std::uint32_t node;
  bool freed;
};

// All that is the same in each replay. Outlives the cuts.
struct Template {
  const Link* links;
  const Top* tops;
  const std::uint32_t *reach, *fed;
  const std::uint32_t* slots;    // of each result
  const std::uint8_t* views;     // as in Border
  const std::uint64_t* numbers;  // as in Border
  const std::uint64_t* casts;    // numbers of the nodes that made the casts which the call leaves
  static constexpr std::uint32_t kNoCast = ~0U;
  const std::uint32_t* edge_casts;  // per edge: the cast to which it leads
  const Leaf* leaves;               // ascending by edge
  const Keeper* keepers;            // as in Border
  const std::uint64_t* paths;
  std::uint32_t link_count, edge_count, top_count, slot_count, result_count, node_count, cast_count;
  std::uint32_t leaf_count, keeper_count;
  bool sealed, adds_up_first;    // as in Border
  bool saved_lasts;              // behind passes that free the graph, too: others run for what they add up first
  std::uint64_t first_sequence;  // of the observed call's thread as it began: numbers count from there
};

// Of the edges, and behind them of the casts.
template <class Form>
std::uint32_t count_contributions(const Form& form) noexcept {
  return form.edge_count + form.cast_count;
}

// Memory that a replay's graph fills, and that no result of the call has: storages of PyTorch's allocator.
struct Blocks;

// A cast that autocast keeps. Borrowed from the blocks.
struct KeptCast {
  Tensor tensor = nullptr;  // null: there was no memory for it
  std::uint64_t storage = 0;
  std::uint32_t version = 0;
};

// The tensors of one call that its nodes have to do with. Borrowed; none is undefined.
struct CallTensors {
  const Tensor* targets;  // per edge: the tensor whose gradient it adds to; null: one of Template::leaves
  const Tensor* results;
  const Tensor* casts;  // that autocast made and keeps; their nodes get the numbers that they have in eager
  const Kept* kept;
  std::size_t kept_count;
  const Blocks* blocks;
  std::size_t pieces, first_piece;  // of these: the cut keeps them until no pass needs them
  std::uint64_t first_sequence;     // of the thread, before the casts were made
};

// Nodes that passes inside of a call have run, and whether these have freed what the nodes kept.
struct InnerNodes;

// Why there is no border.
enum class Unfit : std::uint8_t { kNone, kNoMemory, kCustomNode, kUnknownSaved, kHooks, kSavedHooks, kUnknownCast };

// What find_border() is asked. Borrowed.
struct CallNodes {
  // That the call has just returned, and that require grad; behind `shown_count` of them what some of these are views
  // of, where nobody has that.
  const Tensor* results;
  std::size_t result_count, shown_count;
  const Tensor* casts;  // that autocast made in the call and keeps: their nodes are outside
  std::size_t cast_count;
  std::uint64_t first_sequence;  // the call's nodes have numbers from here on
  const Cut* again;              // of a replay, if this is the same call, made again. Null: it is not
  const InnerNodes* ran;         // by passes inside of the call; null: none, or see `freed`
  const std::uint8_t* freed;     // of a call that is known: as in Border. Null: none are
  std::size_t freed_count;
};

// A pass that a call of this thread is about to run (torch.autograd.grad). Borrowed; none is undefined.
struct InnerPass {
  const Tensor* roots;
  std::size_t root_count;
  const Tensor* inputs;  // for which gradients are asked
  std::size_t input_count;
  bool keeps_graph;
  std::uint64_t first_sequence;  // the call's nodes have numbers from here on
};

struct Bridge {
  std::uint32_t version;
  const char* torch;  // "2.11": the version whose headers it was built with

  // Where gradients of tensors go, as long as `held` is not released. `tensors`: none is undefined.
  void* (*hold_targets)(const Tensor* tensors, std::size_t count, Target* targets) noexcept;  // null: no memory
  void (*release_targets)(void* held) noexcept;

  // The border of a call of this thread. Null: `unfit`, and the name of the node in `name`, at most `room` bytes with
  // its end.
  Border* (*find_border)(const CallNodes& call, Unfit* unfit, char* name, std::size_t room) noexcept;
  void (*free_border)(Border* border) noexcept;
  // Does the calling thread run this node?
  bool (*at_node)(const void* node) noexcept;
  // From now on; the border may be freed before. False: no memory, and nobody watches.
  bool (*watch)(const Border* border, const Watcher* watcher, void* call) noexcept;

  // On the device's current stream: `addresses[i]` for a block of `bytes[i]`. The first `joined` ones are parts of one
  // allocation, which lives as long as any of them. Null: no memory.
  Blocks* (*make_blocks)(const std::uint64_t* bytes, std::size_t count, std::size_t joined, std::int32_t device,
                         std::uint64_t* addresses) noexcept;
  void (*free_blocks)(Blocks* blocks) noexcept;
  // Has autocast keep casts of `count` weights that a replay has made. The first blocks hold them, with the weights'
  // strides and autocast's own type. Where autocast has a cast already, or none such can be made, that is as for any
  // operator.
  void (*keep_casts)(Blocks* blocks, const Tensor* weights, std::size_t count, std::int32_t type,
                     KeptCast* casts) noexcept;
  // Makes nodes and gives them to the results. Null: no memory, and nothing was done.
  Cut* (*cut)(const Template* form, const CallTensors& tensors, const Owner* owner, void* call) noexcept;
  bool (*looks_for_anomalies)() noexcept;
  // How PyTorch works on this thread now, autocast included. Null: no memory.
  void* (*take_modes)() noexcept;
  void (*release_modes)(void* modes) noexcept;
  // From here on the thread works so, until leave_modes(). Null: no memory.
  void* (*enter_modes)(void* modes) noexcept;
  void (*leave_modes)(void* entered) noexcept;
  // For Owner::run(), where no graph stands in for the pass: `border` is that of the same call, which was made again,
  // on this thread. Its nodes compute the contributions, now and in later passes. Frees the border. False: `error`.
  bool (*run_again)(Cut* cut, Border* border, char* error, std::size_t room) noexcept;
  bool (*was_run_again)(const Cut* cut) noexcept;
  // For Owner::run(), which fails: the error that PyTorch raises is torch.OutOfMemoryError with this text.
  void (*fail_for_memory)(Cut* cut, const char* text) noexcept;
  // For Owner::run(): memory for the contributions that are kMade, of one part: `addresses[i]`; and then, once all are
  // there, the others. False: no memory, and PyTorch's own error is kept.
  bool (*make_contributions)(Cut* cut, const Contribution* contributions, std::uint32_t part,
                             std::uint64_t* addresses) noexcept;
  bool (*relate_contributions)(Cut* cut, const Contribution* contributions) noexcept;
  // For Owner::run(): no work that is launched from here on needs this piece of what the call saved.
  void (*give_back)(Cut* cut, std::uint32_t piece) noexcept;
  // For Owner::run(): memory on the device's current stream, by a number, until drop_room() or the end of the pass.
  // False: no memory, and PyTorch's own error is kept.
  bool (*make_room)(Cut* cut, std::uint32_t room, std::uint64_t bytes, std::int32_t device,
                    std::uint64_t* address) noexcept;
  void (*drop_room)(Cut* cut, std::uint32_t room) noexcept;

  // May the pass be observed as a part of the call? All nodes behind its roots are the call's, or leaves, so that it
  // frees nothing of others. They work on the device of the first root, and for no other pass just now. Notes in `ran`
  // the nodes that it will run.
  bool (*is_inner_pass)(const InnerPass& pass, InnerNodes* ran) noexcept;
  InnerNodes* (*make_inner_nodes)() noexcept;  // null: no memory
  void (*free_inner_nodes)(InnerNodes* nodes) noexcept;
  // Has the thread that runs the nodes of this tensor's device do some work, on behalf of the calling thread, which
  // waits for it without the GIL. False: it was not done.
  bool (*do_beside)(Tensor on, void (*work)(void* of) noexcept, void* of) noexcept;
  // Who waits for the pass that the calling thread works for; null: nobody.
  const void* (*who_waits)() noexcept;
};

using Entry = const Bridge* (*)(std::uint32_t version);

}  // namespace grape::python::bridge
