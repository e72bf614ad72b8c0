// Backward passes of replayed calls. A call under autograd is replayed together with its backward pass: nodes of
// Grape's stand for those that eager would have made (bridge/bridge.h), and the first of them that autograd's engine
// runs launches the pass. With the GIL, unless said otherwise.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/refusal/refusal.h"
#include "compressor/store/kept_program.h"
#include "python_hooks/bridge/bridge.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/replay/arena.h"
#include "python_hooks/replay/budget.h"
#include "python_hooks/replay/held_argument.h"
#include "python_hooks/replay/work_place.h"
#include "python_hooks/torch/torch_api.h"
#include "shim/graphs/exec_pool.h"
#include "shim/memory/block_references.h"
#include "shim/replay/program_run.h"

namespace grape::python::replay {

struct Call;
class LeftBlocks;
struct Proven;
struct Region;

// A tensor of a call. Index: into the tensors of the walk of its arguments, of its module's guard, or into
// CallOutcome::made(), or of the casts that it leaves, in the order of the recipes, or of Border::leaves.
struct TensorSource {
  enum class Of : std::uint8_t { kArgument, kModule, kResult, kCast, kLeaf };
  Of of = Of::kArgument;
  std::uint32_t index = 0;
  bool operator==(const TensorSource& o) const noexcept { return of == o.of && index == o.index; }
};

// A tensor of a call that a node keeps for the backward pass. Its version is compared then.
struct KeptTensor {
  TensorSource tensor;
  bool known = true;        // false: nobody else has the tensor, or there is none
  bool freed = false;       // bridge::Saved
  std::uint32_t node = 0;   // the same
  bool itself = false;      // bridge::Kept
  std::uint32_t saved = 0;  // index into Border::saved_tensors
  std::uint32_t link = 0;
  std::vector<std::uint64_t> links, tops;  // as in bridge::Saved
  const char* text = nullptr;              // in Border::texts
  bool operator==(const KeptTensor& o) const noexcept {
    return tensor == o.tensor && known == o.known && freed == o.freed && node == o.node && itself == o.itself &&
           saved == o.saved && link == o.link && links == o.links && tops == o.tops;
  }
};

// Memory of a call that its backward pass reads: a block that the call left (Program::outputs), an argument's extent,
// or a cast that autocast keeps (as in TensorSource).
struct SavedMemory {
  enum class Of : std::uint8_t { kBlock, kArgument, kCast };
  Of of = Of::kBlock;
  std::uint32_t index = 0;
  bool operator==(const SavedMemory& o) const noexcept { return of == o.of && index == o.index; }
};

// Where in a walk of a call's result one of its tensors is.
struct ResultPlace {
  std::uint32_t tensor = 0;
  bool base = false;  // what that one is a view of
};

// The border of a call in terms that hold for each call of its signature (bridge::Border).
struct Border {
  std::deque<std::string> texts;
  std::vector<bridge::Link> links;
  std::vector<bridge::Top> tops;
  std::vector<std::uint32_t> reach, fed, slots;
  std::vector<std::uint8_t> views;
  std::vector<std::uint64_t> numbers, casts;  // of the inner nodes; of those that made the casts which the call leaves
  std::vector<std::uint8_t> freed;            // of the inner nodes (bridge::Border)
  std::vector<TensorSource> targets;          // per edge: the tensor to whose gradient it adds
  std::vector<bridge::Leaf> leaves;           // of them those that nobody has any more
  std::deque<std::vector<std::int64_t>> leaf_sizes;
  std::vector<std::uint32_t> edge_casts;  // of them those that are casts (bridge::Template)
  std::vector<std::uint32_t> results;     // that require grad: indices into CallOutcome::made()
  std::vector<KeptTensor> kept;
  std::vector<bridge::Keeper> keepers;
  std::vector<std::uint64_t> paths;  // of these (bridge::Template)
  std::vector<SavedMemory> saved;
  std::vector<TensorSource> held;         // tensors whose memory `saved` is, and which nobody else may keep
  std::vector<std::uint32_t> held_saved;  // of each: index into `saved`
  // What tells whether the call, made again, is the same: of each tensor that a node keeps which of `saved` it lies in
  // (kNone: in none), and how many bytes that memory has. Calls of one signature may have arguments in larger memory.
  static constexpr std::uint32_t kNone = ~0U;
  static constexpr std::uint64_t kOfTheCall = ~std::uint64_t{0};  // an argument's
  std::vector<std::pair<std::uint32_t, std::uint64_t>> saved_tensors;
  std::vector<std::uint64_t> host_values;  // of each tensor that a node keeps: bridge::Saved::value; 0: it varies, too
  std::vector<std::uint64_t> fixed_storages;  // of each: where the module's or a global's memory lies; 0: neither's
  std::uint64_t constants = 0;                // bridge::Border::constants
  std::vector<ResultPlace> result_places;     // of `results`
  std::vector<program::Extent> written;       // memory of the module's that the call writes to
  bool depends_on_written = false;            // on what was there before: a call that is made again finds that
  std::uint64_t saved_bytes = 0;              // of the blocks that only the backward pass needs
  bridge::Template form = {};

  bool same_as(const Border& other) const;
};

// May a backward pass over the call come, other than one that fails? Null: nothing of the call requires grad.
inline bool awaits_backward(const Border* border) noexcept { return border != nullptr && !border->form.sealed; }

// What tells the backward passes of one signature apart, in canonical bytes: how PyTorch works, which gradients came,
// how they lie, which contributions are asked for, whether the graph is kept.
using PassKey = std::vector<std::uint8_t>;

// A contribution as a pass makes it; bridge::Contribution points into it.
struct MadeContribution {
  bridge::Contribution form;
  std::vector<std::int64_t> sizes, strides, base_sizes, base_strides;
  static constexpr std::uint32_t kNoBlock = ~0U;
  std::uint32_t block = kNoBlock;  // kMade: of Program::outputs; kNoBlock: no kernel writes to it

  bool operator==(const MadeContribution& o) const noexcept;
};

// A backward pass that may stand in for eager's.
struct ProvenPass {
  PassKey key;
  store::KeptProgram program;
  program::ArenaPlan plan;
  graphs::ExecPool execs;
  grape::replay::ProgramRun steps;
  program::Bindings bindings;
  memory::BlockReferences references;
  std::vector<MadeContribution> contributions;
  std::vector<bridge::Contribution> forms;  // of these
  std::vector<CUstream> others;
  std::vector<program::HostWord> host_words;  // as in CallFacts
  std::uint32_t module_epoch = 0;
  std::uint32_t block_epoch = 0;  // as Proven::block_epoch
  ArenaUse arena;
  program::Parts parts;
  // What the call saved and the pass frees, if temps lie there or it goes before the end: of each its index into
  // Border::saved, its place, and how many bytes it has.
  struct Lent {
    std::uint32_t saved = 0;
    std::uint64_t at = 0, bytes = 0;
  };
  std::vector<Lent> lent;
};

struct ObservedPass;  // proven.h

// All passes of a signature's calls. Shared with calls whose backward pass is to come.
struct Passes {
  ~Passes();
  // May calls be replayed? Passes of each kind that comes are proven.
  bool ready() const noexcept { return !makes_graph && !proven.empty() && streak >= proven.size(); }
  std::vector<std::unique_ptr<ProvenPass>> proven;
  std::vector<std::unique_ptr<ObservedPass>> waiting;  // for another one with the same key
  refusal::Refusal refusal;                            // why the last one that was observed is not proven
  std::uint32_t observed = 0;
  std::uint32_t unused = 0;    // observed calls in a row whose nodes went without a pass
  std::uint32_t failures = 0;  // observed in a row that no later pass can prove
  std::uint32_t awaited = 0;   // observed calls whose nodes are alive
  std::uint32_t streak = 0;    // passes in a row that are proven
  CallTimes times;             // what they take: observed, and as replays
  bool inner = false;          // of calls inside of a module that is not replayed as a whole
  bool makes_graph = false;    // one was differentiated itself
  bool saved_lasts = false;    // one left what the call saved to others: no temps lie there
  refusal::Refusal differs;    // how the pass of a checked call was another one than a replay's (GRAPE_VALIDATE)
};

// The whole key. `runs`: per contribution. Two slots with one tensor are told from two tensors.
PassKey key_of(const torch::DispatchState& dispatch, const bridge::Gradient* given, std::uint32_t slots,
               const std::uint8_t* runs, std::uint32_t contributions, bool keeps_graph);

// A replayed call whose backward pass may come.
struct ReplayedCall {
  ~ReplayedCall();  // with the GIL
  std::shared_ptr<Border> border;
  std::shared_ptr<Passes> passes;
  WorkPlace work;
  std::vector<program::Extent> saved;  // as in Border::saved; sizes of arguments' memory alone
  std::uint64_t seed = 0, offset = 0;
  Object* written_before = nullptr;  // owned tensor: what was in Border::written, one after the other; null: of no use
  Object* host_random = nullptr;     // owned: host_draws::generator_state() at the call; null: it draws nothing there
  // To make the call again: as it came, all owned but the module, which is held weakly.
  Vectorcall eager = nullptr;
  Object *function = nullptr, *names = nullptr, *weak_root = nullptr;
  std::vector<HeldArgument> arguments;
  std::size_t count = 0;  // with the vectorcall's flag
  void* modes = nullptr;  // the bridge's
  ReplayedCall* next = nullptr;
};

// Takes what it needs to make the call again. False: no memory.
bool remember(ReplayedCall& replayed, const Region& region, const Call& call);
// The call will not be made again: its arguments end when they would without Grape.
void forget(ReplayedCall& replayed) noexcept;
// Makes the call again as it was, and has its own nodes compute the contributions. Null: they have. Else why not, or ""
// where the bridge keeps the error.
const char* make_again(ReplayedCall& call, const bridge::Remains* kept, bridge::Cut* cut, char* error,
                       std::size_t room);

// May calls on this thread be replayed under autograd?
bool may_train(const torch::DispatchState& dispatch) noexcept;

// May what they return require grad? Without gradients, a call may switch them on for itself.
bool may_return_gradients(const torch::DispatchState& dispatch) noexcept;

// Is this thread in a call that is made again? What is called in it is no region.
bool makes_again() noexcept;

// After a launch: nodes for the results of the call. `tensors`: as in CallOutcome::repeat(). `left`: its casts are
// kept. `first_node`: autograd's number before they were made. False: no memory. Throws std::bad_alloc.
bool attach_backward(const Region& region, const Proven& proven, const Call& call, const std::vector<Object*>& tensors,
                     const LeftBlocks& left, std::uint64_t first_node);

}  // namespace grape::python::replay
