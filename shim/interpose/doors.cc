// The doors to the driver that hand out addresses: dlsym and dlvsym (behind dlsym.S), and cuGetProcAddress.
#include <dlfcn.h>

#include <cstring>
#include <string_view>

#include "shim/driver/unhandled.h"
#include "shim/interpose/recording.h"
#include "shim/interpose/rows.h"
#include "shim/lifecycle/elf_lookup.h"
#include "shim/lifecycle/lifecycle.h"

namespace grape::interpose {

namespace {

constexpr char kDriver[] = "libcuda.so.1";

bool is_driver_function_name(const char* name) noexcept {
  return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

// What to hand out for `real`, which the real dlsym found under `symbol`.
void* exchange_symbol(const char* symbol, void* real) noexcept {
  if (!lifecycle::active() || !in_driver(real)) return real;
  const std::uint32_t row = find_symbol(symbol);
  if (row != kRowCount) return adopt(row, real) ? grape_wrappers[row] : real;
  return is_query(symbol) ? real : driver::counted(symbol, real);
}

// What the program gets for a driver's name. `find`: the real dlsym or dlvsym with that name, by handle.
template <class Find>
void* find_for_program(const Find& find, void* handle, const char* symbol) noexcept {
  lifecycle::tell_of_settings();
  void* real = find(handle);
  if (real == nullptr) return nullptr;
  if (!is_export(real)) return exchange_symbol(symbol, real);
  // The search came upon our own export. Without us it would have found what comes after us, or nothing.
  void* next = lifecycle::next_symbol(symbol, kDriver);
  // Nothing there but us: the loader itself shall say so, for dlerror.
  if (next == nullptr) return find(RTLD_NEXT);
  return lifecycle::active() ? real : next;
}

// The addresses that the real cuGetProcAddress gives for the rows' own versions; &g_none: none.
std::atomic<void*> g_by_version[kRowCount];
char g_none;

void* by_version(void* real, AskDriver ask, std::uint32_t row) noexcept {
  void* known = g_by_version[row].load(std::memory_order_relaxed);
  if (known == &g_none || in_driver(known)) return known;
  constexpr cuuint64_t kLegacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  char base[sizeof kRows[row].symbol] = {};
  std::memcpy(base, kRows[row].symbol, std::strcspn(kRows[row].symbol, "_"));
  void* function = nullptr;
  const CUresult result = ask(real, base, &function, kRows[row].version, kRows[row].per_thread ? kPerThread : kLegacy);
  if (result != CUDA_SUCCESS || function == nullptr) function = &g_none;
  g_by_version[row].store(function, std::memory_order_relaxed);
  return function;
}

}  // namespace

// Which signature lies behind `*function`? Never guessed from the version that was asked for: the row is the one for
// whose own version the driver gives the very same address, the oldest where it does so for several (a driver that is
// older than what was asked for gives what it has). An address of no row is a signature that Grape does not know.
void exchange_proc_address(void* real, AskDriver ask, const char* name, void** function) noexcept {
  if (!is_driver_function_name(name) || !in_driver(*function)) return;
  std::uint32_t match = kRowCount;
  const std::string_view asked(name);
  for (std::uint32_t row = first_named(asked); row != kRowCount; row = next_named(row, asked)) {
    if (match != kRowCount && kRows[match].version <= kRows[row].version) continue;
    if (by_version(real, ask, row) == *function) match = row;
  }
  if (match != kRowCount) {
    if (adopt(match, *function)) *function = grape_wrappers[match];
  } else if (!is_query(name)) {
    *function = driver::counted(name, *function);
  }
}

}  // namespace grape::interpose

// RTLD_NEXT asks who called: that must be this library, so the call may not become a jump out of it.
#define GRAPE_NO_TAIL_CALL(value) __asm__ volatile("" : "+r"(value))

// Called from dlsym.S only.
extern "C" {

__attribute__((visibility("hidden"))) void* grape_find_dlsym() {
  return reinterpret_cast<void*>(grape::lifecycle::real_dlsym());
}

__attribute__((visibility("hidden"))) void* grape_find_dlvsym() {
  return reinterpret_cast<void*>(grape::lifecycle::real_dlvsym());
}

__attribute__((visibility("hidden"))) int grape_exports_symbol(const char* symbol) {
  return grape::interpose::find_symbol(symbol) != grape::interpose::kRowCount ? 1 : 0;
}

__attribute__((visibility("hidden"))) void* grape_dlsym_driver(void* handle, const char* symbol) {
  auto* real_dlsym = grape::lifecycle::real_dlsym();
  if (real_dlsym == nullptr) return nullptr;
  void* found = grape::interpose::find_for_program([&](void* in) { return real_dlsym(in, symbol); }, handle, symbol);
  GRAPE_NO_TAIL_CALL(found);
  return found;
}

__attribute__((visibility("hidden"))) void* grape_dlvsym_driver(void* handle, const char* symbol, const char* version) {
  auto* real_dlvsym = grape::lifecycle::real_dlvsym();
  if (real_dlvsym == nullptr) return nullptr;
  const auto find = [&](void* in) { return real_dlvsym(in, symbol, version); };
  void* found = grape::interpose::find_for_program(find, handle, symbol);
  GRAPE_NO_TAIL_CALL(found);
  return found;
}
}
