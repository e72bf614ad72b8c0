// The wrapper of a row, with exactly the driver function's signature. It calls the real function once, records the
// call, and returns the result and errno unchanged.
#pragma once

#include <errno.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "python_hooks/discovery/outside.h"
#include "python_hooks/install/install.h"
#include "shim/driver/code_content.h"
#include "shim/driver/wanted_address.h"
#include "shim/interpose/memory_tracking.h"
#include "shim/interpose/recording.h"
#include "shim/interpose/rows.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/observation/device_exclusion.h"
#include "shim/observation/region_sink.h"
#include "shim/virtual_execs/doors.h"

namespace grape::interpose {

// The arguments of the launch functions, in one shape.
inline Launch launch_of(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                        void** extra) noexcept {
  return {function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, parameters, extra};
}

inline Launch launch_of(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                        void** parameters) noexcept {
  Launch launch =
      launch_of(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, nullptr);
  launch.flags = trace::kFlagCooperative;
  return launch;
}

inline Launch launch_of(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) noexcept {
  if (config == nullptr) return launch_of(function, 0, 0, 0, 0, 0, 0, 0, nullptr, parameters, extra);
  return {function,
          {config->gridDimX, config->gridDimY, config->gridDimZ},
          {config->blockDimX, config->blockDimY, config->blockDimZ},
          config->sharedMemBytes,
          config->hStream,
          parameters,
          extra,
          config->attrs,
          config->numAttrs};
}

inline Launch launch_of(const CUDA_LAUNCH_PARAMS& one) noexcept {
  return launch_of(one.function, one.gridDimX, one.gridDimY, one.gridDimZ, one.blockDimX, one.blockDimY, one.blockDimZ,
                   one.sharedMemBytes, one.hStream, one.kernelParams);
}

constexpr bool is_launch(Action action) noexcept {
  return action == Action::kLaunchKernel || action == Action::kLaunchKernelEx ||
         action == Action::kLaunchCooperativeKernel;
}

// Does the capture end with this result? A capture that went wrong ends as well.
constexpr bool ends_capture(CUresult result) noexcept {
  return result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
         result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

// Calls that have the device compute or copy, and make nothing that another thread could see before they return.
constexpr bool runs_on_device(trace::ApiClass api_class) noexcept {
  switch (api_class) {
    case trace::ApiClass::kLaunch:
    case trace::ApiClass::kCopy:
    case trace::ApiClass::kCopyToDevice:
    case trace::ApiClass::kMemset:
    case trace::ApiClass::kGraphLaunch:
      return true;
    default:
      return false;
  }
}

// The same, and events.
constexpr bool submits_work(trace::ApiClass api_class) noexcept {
  return runs_on_device(api_class) || api_class == trace::ApiClass::kEventRecord ||
         api_class == trace::ApiClass::kEventWait;
}

// Work that reads or writes memory of the device. Not what is put on streams with PyTorch's locks held, as events are.
constexpr bool uses_memory(trace::ApiClass api_class) noexcept {
  return runs_on_device(api_class) || api_class == trace::ApiClass::kCopyToHost ||
         api_class == trace::ApiClass::kMemoryOp;
}

// Calls that other threads' work on the same stream can come before or behind.
constexpr bool is_ordered_work(trace::ApiClass api_class) noexcept {
  return submits_work(api_class) || uses_memory(api_class) || api_class == trace::ApiClass::kHostFunction ||
         api_class == trace::ApiClass::kFree;
}

// What is recorded outside of ranges too: without it the work on a stream, or in a graph, is not understood.
constexpr bool outlasts_ranges(trace::ApiClass api_class) noexcept {
  return api_class == trace::ApiClass::kStream || api_class == trace::ApiClass::kGraph;
}

// Work that may be put on a stream under capture.
constexpr bool can_be_captured(trace::ApiClass api_class) noexcept {
  return has_position(api_class) || api_class == trace::ApiClass::kEventRecord ||
         api_class == trace::ApiClass::kEventWait || api_class == trace::ApiClass::kFree;
}

template <class Row, class Type = typename Row::Type>
struct Wrapper;

template <class Row, class... A>
struct Wrapper<Row, CUresult (*)(A...)> {
  using Real = CUresult (*)(A...);
  using Captured = Arguments<Row, A...>;
  static constexpr auto kEach = std::index_sequence_for<A...>{};

  static CUresult call(A... arguments) {
    auto real = reinterpret_cast<Real>(real_function(Row::kIndex));
    // A process without a driver that calls its functions all the same has got ours in place of an unresolved weak
    // symbol: what NVIDIA's stub library answers.
    if (__builtin_expect(real == nullptr, 0)) return CUDA_ERROR_STUB_LIBRARY;
    if (!lifecycle::active()) return call_door(real, arguments...);
    if constexpr (Row::kIndex == kRow_cuInit) lifecycle::begin();
    if constexpr (Row::kAction == Action::kGetProcAddress) {
      return get_proc_address(real, arguments...);
    } else {
      // The calls that begin and end a range are its first and its last.
      if constexpr (Row::kAction == Action::kRangeBegin) record::begin_range();
      // Before the handles can be given anew.
      if constexpr (Row::kAction == Action::kUnmakeCode) record::g_module_epoch.fetch_add(1, std::memory_order_acq_rel);
      const CUresult result = followed(real, arguments...);
      if constexpr (Row::kAction == Action::kRangeEnd) record::end_range();
      return result;
    }
  }

 private:
  __attribute__((always_inline)) static CUresult followed(Real real, A... arguments) {
    const bool passes = record::nobody_records();
    if constexpr (is_launch(Row::kAction)) {
      return passes ? passed_launch(real, arguments...) : recorded_launch(real, arguments...);
    } else {
      return passes ? unrecorded(real, arguments...) : recorded(real, arguments...);
    }
  }

  // In mode replay, where nobody collects this thread's events: most calls of most programs. It touches few cache
  // lines, since the program's own code has left little in the near caches.
  __attribute__((always_inline)) static CUresult passed_launch(Real real, A... arguments) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    bool outermost = false;
    {
      const observation::Work work;
      if (work.refused()) return result;
      outermost = work.outermost();
      result = call_behind_door(real, arguments...);
    }
    if (result == CUDA_SUCCESS && outermost) python::discovery::note_launch();
    python::install::on_driver_call();
    return result;
  }

  __attribute__((noinline)) static CUresult recorded_launch(Real real, A... arguments) {
    record::Entry entry;
    record::ThreadLog* log = entry.log();
    if (log == nullptr) return unrecorded_launch(entry, real, arguments...);
    // Submitting work ends with a store to the device, which takes its time to leave the core. An atomic operation
    // behind it would wait for that; so where the order of the calls is all that counts, it is taken ahead.
    const record::Stamp stamp{record::ticks(), log->next_sequence()};
    const bool tracked = __builtin_expect(g_tracks_memory.load(std::memory_order_relaxed), 0);
    const CUresult result = tracked ? call_door(real, arguments...) : call_behind_door(real, arguments...);
    const std::uint32_t duration = elapsed(stamp.ticks);
    count_launch(result);
    if (__builtin_expect(result == CUDA_SUCCESS, 1)) {
      record_launch(*log, Row::kIndex, Row::kPerThread, launch_of(arguments...), stamp, duration);
    } else {
      record_failed_launch(*log, result, stamp, duration, arguments...);
    }
    return result;
  }

  // Nested, or nobody asks for a record.
  __attribute__((noinline)) static CUresult unrecorded_launch(const record::Entry& entry, Real real, A... arguments) {
    const CUresult result = call_door(real, arguments...);
    if (entry.outermost()) count_launch(result);
    tell_python();
    return result;
  }

  // Small code for all that is no launch: there are hundreds of these functions.
  __attribute__((noinline)) static CUresult unrecorded(Real real, A... arguments) {
    const CUresult result = call_real(real, arguments...);
    count_captures(result);
    tell_python();
    return result;
  }

  __attribute__((noinline)) static CUresult recorded(Real real, A... arguments) {
    record::Entry entry(__builtin_frame_address(0));
    record::ThreadLog* log = entry.log();
    if constexpr (outlasts_ranges(Row::kClass)) {
      if (log == nullptr) log = entry.lasting_log();
    }
    if (log == nullptr) return unrecorded(real, arguments...);
    constexpr bool kEarly =
        Row::kAction == Action::kUnmake || Row::kAction == Action::kUnmakeCode || submits_work(Row::kClass);
    const record::Stamp stamp = stamp_of_call(*log, kEarly);
    const CUresult result = call_real(real, arguments...);
    count_captures(result);
    if constexpr (Row::kAction == Action::kLaunchCooperativeKernelMultiDevice) {
      record_launches(*log, result, stamp, arguments...);
    } else {
      record_arguments(*log, result, stamp, typename Captured::Tuple(arguments...), kEach);
      if (result == CUDA_SUCCESS) note_effects(*log, arguments...);
    }
    return result;
  }

  // What else is kept of a call that succeeded, for a region or the trace.
  static void note_effects(record::ThreadLog& log, A... arguments) noexcept {
    (void)log;
    if constexpr (Row::kClass == trace::ApiClass::kStreamSync || Row::kFacts.host_data == driver::HostData::kMayBring ||
                  Row::kAction == Action::kInstantiate) {
      const int saved_errno = errno;
      if constexpr (Row::kClass == trace::ApiClass::kStreamSync) observation::note_stream_sync();
      if constexpr (Row::kFacts.host_data == driver::HostData::kMayBring) note_host_data(arguments...);
      if constexpr (Row::kAction == Action::kInstantiate) record_instantiated(log, arguments...);
      errno = saved_errno;
    } else {
      ((void)arguments, ...);
    }
  }

  template <class Destination, class Source, class Size, class... Rest>
  static void note_host_data(Destination, Source source, Size bytes, Rest...) noexcept {
    observation::note_host_copy(value_word(source), bytes);
  }

  // In mode replay, and outside of ranges, Python's hooks are installed all the same.
  static void tell_python() noexcept {
    if (g_tracks_memory.load(std::memory_order_relaxed) || record::paused()) python::install::on_driver_call();
  }

  // The real call, as work where mode replay has to know of it.
  __attribute__((noinline)) static CUresult call_door(Real real, A... arguments) {
    if constexpr (uses_memory(Row::kClass)) {
      if (g_tracks_memory.load(std::memory_order_relaxed)) {
        const observation::Work work;
        return work.refused() ? CUDA_ERROR_INVALID_VALUE : call_behind_door(real, arguments...);
      }
    }
    return call_behind_door(real, arguments...);
  }

  // Where graphs are virtual, calls that name an exec are answered by what stands for it.
  __attribute__((always_inline)) static CUresult call_behind_door(Real real, A... arguments) {
    constexpr virtual_execs::Door kDoor = Row::kFacts.graphs;
    constexpr bool kOrdered = is_ordered_work(Row::kClass);
    if constexpr (kOrdered || kDoor != virtual_execs::Door::kNone) {
      if (__builtin_expect(virtual_execs::g_on.load(std::memory_order_relaxed), 0)) {
        if constexpr (kOrdered) virtual_execs::note_submission();
        if constexpr (kDoor != virtual_execs::Door::kNone) {
          return virtual_execs::through<kDoor, Row::kPerThread>(real, arguments...);
        }
      }
    }
    return real(arguments...);
  }

  // And what it does to code and memory is followed, where that is wanted.
  static CUresult call_real(Real real, A... arguments) {
    constexpr driver::CodeEffect kCode = Row::kFacts.code;
    if constexpr (kCode != driver::CodeEffect::kNone) {
      if (driver::g_follows_code.load(std::memory_order_relaxed)) return call_following_code<kCode>(real, arguments...);
    }
    constexpr MemoryEffect kEffect = Row::kFacts.memory;
    if constexpr (kEffect != MemoryEffect::kNone) {
      if (g_tracks_memory.load(std::memory_order_relaxed)) {
        return call_tracked<kEffect>(real, typename Captured::Tuple(arguments...), kEach);
      }
    }
    return call_door(real, arguments...);
  }

  template <driver::CodeEffect Effect>
  __attribute__((noinline)) static CUresult call_following_code(Real real, A... arguments) {
    if constexpr (Effect == driver::CodeEffect::kUnload) driver::code_unloaded(arguments...);
    const CUresult result = call_door(real, arguments...);
    const int saved_errno = errno;
    if (result == CUDA_SUCCESS) {
      if constexpr (Effect == driver::CodeEffect::kLoad) driver::code_loaded(arguments...);
      if constexpr (Effect == driver::CodeEffect::kGetModule || Effect == driver::CodeEffect::kGetFunction)
        driver::code_obtained(arguments...);
    }
    errno = saved_errno;
    return result;
  }

  template <MemoryEffect Effect, std::size_t... I>
  __attribute__((noinline)) static CUresult call_tracked(Real real, const typename Captured::Tuple& arguments,
                                                         std::index_sequence<I...>) {
    const std::uint64_t before[] = {Captured::template word<I>(arguments, false)...};
    const Forgotten forgotten = before_memory_call(Effect, before);
    CUresult result = CUDA_ERROR_UNKNOWN;
    if constexpr (Effect == MemoryEffect::kReserve) {
      result = reserve_far_up(real, std::get<I>(arguments)...);
    } else {
      result = call_door(real, std::get<I>(arguments)...);
    }
    if constexpr (takes_device_memory(Effect)) {
      if (result == CUDA_ERROR_OUT_OF_MEMORY && make_room()) result = real(std::get<I>(arguments)...);
    }
    const std::uint64_t after[] = {Captured::template word<I>(arguments, result == CUDA_SUCCESS)...};
    after_memory_call(Effect, after, result, forgotten);
    return result;
  }

  // Where the program has no wish.
  static CUresult reserve_far_up(Real real, CUdeviceptr* address, std::size_t bytes, std::size_t alignment,
                                 CUdeviceptr wanted, unsigned long long flags) {
    const std::uint64_t far_up = wanted == 0 ? driver::wanted_address(bytes, alignment) : 0;
    if (far_up != 0 && real(address, bytes, alignment, far_up, flags) == CUDA_SUCCESS) return CUDA_SUCCESS;
    return real(address, bytes, alignment, wanted, flags);
  }

  static void count_captures(CUresult result) noexcept {
    if constexpr (Row::kAction == Action::kCaptureBegin) {
      if (result == CUDA_SUCCESS) driver::g_captures.fetch_add(1, std::memory_order_relaxed);
    } else if constexpr (Row::kAction == Action::kCaptureEnd) {
      if (ends_capture(result)) driver::g_captures.fetch_sub(1, std::memory_order_relaxed);
    }
    (void)result;
  }

  // For the report of mode replay. What Grape launches itself comes by no wrapper.
  static void count_launch(CUresult result) noexcept {
    if (__builtin_expect(g_tracks_memory.load(std::memory_order_relaxed), 0) && result == CUDA_SUCCESS) {
      python::discovery::note_launch();
    }
  }

  __attribute__((cold, noinline)) static void record_failed_launch(record::ThreadLog& log, CUresult result,
                                                                   record::Stamp stamp, std::uint32_t duration,
                                                                   A... arguments) noexcept {
    if constexpr (Row::kAction == Action::kLaunchKernelEx) {
      // The configuration is behind a pointer, which may be what was wrong.
      ((void)arguments, ...);
      record_refused_launch(log, Row::kIndex, Launch{}, result, stamp, duration);
    } else {
      record_refused_launch(log, Row::kIndex, launch_of(arguments...), result, stamp, duration);
    }
  }

  static void record_launches(record::ThreadLog& log, CUresult result, record::Stamp stamp, CUDA_LAUNCH_PARAMS* list,
                              unsigned count, unsigned) noexcept {
    const int saved_errno = errno;
    const std::uint32_t duration = elapsed(stamp.ticks);
    if (result != CUDA_SUCCESS || list == nullptr) {
      record_refused_launch(log, Row::kIndex, Launch{}, result, stamp, duration);
    } else {
      for (unsigned i = 0; i < count; ++i) {
        record_launch(log, Row::kIndex, Row::kPerThread, launch_of(list[i]), stamp, i == 0 ? duration : 0);
      }
    }
    errno = saved_errno;
  }

  template <class... Rest>
  static void record_instantiated(record::ThreadLog& log, CUgraphExec* exec, CUgraph graph, Rest...) noexcept {
    if (exec != nullptr && *exec != nullptr) record_graph_contents(log, *exec, graph);
  }

  // The index of the stream that work was put on; -1: none.
  static constexpr std::int16_t stream_argument() noexcept {
    constexpr bool kStreams[] = {std::is_same_v<A, CUstream>..., true};
    std::int16_t index = 0;
    while (!kStreams[index]) ++index;
    return can_be_captured(Row::kClass) && index != sizeof...(A) ? index : -1;
  }

  template <std::size_t... I>
  static void record_arguments(record::ThreadLog& log, CUresult result, record::Stamp stamp,
                               const typename Captured::Tuple& arguments, std::index_sequence<I...>) noexcept {
    static constexpr CallKind kKind{Row::kIndex, Row::kClass, Row::kPerThread, sizeof...(A), stream_argument()};
    const bool succeeded = result == CUDA_SUCCESS;
    const std::uint64_t words[sizeof...(A) + 1] = {Captured::template word<I>(arguments, succeeded)...};
    constexpr std::size_t kEntries = (std::size_t{Captured::template kHasEntry<I>} + ... + 0);
    static_assert(kEntries <= kMostEntries);
    if constexpr (kEntries != 0) {
      if (succeeded) {
        BlobEntry entries[kEntries];
        return record_call(log, kKind, result, stamp, words, entries, Captured::entries(arguments, entries, kEach));
      }
    }
    record_call(log, kKind, result, stamp, words, nullptr, nullptr);
  }

  // cuGetProcAddress itself is no event; it is a door.
  template <class... Rest>
  static CUresult get_proc_address(Real real, const char* name, void** function, int version, cuuint64_t flags,
                                   Rest... rest) {
    const CUresult result = real(name, function, version, flags, rest...);
    if (result == CUDA_SUCCESS && name != nullptr && function != nullptr && *function != nullptr) {
      const int saved_errno = errno;
      exchange_proc_address(reinterpret_cast<void*>(real), ask, name, function);
      errno = saved_errno;
    }
    return result;
  }

  static CUresult ask(void* real, const char* base, void** function, int version, cuuint64_t flags) {
    if constexpr (sizeof...(A) == 4) {
      return reinterpret_cast<PFN_cuGetProcAddress_v11030>(real)(base, function, version, flags);
    } else {
      CUdriverProcAddressQueryResult status{};
      return reinterpret_cast<PFN_cuGetProcAddress_v12000>(real)(base, function, version, flags, &status);
    }
  }
};

}  // namespace grape::interpose
