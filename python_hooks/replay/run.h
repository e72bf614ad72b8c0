// Replays one call: asks the guards, makes the outputs, launches, and does for Python what the call would do. With the
// GIL.
#pragma once

#include "python_hooks/replay/call.h"

namespace grape::python::replay {

enum class ReplayResult : std::uint8_t {
  kReplayed,  // `result` is the call's
  kStale,     // a guard did not hold: nothing was done, the proof is void
  kOther,     // another call than the one recorded (a value that the host reads, ...): eager must run
  kNotNow,    // nothing was done; may work next time (no memory)
  kFailed,    // the driver refused the launch: nothing was done, the program is of no use
};

// Do the random numbers that the call draws next decide as they did in the proof? False: `why`. Other threads may run
// within; then the call must be what it was. Comes before all that holds until the launch.
bool decides_the_same(Region& region, Proven& proven, const Call& call, refusal::Refusal& why) noexcept;

// The region's module guard holds. `why`: for all but kReplayed. Other threads may run within, and this one be ended.
ReplayResult run(Region& region, Proven& proven, const Call& call, Object*& result, refusal::Refusal& why);
// The same refusal at the place where the host reads a value.
refusal::Refusal at_read(refusal::Form<0> form, const Proven& proven);

// The program's memory for this call: arguments, arena, and `tensors` for the outputs, owned by the caller; fresh ones
// unless `tensors` holds them already, their addresses in the bindings. `facts`: the proof's. False: no memory.
bool place_call(Region& region, Proven& proven, const CallFacts& facts, const Call& call,
                std::vector<Object*>& tensors) noexcept;

// Makes tensors for the outputs: `tensors[i]` for made()[i], then memory for the casts that autocast is to keep, then
// one for all that only a backward pass needs, on `device`. The caller owns them. `addresses`: per Program::outputs.
// `pieces`: where each piece of what the backward pass needs begins. False: no memory, and no tensors.
bool make_outputs(const effects::CallOutcome& outcome, const std::vector<OutputRecipe>& recipes, std::int32_t device,
                  std::vector<Object*>& tensors, std::vector<std::uint64_t>& addresses,
                  std::vector<std::uint64_t>& pieces) noexcept;

void drop(std::vector<Object*>& tensors) noexcept;
// All but the first `count`.
void drop_behind(std::vector<Object*>& tensors, std::size_t count) noexcept;

// A tensor of so many bytes on a device and where they lie; a new reference, null without memory.
Object* new_bytes(std::uint64_t bytes, std::int32_t device_type, std::int32_t device, std::uint64_t& address) noexcept;

// Copies the host data of `whole`, the proven program, to device memory of its own, on the call's stream. Does nothing
// where the program has no host data. False: `refusal` says why.
bool place_host_data(Proven& proven, const program::Program& whole, const WorkPlace& place, refusal::Refusal& refusal);

// The arena of the program's bindings, for the region's calls at `place`. False: no memory.
bool reserve_arena(Region& region, Proven& proven, const WorkPlace& place) noexcept;

}  // namespace grape::python::replay
