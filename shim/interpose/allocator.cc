#include "shim/interpose/allocator.h"

#include <errno.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compressor/trace/event.h"
#include "python_hooks/scopes/positions.h"
#include "shim/interpose/memory_tracking.h"
#include "shim/lifecycle/elf_lookup.h"
#include "shim/lifecycle/hot.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"
#include "shim/memory/block_journal.h"
#include "shim/memory/live_blocks.h"
#include "shim/observation/region_sink.h"
#include "shim/record/thread_log.h"

namespace grape::interpose {

// c10::Device: two signed bytes, passed by value.
struct Device {
  std::int8_t type;
  std::int8_t index;
};

namespace {

constexpr std::int8_t kCuda = 1;  // c10::DeviceType::CUDA

constexpr char kReport[] = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
constexpr char kLibrary[] = "libc10.so";

using Report = void (*)(void*, std::int64_t, std::size_t, std::size_t, Device);
GRAPE_HOT std::atomic<Report> g_report{nullptr};
std::atomic<bool> g_checked{false};

__attribute__((cold, noinline)) Report find_report() noexcept {
  const int saved_errno = errno;
  auto report = reinterpret_cast<Report>(lifecycle::next_symbol(kReport, kLibrary));
  errno = saved_errno;
  g_report.store(report, std::memory_order_relaxed);
  return report;
}

__attribute__((always_inline)) inline void record_block(record::ThreadLog& log, void* address, std::int64_t bytes,
                                                        Device device) noexcept {
  const auto place = static_cast<std::uint32_t>(static_cast<std::uint8_t>(device.index));
  const bool taken = bytes > 0;
  std::uint32_t frame = 0;
  if (taken) {
    // As a launch's: most often the same operator launches next, and finds what was read here.
    frame = python::scopes::attached_stack(log);
  }
  // No time is kept for blocks: they stand at the thread's last.
  std::uint64_t* out =
      log.begin(taken ? trace::EventKind::kBlockAlloc : trace::EventKind::kBlockFree, place, 3, record::Stamp{});
  if (out == nullptr) return;
  out[0] = reinterpret_cast<std::uint64_t>(address);
  out[1] = static_cast<std::uint64_t>(taken ? bytes : -bytes);
  out[2] = trace::pack(frame, place);
  log.commit();
}

// In mode replay, where the thread's events are collected.
__attribute__((noinline)) void track_block(void* address, std::int64_t bytes, Device device) noexcept {
  const int saved_errno = errno;
  const std::uint64_t serial = track_framework_block(reinterpret_cast<std::uint64_t>(address), bytes);
  if (record::ThreadLog* log = record::thread_log()) {
    record_block(*log, address, bytes, device);
    if (serial != 0) observation::note_block_serial(serial);
  }
  errno = saved_errno;
}

}  // namespace

void check_allocator() noexcept {
  if (__builtin_expect(g_checked.load(std::memory_order_relaxed), 1)) return;
  if (!lifecycle::loaded(kLibrary)) return;  // not yet, or never
  g_checked.store(true, std::memory_order_relaxed);
  if (lifecycle::symbol_in(kLibrary, kReport) == nullptr) {
    notice("this PyTorch does not report its allocator's blocks: the trace will have none");
    memory::LiveBlocks::instance().set_incomplete();
  }
}

// void c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device)
void report_memory_usage(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                         Device device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
    __attribute__((visibility("default")));

void report_memory_usage(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                         Device device) {
  if (device.type == kCuda && bytes != 0 && lifecycle::active()) {
    if (record::nobody_records()) {
      memory::note_framework_block(reinterpret_cast<std::uint64_t>(address), bytes);
    } else if (__builtin_expect(g_tracks_memory.load(std::memory_order_relaxed), 0)) {
      track_block(address, bytes, device);
    } else if (record::ThreadLog* log = record::thread_log()) {
      record_block(*log, address, bytes, device);
    }
  }
  Report report = g_report.load(std::memory_order_relaxed);
  if (__builtin_expect(report == nullptr, 0) && (report = find_report()) == nullptr) return;
  report(address, bytes, allocated, reserved, device);
}

}  // namespace grape::interpose
