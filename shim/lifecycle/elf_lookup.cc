#include "shim/lifecycle/elf_lookup.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace grape::lifecycle {
namespace {

// The parts of a loaded object's dynamic section that a symbol lookup needs.
struct SymbolTable {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* sysv_hash = nullptr;
  ElfW(Addr) base = 0;
};

std::uint32_t gnu_hash_of(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// glibc relocates the addresses in a dynamic section when it loads an object, but not those of the vDSO.
template <typename T>
const T* address_in(ElfW(Addr) base, ElfW(Addr) value) {
  return reinterpret_cast<const T*>(value < base ? base + value : value);
}

bool read_tables(const dl_phdr_info* info, SymbolTable& table) {
  table.base = info->dlpi_addr;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
  }
  if (dynamic == nullptr) return false;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) value = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_SYMTAB) table.symbols = address_in<ElfW(Sym)>(table.base, value);
    if (dynamic->d_tag == DT_STRTAB) table.strings = address_in<char>(table.base, value);
    if (dynamic->d_tag == DT_GNU_HASH) table.gnu_hash = address_in<std::uint32_t>(table.base, value);
    if (dynamic->d_tag == DT_HASH) table.sysv_hash = address_in<std::uint32_t>(table.base, value);
  }
  return table.symbols != nullptr && table.strings != nullptr;
}

bool defines(const SymbolTable& table, const ElfW(Sym) & symbol, const char* name) {
  return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 && std::strcmp(table.strings + symbol.st_name, name) == 0;
}

const ElfW(Sym) * find_by_gnu_hash(const SymbolTable& table, const char* name) {
  const std::uint32_t bucket_count = table.gnu_hash[0], first = table.gnu_hash[1], bloom_words = table.gnu_hash[2];
  if (bucket_count == 0) return nullptr;
  const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(table.gnu_hash + 4);
  const auto* buckets = reinterpret_cast<const std::uint32_t*>(bloom + bloom_words);
  const std::uint32_t* chains = buckets + bucket_count;
  const std::uint32_t hash = gnu_hash_of(name);
  std::uint32_t index = buckets[hash % bucket_count];
  if (index < first) return nullptr;
  for (;; ++index) {
    const std::uint32_t entry = chains[index - first];
    if ((entry | 1) == (hash | 1) && defines(table, table.symbols[index], name)) return &table.symbols[index];
    if ((entry & 1) != 0) return nullptr;
  }
}

const ElfW(Sym) * find_by_scan(const SymbolTable& table, const char* name) {
  const std::uint32_t count = table.sysv_hash[1];
  for (std::uint32_t i = 1; i < count; ++i) {
    if (defines(table, table.symbols[i], name)) return &table.symbols[i];
  }
  return nullptr;
}

void* find_symbol(const dl_phdr_info* info, const char* name) {
  SymbolTable table;
  if (!read_tables(info, table)) return nullptr;
  const ElfW(Sym)* symbol = table.gnu_hash != nullptr    ? find_by_gnu_hash(table, name)
                            : table.sysv_hash != nullptr ? find_by_scan(table, name)
                                                         : nullptr;
  return symbol == nullptr ? nullptr : reinterpret_cast<void*>(table.base + symbol->st_value);
}

bool is_named(const dl_phdr_info* info, const char* library) {
  if (info->dlpi_name == nullptr) return false;
  const char* slash = std::strrchr(info->dlpi_name, '/');
  return std::strcmp(slash == nullptr ? info->dlpi_name : slash + 1, library) == 0;
}

struct Search {
  const char* library;  // null: the next object after this one that defines the symbol
  const char* symbol;   // null: only ask whether the library is there
  bool passed_self = false;
  bool seen = false;
  void* result = nullptr;
};

int visit(dl_phdr_info* info, std::size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  if (search->library == nullptr) {
    if (!search->passed_self) {
      search->passed_self = holds(*info, reinterpret_cast<const void*>(&visit));
      return 0;
    }
  } else if (!is_named(info, search->library)) {
    return 0;
  }
  search->seen = true;
  if (search->symbol != nullptr) search->result = find_symbol(info, search->symbol);
  return search->result != nullptr ? 1 : 0;
}

// Stops at this library or at the C library, whichever was loaded first; *data: it was the C library.
int find_first(dl_phdr_info* info, std::size_t, void* data) {
  if (holds(*info, reinterpret_cast<const void*>(&visit))) return 1;
  if (!is_named(info, "libc.so.6")) return 0;
  *static_cast<bool*>(data) = true;
  return 1;
}

void* resolved(std::atomic<void*>& found, const char* symbol) {
  void* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) found.store(function = symbol_in(nullptr, symbol), std::memory_order_relaxed);
  return function;
}

}  // namespace

Extent extent_of(const dl_phdr_info& info) noexcept {
  Extent extent{UINTPTR_MAX, 0};
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = info.dlpi_addr + segment.p_vaddr;
    extent.begin = std::min(extent.begin, begin);
    extent.end = std::max<std::uintptr_t>(extent.end, begin + segment.p_memsz);
  }
  return extent;
}

bool holds(const dl_phdr_info& info, const void* address) noexcept {
  const auto target = reinterpret_cast<std::uintptr_t>(address);
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && target - (info.dlpi_addr + segment.p_vaddr) < segment.p_memsz) return true;
  }
  return false;
}

DlsymFunction real_dlsym() noexcept {
  static std::atomic<void*> found{nullptr};
  return reinterpret_cast<DlsymFunction>(resolved(found, "dlsym"));
}

DlvsymFunction real_dlvsym() noexcept {
  static std::atomic<void*> found{nullptr};
  return reinterpret_cast<DlvsymFunction>(resolved(found, "dlvsym"));
}

void* symbol_in(const char* library, const char* symbol) noexcept {
  Search search{library, symbol};
  dl_iterate_phdr(visit, &search);
  return search.result;
}

bool loaded(const char* library) noexcept {
  Search search{library, nullptr};
  dl_iterate_phdr(visit, &search);
  return search.seen;
}

bool loaded_late() noexcept {
  bool late = false;
  dl_iterate_phdr(find_first, &late);
  return late;
}

}  // namespace grape::lifecycle
