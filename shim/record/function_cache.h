// A thread's cache of the kernels that it launches: the id in the trace, and where the parameters lie. It belongs to
// one thread, in the slot of its log; nothing here locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "shim/driver/driver_api.h"
#include "shim/record/thread_log.h"

namespace grape::record {

struct ParameterSlot {
  std::uint32_t offset;
  std::uint32_t bytes;
};

// Two cache lines side by side, which a launch finds in one go: most kernels' parameters lie in here as well.
struct alignas(128) Function {
  static constexpr std::uint32_t kNear = 10;
  CUfunction handle = nullptr;  // or a CUkernel; null: a free place
  std::uint32_t id = 0;         // 0: its definition was lost, to be tried again
  std::uint32_t key = 0;        // hash of the name
  std::uint32_t parameter_count = 0;
  std::uint32_t parameter_bytes = 0;  // of the packed buffer
  bool has_layout = false;
  char* name = nullptr;          // mangled; null: the driver does not tell
  ParameterSlot* far = nullptr;  // all parameters, where there are more than kNear
  ParameterSlot near[kNear] = {};

  const ParameterSlot* parameters() const noexcept { return far != nullptr ? far : near; }
};
static_assert(sizeof(Function) == 128, "two cache lines");

// Open addressing, at most half full. In the log's slot.
struct FunctionCache {
  Function* places = nullptr;
  std::uint32_t room = 0;  // a power of two
  std::uint32_t used = 0;
  std::uint32_t epoch = 0;
  std::uint32_t last_id = 0;

  Function& place_of(CUfunction handle) const noexcept {
    const std::uint64_t hash = (reinterpret_cast<std::uint64_t>(handle) * 0x9E3779B97F4A7C15ull) >> 32;
    std::uint32_t i = static_cast<std::uint32_t>(hash) & (room - 1);
    while (places[i].handle != nullptr && places[i].handle != handle) i = (i + 1) & (room - 1);
    return places[i];
  }
};

// The function behind a handle; on first sight its name and layout are asked of the driver, and defined in the log.
// Null: out of memory. The result stays valid until the next call on this thread. errno is kept.
const Function* learn_function(ThreadLog& log, CUfunction handle) noexcept;
inline const Function* find_function(ThreadLog& log, CUfunction handle) noexcept {
  const auto* cache = static_cast<const FunctionCache*>(log.functions.data);
  if (__builtin_expect(cache != nullptr && cache->epoch == g_module_epoch.load(std::memory_order_acquire), 1)) {
    const Function& place = cache->place_of(handle);
    if (__builtin_expect(place.handle == handle && place.id != 0, 1)) return &place;
  }
  return learn_function(log, handle);
}

// The function that this thread knows by that id; null: none, or code was unloaded since. Cold.
const Function* function_of_id(ThreadLog& log, std::uint32_t id) noexcept;

inline void copy_parameter(std::uint8_t* to, const void* from, std::uint32_t bytes) noexcept {
  if (bytes == 8) {
    std::memcpy(to, from, 8);
  } else if (bytes == 4) {
    std::memcpy(to, from, 4);
  } else {
    std::memcpy(to, from, bytes);
  }
}

// By the kernel's layout; returns where the last parameter ends. The gaps between parameters are nobody's, and zeros;
// behind the last one nothing is written.
inline std::uint32_t copy_parameters(std::uint8_t* to, const Function& function, void* const* parameters) noexcept {
  std::uint32_t end = 0;
  const ParameterSlot* slot = function.parameters();
  for (const ParameterSlot* last = slot + function.parameter_count; slot != last; ++slot, ++parameters) {
    if (__builtin_expect(slot->offset != end, 0) && slot->offset > end) {
      if (slot->offset - end == 4) {
        std::memset(to + end, 0, 4);
      } else {
        std::memset(to + end, 0, slot->offset - end);
      }
    }
    if (__builtin_expect(*parameters != nullptr, 1)) {
      copy_parameter(to + slot->offset, *parameters, slot->bytes);
    } else {
      std::memset(to + slot->offset, 0, slot->bytes);
    }
    end = std::max(end, slot->offset + slot->bytes);
  }
  return end;
}

// Parameters as one packed buffer.
struct PackedParameters {
  const Function* function = nullptr;
  void* const* parameters = nullptr;  // by layout
  const void* packed = nullptr;       // or as they are
  std::uint32_t bytes = 0;
  std::uint16_t flags = 0;  // trace::EventFlags

  // Writes `bytes` bytes, and zeros up to a whole word.
  __attribute__((hot)) void copy_to(std::uint8_t* destination) const noexcept;
};

// How the parameters of a launch are to be copied. `extra`: as cuLaunchKernel has it.
__attribute__((hot)) PackedParameters packed_parameters(const Function* function, void* const* parameters,
                                                        void* const* extra) noexcept;

}  // namespace grape::record
