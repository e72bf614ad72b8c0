// Call counters, injected faults and the other settings of the simulated driver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "api.h"

namespace simcuda {

struct CallSite {
  const char* symbol;
  const char* name;  // for cuGetProcAddress
  int version;
  int per_thread;      // 1: a `_ptds` or `_ptsz` symbol
  void* const* entry;  // where the exported symbol jumps to
  void* exported;      // the exported symbol itself
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::int64_t> fail_at{-1};  // number of the call that fails; 0: every call; -1: none
  std::atomic<int> fail_with{0};
};

CallSite* call_sites();  // in the order of the list
std::size_t call_site_count();
CallSite* find_call_site(const char* symbol);

struct Settings {
  std::atomic<bool> check{false};   // a fault is armed or this is the child of a fork: entries take the slow way
  std::atomic<bool> forked{false};  // after cuInit, and this is the child
  std::atomic<bool> null_launch{false};
  std::atomic<int> devices{1};
  std::atomic<std::uint64_t> latency{0};  // ns per submitting call
  std::atomic<std::size_t> memory{std::size_t{16} << 30};
};
extern Settings settings;

// What an entry does when settings.check is set. Returns the error to give to the caller, if any.
CUresult check_call(CallSite& site, std::uint64_t number);

inline CUresult enter(CallSite& site) {
  const std::uint64_t number = site.calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if (__builtin_expect(settings.check.load(std::memory_order_acquire), false)) return check_call(site, number);
  return CUDA_SUCCESS;
}

void busy_wait();  // for settings.latency

// Writes one line per executed kernel to SIMCUDA_LOG: execution number, stream handle, kernel name. Nothing if unset.
void log_kernel(const void* stream, const std::string& name);

}  // namespace simcuda
