// decide() says whether a region's call is replayed, observed or run as always; act() does it. With the GIL.
#pragma once

#include "compressor/refusal/refusal.h"
#include "python_hooks/replay/call.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::control {

struct Decision {
  enum class Action : std::uint8_t {
    kRun,       // as always; modules inside are no regions
    kPassOn,    // as always; modules inside are regions
    kGivenUp,   // the same for all further calls of the region
    kFallBack,  // as kRun, though the region's calls are replayed, or would be: an error with GRAPE_STRICT
    kRaise,     // an error, with GRAPE_STRICT only
    kReplay,
    kObserve,
  };

  Action action;
  refusal::Refusal refusal;                // why the call is not replayed; none where that is nobody's loss
  replay::Signature* signature = nullptr;  // of kReplay and kObserve; of kRun, where it is known
};

// Where the time before a replay went: when the call began, and how long its module's guard took. In seconds.
struct Lookup {
  double began = 0, guards = 0;
};

// Calls in a row with arguments that are refused: then modules inside are regions.
constexpr std::uint32_t kMostRefusals = 3;

// Looks the call up. `walk`: an empty one; it lives as long as the decision does. Runs nothing. Throws std::bad_alloc.
Decision decide(replay::Region& region, replay::Call& call, walk::Walk& walk, Lookup& lookup);
// The same where the signature is not proven, or is not any more.
Decision decide_unproven(replay::Region& region, replay::Signature& signature, const replay::Call& call);

// True: `result` is what the call is to return; null with an exception. False: nothing ran, the caller runs the call,
// so that modules inside of it are regions (kPassOn, kGivenUp).
bool act(replay::Region& region, replay::Call& call, const Decision& decision, const Lookup& lookup, Object*& result);

// GRAPE_STRICT=1: what would run as always, though it was proven or was given a chance to be, is an error instead. Sets
// a RuntimeError that says why `region` is not replayed, with the place and what to change. Returns null.
Object* raise_not_replayed(const replay::Region& region, const refusal::Refusal& refusal) noexcept;

// As always, its time counted.
Object* run_eagerly(replay::Region& region, const replay::Call& call);

// May the region's call be looked up, or looked at, for `cost` seconds? Functions that nobody named leave half of the
// budget to modules.
bool affords_look(const replay::Region& region, double cost, double now) noexcept;

}  // namespace grape::python::control
