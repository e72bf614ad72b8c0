// What a call does to memory, events and streams, for replay::LiveBlocks: decided at compile time from the row's name.
// Mode replay only.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver/driver_api.h"
#include "shim/driver/same_text.h"

namespace grape::interpose {

enum class MemoryEffect : std::uint8_t {
  kNone,
  kAlloc,           // (address:o, bytes)
  kAllocPitch,      // (address:o, pitch:o, width, height)
  kAllocUnsized,    // (address:o): the driver knows its size
  kAllocHost,       // (address:o, bytes): the host writes to it as well
  kRegisterHost,    // (address, bytes)
  kCreate,          // (handle:o, bytes): memory without an address yet
  kMap,             // (address, bytes)
  kFree,            // (address)
  kUnmap,           // (address, bytes)
  kUnknownMemory,   // memory comes to be that is not followed
  kRetainPrimary,   // (context:o, device)
  kReleasePrimary,  // (device): gone if nobody else holds it
  kResetPrimary,    // (device)
  kDestroyContext,  // (context)
  kMakeEvent,       // (event:o, flags)
  kDestroyEvent,    // (event)
  kMakeStream,      // (stream:o, ...)
  kDestroyStream,   // (stream)
};

constexpr MemoryEffect memory_effect(const char* base) noexcept {
  constexpr struct {
    const char* base;
    MemoryEffect effect;
  } kEffects[] = {
      {"cuEventCreate", MemoryEffect::kMakeEvent},
      {"cuEventDestroy", MemoryEffect::kDestroyEvent},
      {"cuStreamCreate", MemoryEffect::kMakeStream},
      {"cuStreamCreateWithPriority", MemoryEffect::kMakeStream},
      {"cuGreenCtxStreamCreate", MemoryEffect::kMakeStream},
      {"cuStreamDestroy", MemoryEffect::kDestroyStream},
      {"cuMemAlloc", MemoryEffect::kAlloc},
      {"cuMemAllocAsync", MemoryEffect::kAlloc},
      {"cuMemAllocFromPoolAsync", MemoryEffect::kAlloc},
      {"cuMemAllocPitch", MemoryEffect::kAllocPitch},
      {"cuIpcOpenMemHandle", MemoryEffect::kAllocUnsized},
      {"cuMemPoolImportPointer", MemoryEffect::kAllocUnsized},
      {"cuExternalMemoryGetMappedBuffer", MemoryEffect::kAllocUnsized},
      {"cuMemAllocHost", MemoryEffect::kAllocHost},
      {"cuMemHostAlloc", MemoryEffect::kAllocHost},
      {"cuMemAllocManaged", MemoryEffect::kAllocHost},
      {"cuMemHostRegister", MemoryEffect::kRegisterHost},
      {"cuMemCreate", MemoryEffect::kCreate},
      {"cuMemMap", MemoryEffect::kMap},
      {"cuMemFree", MemoryEffect::kFree},
      {"cuMemFreeAsync", MemoryEffect::kFree},
      {"cuMemFreeHost", MemoryEffect::kFree},
      {"cuMemHostUnregister", MemoryEffect::kFree},
      {"cuIpcCloseMemHandle", MemoryEffect::kFree},
      {"cuMemUnmap", MemoryEffect::kUnmap},
      {"cuGraphAddMemAllocNode", MemoryEffect::kUnknownMemory},
      {"cuDevicePrimaryCtxRetain", MemoryEffect::kRetainPrimary},
      {"cuDevicePrimaryCtxRelease", MemoryEffect::kReleasePrimary},
      {"cuDevicePrimaryCtxReset", MemoryEffect::kResetPrimary},
      {"cuCtxDestroy", MemoryEffect::kDestroyContext},
  };
  for (const auto& entry : kEffects) {
    if (driver::same_text(entry.base, base)) return entry.effect;
  }
  return MemoryEffect::kNone;
}

// May a call be refused that would not have been without the memory that we keep for proofs?
constexpr bool takes_device_memory(MemoryEffect effect) noexcept {
  return effect == MemoryEffect::kAlloc || effect == MemoryEffect::kAllocPitch || effect == MemoryEffect::kCreate;
}

// Set once, before the first driver call: mode replay.
extern std::atomic<bool> g_tracks_memory;

// What was forgotten before a call, to be remembered again if it fails.
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
