// What a thread knows about the kernels that it launches: the id under which the trace knows them, and where their
// parameters lie. Belongs to one thread, in its log's slot; nothing here locks.
#pragma once

#include <cstdint>

#include "shim/interpose/driver_api.h"
#include "shim/record/thread_log.h"

namespace grape::interpose {

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

// The function behind a handle; on first sight its name and layout are asked of the driver, and defined in the log.
// Null: out of memory. The result stays valid until the next call on this thread.
__attribute__((hot)) const Function* find_function(record::ThreadLog& log, CUfunction handle) noexcept;

// The function that this thread knows by that id; null: none, or code was unloaded since. Cold.
const Function* function_of_id(record::ThreadLog& log, std::uint32_t id) noexcept;

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

}  // namespace grape::interpose
