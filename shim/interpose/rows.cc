#include "shim/interpose/rows.h"

#include <errno.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shim/driver/real_driver.h"
#include "shim/lifecycle/elf_lookup.h"
#include "shim/lifecycle/lifecycle.h"

extern "C" {
extern const char grape_exports_begin[] __attribute__((visibility("hidden")));
extern const char grape_exports_end[] __attribute__((visibility("hidden")));
}

namespace grape::interpose {

// NOLINTBEGIN(bugprone-macro-parentheses): the parameters are numbers and names
const record::ApiRow kRows[kRowCount] = {
#define GRAPE_HOOK(base, symbol, version, type, per_thread, class_, action, arguments, effects) \
  {#symbol, version, per_thread != 0, trace::ApiClass::k##class_, arguments},
#include "shim/driver/hooks.def"
};
// NOLINTEND(bugprone-macro-parentheses)

std::atomic<void*> g_real[kRowCount];

namespace {

constexpr std::string_view kSymbols[kRowCount] = {
#define GRAPE_HOOK(base, symbol, ...) #symbol,
#include "shim/driver/hooks.def"
};

// Without version and stream suffixes.
constexpr std::string_view base_of(std::string_view symbol) { return symbol.substr(0, symbol.find('_')); }

constexpr std::size_t kBuckets = 512;

constexpr std::size_t bucket_of(std::string_view base) {
  std::uint32_t hash = 2166136261;  // FNV-1a
  for (const char character : base) hash = (hash ^ static_cast<unsigned char>(character)) * 16777619;
  return (hash ^ hash >> 16) % kBuckets;
}

// Rows by the base of their names, as libraries ask for thousands of functions while they are loaded.
struct RowsByBase {
  std::uint16_t first[kBuckets] = {};
  std::uint16_t next[kRowCount] = {};  // of the same bucket, ascending; kRowCount: none
};
constexpr RowsByBase sort_rows() {
  RowsByBase rows;
  for (std::uint16_t& first : rows.first) first = kRowCount;
  for (std::uint32_t row = kRowCount; row-- > 0;) {
    std::uint16_t& first = rows.first[bucket_of(base_of(kSymbols[row]))];
    rows.next[row] = first;
    first = static_cast<std::uint16_t>(row);
  }
  return rows;
}
constexpr RowsByBase kRowsByBase = sort_rows();

bool is_named(std::uint32_t row, std::string_view name) noexcept {
  return kSymbols[row] == name || base_of(kSymbols[row]) == name;
}

std::uint32_t named_from(std::uint32_t row, std::string_view name) noexcept {
  while (row != kRowCount && !is_named(row, name)) row = kRowsByBase.next[row];
  return row;
}

// With a comma behind each, and a blank between.
constexpr std::string_view kQueries =
#define GRAPE_QUERIES(...) " " #__VA_ARGS__ ","
#define GRAPE_PASSED(...)
#include "shim/driver/unwrapped.def"
    ;

// The address range of the driver seen last.
struct Range {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<unsigned long long> unloads{0};  // of the process, when it was found
};
Range g_driver;

bool is_driver_name(const char* path) noexcept {
  const char* slash = std::strrchr(path, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : path, "libcuda.so", 10) == 0;
}

// The driver that lay at [begin, end) is gone, and with it all that is known of its functions and kernels.
void forget_driver(std::uintptr_t begin, std::uintptr_t end) noexcept {
  for (auto& real : g_real) {
    void* known = real.load(std::memory_order_relaxed);
    const auto address = reinterpret_cast<std::uintptr_t>(known);
    if (address >= begin && address < end) real.compare_exchange_strong(known, nullptr);
  }
  driver::forget_real_functions();
  record::g_module_epoch.fetch_add(1, std::memory_order_acq_rel);
}

int find_driver(dl_phdr_info* info, std::size_t, void* data) {
  if (info->dlpi_name == nullptr || !is_driver_name(info->dlpi_name)) return 0;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto [begin, end] = lifecycle::extent_of(*info);
  if (address < begin || address >= end) return 0;
  const std::uintptr_t known = g_driver.begin.load(std::memory_order_relaxed);
  if (known != 0 && known != begin) forget_driver(known, g_driver.end.load(std::memory_order_relaxed));
  g_driver.begin.store(begin, std::memory_order_relaxed);
  g_driver.end.store(end, std::memory_order_relaxed);
  g_driver.unloads.store(info->dlpi_subs, std::memory_order_relaxed);
  return 1;
}

}  // namespace

bool in_driver(const void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address == 0) return false;
  // What was found once holds until something is unloaded. The loader tells each visitor how many objects it has
  // unloaded; the first visit will do.
  unsigned long long unloads = 0;
  const auto count = [](dl_phdr_info* info, std::size_t, void* data) {
    *static_cast<unsigned long long*>(data) = info->dlpi_subs;
    return 1;
  };
  dl_iterate_phdr(count, &unloads);
  if (unloads == g_driver.unloads.load(std::memory_order_relaxed) &&
      address >= g_driver.begin.load(std::memory_order_relaxed) &&
      address < g_driver.end.load(std::memory_order_relaxed)) {
    return true;
  }
  return dl_iterate_phdr(find_driver, const_cast<void*>(pointer)) != 0;
}

bool is_export(const void* address) noexcept {
  const auto* byte = static_cast<const char*>(address);
  return byte >= grape_exports_begin && byte < grape_exports_end;
}

std::uint32_t find_symbol(const char* symbol) noexcept {
  std::uint32_t row = first_named(symbol);
  while (row != kRowCount && kSymbols[row] != symbol) row = next_named(row, symbol);
  return row;
}

std::uint32_t first_named(std::string_view name) noexcept {
  return named_from(kRowsByBase.first[bucket_of(base_of(name))], name);
}

std::uint32_t next_named(std::uint32_t row, std::string_view name) noexcept {
  return named_from(kRowsByBase.next[row], name);
}

bool is_query(const char* name) noexcept {
  const std::string_view base(name, std::strcspn(name, "_"));
  for (std::size_t at = kQueries.find(base); at != kQueries.npos; at = kQueries.find(base, at + 1)) {
    if (kQueries[at - 1] == ' ' && kQueries[at + base.size()] == ',') return true;
  }
  return false;
}

void* find_real(std::uint32_t row) noexcept {
  lifecycle::tell_of_settings();
  const int saved_errno = errno;
  void* real = lifecycle::next_symbol(kRows[row].symbol, "libcuda.so.1");
  errno = saved_errno;
  if (real == nullptr || is_export(real)) return nullptr;
  void* expected = nullptr;
  return g_real[row].compare_exchange_strong(expected, real) ? real : expected;
}

bool adopt(std::uint32_t row, void* real) noexcept {
  void* known = g_real[row].load(std::memory_order_relaxed);
  if (known == real) return true;
  if (known == nullptr || !in_driver(known)) {
    void* next = lifecycle::next_symbol(kRows[row].symbol, "libcuda.so.1");
    // Another library's function, found by the linked route, or a driver that has been unloaded since.
    if (known != nullptr && next == known) return false;
    // A program that links the driver must still reach a library that is preloaded behind us.
    if (known == nullptr && next != nullptr && !in_driver(next)) grape_linked[row] = next;
  }
  g_real[row].store(real, std::memory_order_relaxed);
  return true;
}

}  // namespace grape::interpose
