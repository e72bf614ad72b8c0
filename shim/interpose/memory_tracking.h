// Tells memory::LiveBlocks what driver calls do to memory, events and streams. Mode replay only.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver/driver_api.h"
#include "shim/driver/function_facts.h"

namespace grape::interpose {

using driver::MemoryEffect;

// Can the memory that we keep for proofs be the reason that such a call is refused?
constexpr bool takes_device_memory(MemoryEffect effect) noexcept {
  return effect == MemoryEffect::kAlloc || effect == MemoryEffect::kAllocPitch || effect == MemoryEffect::kCreate;
}

// Set once, before the first driver call: mode replay.
extern std::atomic<bool> g_tracks_memory;

// The blocks that were removed before a call, to be added again if the call fails.
struct Forgotten {
  std::uint64_t device_bytes = 0, host_bytes = 0;
};

// Before the real call: the address may be given anew while it runs. `words`: the arguments as numbers.
Forgotten before_memory_call(MemoryEffect effect, const std::uint64_t* words) noexcept;
// After it; out handles in `words` are what they point to.
void after_memory_call(MemoryEffect effect, const std::uint64_t* words, CUresult result, Forgotten forgotten) noexcept;

// A call was refused for want of device memory: gives back what is kept for proofs. True: the call may do better now.
bool make_room() noexcept;

// A block of the framework's allocator; bytes < 0: taken back. Returns its serial, 0: not known.
std::uint64_t track_framework_block(std::uint64_t address, std::int64_t bytes) noexcept;

}  // namespace grape::interpose
