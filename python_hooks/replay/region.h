// What is known of the calls of one module, or one function: per signature, how far its proof has come. All of it is
// touched with the GIL only.
//
//   seen → observed (one program) → proven (a second observed call told the same program, and its graph, run in the
//   shadow, left the same bytes; a third one, where what differs is not known to be padding) → replayed. Whatever
//   breaks a guard starts the signature anew.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compressor/cache/cache.h"
#include "compressor/families/family.h"
#include "compressor/store/store.h"
#include "python_hooks/guards/module_guard.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/replay/budget.h"
#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/look_limits.h"
#include "python_hooks/replay/prefetch.h"
#include "python_hooks/replay/proven.h"
#include "python_hooks/report/reasons.h"
#include "python_hooks/report/statistics.h"
#include "python_hooks/torch/optimizer_functions.h"
#include "python_hooks/walk/walk.h"
#include "python_hooks/walk/walk_memo.h"

namespace grape::python::replay {

using Signatures = std::unordered_map<std::uint64_t, std::unique_ptr<Signature>>;  // by hash of the bytes

// What was proven in one state of the module (or function), and that state.
struct ProvenState {
  std::unique_ptr<guards::ModuleGuard> guard;  // null: not known yet
  // Casts of which its calls were seen to leave or use (casts.h). Borrowed: they are the guard's.
  std::vector<Object*> cast_weights;
  Signatures signatures;
  std::map<cache::Digest, std::shared_ptr<families::Family>> families;  // by what is no number in a signature

  bool has_proofs() const;
  void count(report::StageCounts& counts) const noexcept;
};

// What the proofs of a region stand on: the state that its module is in now, and the latest ones that it was in before
// (eval() after train(), a setting and back again).
struct Evidence : ProvenState {
  std::vector<ProvenState> parked;    // the latest first
  std::uint32_t unknown_states = 0;   // changes in a row to a state that was not among these
  std::vector<std::uint64_t> shared;  // what a call's arguments share with the module; reused
  bool self_is_argument = false;  // the module, or the one that is a function's first argument, is none of the guard's

  // The guard does not hold. Parks what was proven, and takes the state that holds now. False: none is known, and there
  // is no guard. If states never come again, those that lasted are parked.
  bool change_state();
  // Of all states.
  void count(report::StageCounts& counts) const noexcept;
};

// What the calls of a region are calls of. Each difference between kinds is a function here. Compared, and not looked
// up, since calls that run as always ask.
enum class RegionKind : std::uint8_t {
  kModule,
  kFunction,       // GRAPE_REGIONS names it
  kFoundFunction,  // nobody named it (discovery/outside_regions.h)
  kOptimizer,      // nor this one, which is a part of an optimizer's step (torch/optimizer_functions.h)
};

struct alignas(64) Region {
  ~Region();
  void drop_proofs() noexcept;
  void give_up() noexcept;  // keeps only the counts of what was proven
  // Its root is a function and no module: what it works on may be in globals, so only observed calls tell whether it
  // works on a GPU.
  bool of_function() const noexcept { return kind != RegionKind::kModule; }
  // Nobody asked for it: looking at it has a budget, and it is given up as soon as that gains nothing.
  bool is_found() const noexcept { return kind == RegionKind::kFoundFunction || kind == RegionKind::kOptimizer; }
  // Launches, copies and memsets below which no replay pays. An optimizer's kernels take lists of tensors: one launch
  // costs the CPU as much as dozens of others, and the time of its calls alone tells.
  std::size_t least_work() const noexcept { return kind == RegionKind::kFoundFunction ? g_look_limits.least_work : 0; }

  // Used by calls that run as always, most of a training's: in one cache line.
  std::uint64_t calls = 0, fell_back = 0;
  std::size_t autograd_reason = report::Reasons::kNone;
  std::uint64_t autograd_again = 0;  // calls of that reason that `reasons` does not count
  // From calls whose results require grad: the same module may be called without autograd in between (training, and
  // evaluation now and then), and modules inside of it may be frozen.
  Rest autograd;
  RegionKind kind = RegionKind::kModule;
  bool given_up = false;           // its children are regions then
  bool no_gpu = false;             // given up because nothing of it is on a GPU
  bool on_gpu = false;             // some of it is
  bool inner = false;              // its first call was inside of a module that is not replayed as a whole
  bool busy = false;               // a thread is inside
  bool free_of_gradients = false;  // a call with gradients on had a result that requires none
  // Inside of others, under autograd: is what a call launches enough to pay for nodes and a pass of its own?
  enum class Work : std::uint8_t { kNotCounted, kLittle, kEnough };
  Work work = Work::kNotCounted;
  report::Times times;

  Object *root = nullptr, *self = nullptr;  // never followed: what the two that come next refer to, as long as it lives
  Object* weak_root = nullptr;              // owned weak reference to the module, or to the function
  Object* weak_self = nullptr;              // the same, to the module that is the function's first argument; null: none
  std::string name;                         // "package.module:Class", or the function's
  torch::KnownOptimizer optimizer = torch::KnownOptimizer::kNone;  // what is known of that function
  refusal::Form<0> unfit;   // why that function is to be no region any more; none: it may be one
  report::Reasons reasons;  // why calls were not replayed

  Evidence evidence;
  Budget budget;
  report::Statistics statistics;

  // Of its replays.
  graphs::ExecPool execs;
  ArenaUse arena;
  // Owned tensors that were replaced. The end of a tensor lets other threads run, so it comes when a call is done, and
  // not between guards and launch.
  std::vector<Object*> replaced;
  Prefetch prefetch;
  walk::WalkMemo memo;        // of the argument that takes longest to walk
  report::ReplayParts parts;  // of the replay that is under way
  report::LatestParts latest_parts;
};

// A thread is inside of the region's call: those of others run as always.
class Busy {
 public:
  explicit Busy(Region& region) noexcept : region_(region) { region_.busy = true; }
  ~Busy() noexcept { region_.busy = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Region& region_;
};

// Where programs lie that wait: for a second observed call, or to be replayed. Never destroyed.
store::Store& programs();

}  // namespace grape::python::replay
