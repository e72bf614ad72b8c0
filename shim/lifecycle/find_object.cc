#include "shim/lifecycle/find_object.h"

#include <link.h>

#include <atomic>
#include <cstdint>

#include "shim/lifecycle/elf_lookup.h"

#ifdef DLFO_STRUCT_HAS_EH_DBASE
namespace grape::lifecycle {
namespace {

struct Search {
  const void* address;
  dl_find_object* result;
};

int look_into(dl_phdr_info* info, std::size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  if (!holds(*info, search->address)) return 0;
  void* tables = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_GNU_EH_FRAME) tables = reinterpret_cast<void*>(info->dlpi_addr + segment.p_vaddr);
  }
  if (tables == nullptr) return -1;
  const Extent extent = extent_of(*info);
  *search->result = {};
  search->result->dlfo_map_start = reinterpret_cast<void*>(extent.begin);
  search->result->dlfo_map_end = reinterpret_cast<void*>(extent.end);
  search->result->dlfo_eh_frame = tables;
  return 1;
}

using FindObject = int (*)(void*, dl_find_object*);
std::atomic<FindObject> g_find_object{nullptr};

int walk(void* address, dl_find_object* result) { return find_object_by_walk(address, result); }

}  // namespace

int find_object_by_walk(const void* address, dl_find_object* result) noexcept {
  Search search{address, result};
  return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}

}  // namespace grape::lifecycle

// Taken by the linker in place of glibc's for the unwinder in this library; not exported.
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(void* address, dl_find_object* result) noexcept {
  using grape::lifecycle::g_find_object;
  auto find = g_find_object.load(std::memory_order_relaxed);
  if (find == nullptr) {
    find = reinterpret_cast<grape::lifecycle::FindObject>(grape::lifecycle::symbol_in("libc.so.6", "_dl_find_object"));
    if (find == nullptr) find = grape::lifecycle::walk;
    g_find_object.store(find, std::memory_order_relaxed);
  }
  return find(address, result);
}
#endif
