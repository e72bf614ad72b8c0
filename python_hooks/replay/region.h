// What is known of the calls of one module, or one function: per signature, how far its proof has come. All of it is
// touched with the GIL only.
//
//   seen → observed (one program) → proven (a second observed call told the same program, and its graph, run in the
//   shadow, left the same bytes; a third one, where what differs is not known to be padding) → replayed. Whatever
//   breaks a guard starts the signature anew.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compressor/store/store.h"
#include "python_hooks/guards/module_guard.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/replay/ahead.h"
#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/look_limits.h"
#include "python_hooks/replay/payoff.h"
#include "python_hooks/replay/proven.h"
#include "python_hooks/report/reasons.h"
#include "python_hooks/report/report_text.h"
#include "python_hooks/report/times.h"
#include "python_hooks/walk/walk_memo.h"

namespace grape::python::replay {

// Memory for temporary blocks, shared by a region's programs on one stream: work on a stream never overlaps.
struct Arena {
  std::uint64_t stream = 0;  // CUstream
  std::int32_t device = 0;
  Object* tensor = nullptr;  // owned: bytes
  std::uint64_t address = 0, bytes = 0;
};

// Calls of a kind that cannot be replayed are looked at again ever more seldom. In between they run as always, what is
// inside may be replayed.
class Rest {
 public:
  bool rests() noexcept { return left_ != 0 && left_-- != 0; }  // asked at each call of that kind
  bool resting() const noexcept { return left_ != 0; }
  bool began() const noexcept { return next_ != 0; }
  void begin() noexcept {
    left_ = began() ? next_ : g_look_limits.first_rest;
    next_ = left_ < kLast ? left_ * 4 : kLast;
  }

 private:
  static constexpr std::uint32_t kLast = 1u << 18;  // calls
  std::uint32_t left_ = 0, next_ = 0;               // next_: 0: it never began
};

using Signatures = std::unordered_map<std::uint64_t, std::unique_ptr<Signature>>;  // by hash of the bytes

// Another state that the module was in, and what was proven in it: eval() after train(), a setting and back again.
struct ParkedState {
  std::unique_ptr<state::ModuleGuard> guard;
  CastWeights casts;
  Signatures signatures;
};

struct alignas(64) Region {
  ~Region();
  void drop_proofs() noexcept;
  void give_up() noexcept;  // keeps only the counts of what was proven

  // Used by calls that run as always, most of a training's: in one cache line.
  std::uint64_t calls = 0, fell_back = 0;
  std::size_t autograd_reason = Reasons::kNone;
  std::uint64_t autograd_again = 0;  // calls of that reason that `reasons` does not count
  // From calls whose results require grad: the same module may be called without autograd in between (training, and
  // evaluation now and then), and modules inside of it may be frozen.
  Rest autograd;
  bool function = false;           // it is a function that GRAPE_REGIONS names, and no module
  bool automatic = false;          // nobody named that function: it was found (outside_regions.h)
  bool given_up = false;           // its children are regions then
  bool no_gpu = false;             // given up because nothing of it is on a GPU
  bool on_gpu = false;             // some of it is
  bool inner = false;              // its first call was inside of a module that is not replayed as a whole
  bool busy = false;               // a thread is inside
  bool free_of_gradients = false;  // a call with gradients on had a result that requires none
  Times times;

  Object *root = nullptr, *self = nullptr;  // never followed: what the two that come next refer to, as long as it lives
  Object* weak_root = nullptr;              // owned weak reference to the module, to the function where `function`
  Object* weak_self = nullptr;              // the same, to the module that is the function's first argument; null: none
  std::string name;                         // "package.module:Class", or the function's
  refusal::Form<0> unfit;                   // why that function is to be no region any more; none: it may be one
  bool useful = false;                      // an observation of one of its calls was
  bool self_is_argument = false;            // that module, or the one that the region is of, is none of the guard's
  Reasons reasons;                          // why calls were not replayed
  std::unique_ptr<state::ModuleGuard> guard;
  CastWeights casts;                  // the guard's
  std::vector<std::uint64_t> shared;  // what a call's arguments share with the module; reused
  grape::replay::ExecPool execs;
  Signatures signatures;
  std::vector<ParkedState> parked;  // the latest first
  std::vector<Arena> arenas;        // one for each stream that its calls run on
  // Owned tensors that were replaced. The end of a tensor lets other threads run, so it comes when a call is done, and
  // not between guards and launch.
  std::vector<Object*> replaced;
  Ahead ahead;
  state::WalkMemo memo;  // of the argument that takes longest to walk
  Rest refusals;         // from calls with arguments that cannot be looked through
  Payoff payoff;

  // For the report.
  std::uint64_t observed = 0, replayed = 0;
  std::uint64_t validated = 0;        // replays that were checked, and found good
  std::uint32_t since_validated = 0;  // replays since the last check
  std::uint32_t disturbed = 0;        // checks in a row of no use, as other threads worked meanwhile
  std::uint64_t put_off = 0;          // ran as always because looking at them would have cost too much
  std::uint64_t first_calls = 0;      // ran as always because their signature had not come often enough
  std::uint32_t failures = 0;         // observations in a row that were of no use
  std::uint32_t guard_refusals = 0;   // calls in a row whose module could not be guarded
  std::uint32_t refused = 0;          // calls in a row with arguments that cannot be looked through
  std::uint32_t self_changes = 0;     // observed calls that changed the module
  std::uint32_t states = 0;           // calls in a row whose module, which is an argument, was a new one
  std::uint32_t barren = 0;           // calls in a row that were looked at, and by which nothing was gained
  std::uint64_t gained_at = 0;        // `observed` when something was gained last
  ReplayParts parts;                  // of the replay that is under way
  LatestParts latest_parts;
  StageCounts last_counts;  // of signatures that are not there any more
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

// Those that are gone included.
StageCounts count_stages(const Region& region) noexcept;

// Where programs lie that wait: for a second observed call, or to be replayed. Never destroyed.
store::Store& programs();

}  // namespace grape::python::replay
