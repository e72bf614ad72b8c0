#include "shim/interpose/memory_tracking.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>

#include <string_view>

#include "shim/driver/current_context.h"
#include "shim/driver/listeners.h"
#include "shim/driver/real_driver.h"
#include "shim/interpose/allocator.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"
#include "shim/memory/live_blocks.h"
#include "shim/observation/device_exclusion.h"

namespace grape::interpose {

GRAPE_HOT std::atomic<bool> g_tracks_memory{false};

namespace {

using memory::BlockSource;
using memory::LiveBlocks;

constexpr std::uint64_t kDevices = 64;
std::atomic<std::uint64_t> g_primary[kDevices];  // context by device

__attribute__((constructor(102))) void choose() {
  g_tracks_memory.store(config().mode == Mode::kReplay, std::memory_order_relaxed);
}

void add(BlockSource source, std::uint64_t address, std::uint64_t bytes) noexcept {
  LiveBlocks::instance().add(source, address, bytes, reinterpret_cast<std::uint64_t>(driver::current_context()));
}

void add_unsized(std::uint64_t address) noexcept {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  if (driver::real::call_cuMemGetAddressRange_v2(&base, &bytes, address) != CUDA_SUCCESS) {
    return LiveBlocks::instance().set_incomplete();
  }
  add(BlockSource::kDriver, base, bytes);
}

// Does a library of NVIDIA's that nobody else writes to ask for so many bytes of the host's? CUDA's runtime, which it
// has inside or calls, is passed over.
bool is_a_librarys(std::uint64_t bytes) noexcept {
  constexpr std::string_view kLibrary = "libcudnn", kRuntime = "libcudart", kOwn = "libgrape";
  if (bytes > program::HostWord::kMost) return false;
  void* frames[16];
  const int count = backtrace(frames, 16);
  for (int i = 0; i < count; ++i) {
    Dl_info info = {};
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) return false;
    const std::string_view path = info.dli_fname;
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (name.substr(0, kLibrary.size()) == kLibrary) return true;
    if (name.substr(0, kRuntime.size()) != kRuntime && name.substr(0, kOwn.size()) != kOwn) return false;
  }
  return false;
}

void context_gone(std::uint64_t context) noexcept {
  LiveBlocks::instance().remove_context(context);
  driver::tell_context_gone(reinterpret_cast<CUcontext>(context));
}

// A context that was retained before this library saw it: no telling what was in it.
void primary_gone(std::uint64_t device) noexcept {
  const std::uint64_t context = device < kDevices ? g_primary[device].exchange(0) : 0;
  if (context == 0) return LiveBlocks::instance().set_incomplete();
  context_gone(context);
}

bool still_active(std::uint64_t device) noexcept {
  unsigned flags = 0;
  int active = 0;
  return driver::real::call_cuDevicePrimaryCtxGetState(static_cast<CUdevice>(device), &flags, &active) ==
             CUDA_SUCCESS &&
         active != 0;
}

void succeeded(MemoryEffect effect, const std::uint64_t* words) noexcept {
  switch (effect) {
    case MemoryEffect::kAlloc:
      check_allocator();
      return add(BlockSource::kDriver, words[0], words[1]);
    case MemoryEffect::kAllocPitch:
      return add(BlockSource::kDriver, words[0], words[1] * words[3]);
    case MemoryEffect::kAllocUnsized:
      return add_unsized(words[0]);
    case MemoryEffect::kAllocHost:
      return add(is_a_librarys(words[1]) ? BlockSource::kLibrary : BlockSource::kHost, words[0], words[1]);
    case MemoryEffect::kRegisterHost:
      return add(BlockSource::kHost, words[0], words[1]);
    case MemoryEffect::kMap:  // belongs to the device, not to a context
      LiveBlocks::instance().add(BlockSource::kDriver, words[0], words[1]);
      return;
    case MemoryEffect::kUnknownMemory:
      return LiveBlocks::instance().set_incomplete();
    case MemoryEffect::kRetainPrimary:
      if (words[1] < kDevices) g_primary[words[1]].store(words[0]);
      return;
    case MemoryEffect::kReleasePrimary:
      if (!still_active(words[0])) primary_gone(words[0]);
      return;
    case MemoryEffect::kResetPrimary:
      return primary_gone(words[0]);
    case MemoryEffect::kDestroyContext:
      return context_gone(words[0]);
    case MemoryEffect::kMakeEvent:
      return add(BlockSource::kEvent, words[0], words[1]);
    case MemoryEffect::kMakeStream:
      return add(BlockSource::kStream, words[0], 0);
    default:
      return;
  }
}

}  // namespace

Forgotten before_memory_call(MemoryEffect effect, const std::uint64_t* words) noexcept {
  Forgotten forgotten;
  if (effect == MemoryEffect::kReleasePrimary || effect == MemoryEffect::kResetPrimary ||
      effect == MemoryEffect::kDestroyContext) {
    driver::tell_context_goes();
  }
  if (effect == MemoryEffect::kFree) {
    LiveBlocks::instance().remove(BlockSource::kDriver, words[0], &forgotten.device_bytes);
    LiveBlocks::instance().remove(BlockSource::kHost, words[0], &forgotten.host_bytes);
    if (forgotten.host_bytes == 0)
      LiveBlocks::instance().remove(BlockSource::kLibrary, words[0], &forgotten.host_bytes);
  } else if (effect == MemoryEffect::kUnmap) {
    LiveBlocks::instance().remove_range(BlockSource::kDriver, words[0], words[1]);
  } else if (effect == MemoryEffect::kDestroyEvent) {
    // One whose destruction fails is not known any more: nobody can tell what is left of it.
    LiveBlocks::instance().remove(BlockSource::kEvent, words[0]);
  } else if (effect == MemoryEffect::kDestroyStream) {
    LiveBlocks::instance().remove(BlockSource::kStream, words[0]);
    observation::stream_goes();
  }
  return forgotten;
}

void after_memory_call(MemoryEffect effect, const std::uint64_t* words, CUresult result, Forgotten forgotten) noexcept {
  const int saved_errno = errno;
  if (result == CUDA_SUCCESS) {
    succeeded(effect, words);
  } else if (effect == MemoryEffect::kFree) {
    if (forgotten.device_bytes != 0) add(BlockSource::kDriver, words[0], forgotten.device_bytes);
    if (forgotten.host_bytes != 0) add(BlockSource::kHost, words[0], forgotten.host_bytes);
  } else if (effect == MemoryEffect::kUnmap) {
    LiveBlocks::instance().set_incomplete();
  }
  errno = saved_errno;
}

bool make_room() noexcept {
  const int saved_errno = errno;
  const bool released = driver::give_memory_back();
  errno = saved_errno;
  return released;
}

std::uint64_t track_framework_block(std::uint64_t address, std::int64_t bytes) noexcept {
  LiveBlocks& blocks = LiveBlocks::instance();
  return bytes > 0 ? blocks.add(BlockSource::kFramework, address, static_cast<std::uint64_t>(bytes))
                   : blocks.remove(BlockSource::kFramework, address);
}

}  // namespace grape::interpose
