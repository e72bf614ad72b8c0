// Backward passes of replayed calls. A call under autograd is replayed together with its backward pass: nodes of Grape's
// stand for those that eager would have made (bridge/bridge.h), and the first of them that autograd's engine runs
// launches the pass. With the GIL, unless said otherwise.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/refusal/refusal.h"
#include "compressor/store/kept_program.h"
#include "python_hooks/bridge/bridge.h"
#include "python_hooks/interpreter/cpython.h"
#include "shim/graphs/exec_pool.h"
#include "shim/memory/block_references.h"
#include "shim/replay/program_run.h"

namespace grape::python::replay {

struct Call;
struct Proven;
struct Region;

// A tensor of a call. Index: into the tensors of the walk of its arguments, of its module's guard, or into
// CallOutcome::made().
struct TensorSource {
  enum class Of : std::uint8_t { kArgument, kModule, kResult };
  Of of = Of::kArgument;
  std::uint32_t index = 0;
  bool operator==(const TensorSource& o) const noexcept { return of == o.of && index == o.index; }
};

// A tensor of a call that a node keeps for the backward pass. Its version is compared then.
struct KeptTensor {
  TensorSource tensor;
  std::uint32_t link = 0;
  const char* text = nullptr;  // in Border::texts
  bool operator==(const KeptTensor& o) const noexcept { return tensor == o.tensor && link == o.link; }
};

// Memory of a call that its backward pass reads: a block that the call left (Program::outputs), or an argument's extent.
struct SavedMemory {
  bool of_argument = false;
  std::uint32_t index = 0;
  bool operator==(const SavedMemory& o) const noexcept { return of_argument == o.of_argument && index == o.index; }
};

// The border of a call in terms that hold for each call of its signature (bridge::Border).
struct Border {
  std::deque<std::string> texts;
  std::vector<bridge::Link> links;
  std::vector<bridge::Top> tops;
  std::vector<std::uint32_t> reach, slots;
  std::vector<TensorSource> targets;   // per edge: the tensor to whose gradient it adds
  std::vector<std::uint32_t> results;  // that require grad: indices into CallOutcome::made()
  std::vector<KeptTensor> kept;
  std::vector<SavedMemory> saved;
  std::uint64_t saved_bytes = 0;  // of the blocks that only the backward pass needs
  bridge::Template form = {};

  bool same_as(const Border& other) const;
};

// What tells the backward passes of one signature apart, in canonical bytes: which gradients came, how they lie, which
// contributions are asked for, whether the graph is kept.
using PassKey = std::vector<std::uint8_t>;

// A contribution as a pass makes it; bridge::Contribution points into it.
struct MadeContribution {
  bridge::Contribution form;
  std::vector<std::int64_t> sizes, strides;
  static constexpr std::uint32_t kNoBlock = ~0U;
  std::uint32_t block = kNoBlock;  // kMade: of Program::outputs; kNoBlock: no kernel writes to it

  bool operator==(const MadeContribution& o) const noexcept;
};

// A backward pass that may stand in for eager's.
struct ProvenPass {
  ~ProvenPass();
  PassKey key;
  store::KeptProgram program;
  program::ArenaPlan plan;
  graphs::ExecPool execs;
  grape::replay::ProgramRun steps;
  program::Bindings bindings;
  memory::BlockReferences references;
  std::vector<MadeContribution> contributions;
  std::vector<CUstream> others;
  std::uint32_t module_epoch = 0;
  Object* arena = nullptr;  // owned tensor
  std::uint64_t arena_address = 0, arena_bytes = 0;
};

struct ObservedPass;  // proven.h

// All passes of a signature's calls. Shared with calls whose backward pass is to come.
struct Passes {
  ~Passes();
  std::vector<std::unique_ptr<ProvenPass>> proven;
  std::vector<std::unique_ptr<ObservedPass>> waiting;  // for another one with the same key
  refusal::Refusal refusal;                            // why the last one that was observed is not proven
  std::uint32_t observed = 0;
  std::uint32_t awaited = 0;  // observed calls whose nodes are alive
  bool unforeseen = false;    // one came that is not proven
  bool makes_graph = false;   // one was differentiated itself
};

// Appends what tells of one gradient. `memory`: the call's saved memory.
void write_gradient(const bridge::Gradient& gradient, PassKey& key);
// The whole key. `runs`: per edge. Two slots with one tensor are told from two tensors.
PassKey key_of(const bridge::Gradient* given, std::uint32_t slots, const std::uint8_t* runs, std::uint32_t edges,
               bool keeps_graph);

// After a launch: nodes for the results of the call. `tensors`: as in CallOutcome::repeat(), behind them the memory of
// what is saved, which goes. False: no memory.
bool attach_backward(Region& region, Proven& proven, const Call& call, std::vector<Object*>& tensors,
                     std::uint64_t random_offset) noexcept;

}  // namespace grape::python::replay
