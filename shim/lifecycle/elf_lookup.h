// Reads the symbol tables of loaded objects. This library defines dlsym, so it cannot ask dlsym for the loader's own
// dlsym.
#pragma once

#include <cstdint>

struct dl_phdr_info;

namespace grape::lifecycle {

// Where a loaded object lies: from its first loaded segment to the end of its last.
struct Extent {
  std::uintptr_t begin, end;
};
Extent extent_of(const dl_phdr_info& info) noexcept;
// Is the address in one of the object's loaded segments?
bool holds(const dl_phdr_info& info, const void* address) noexcept;

using DlsymFunction = void* (*)(void* handle, const char* symbol);
using DlvsymFunction = void* (*)(void* handle, const char* symbol, const char* version);

// The next definitions after this library in load order (libc's, or those of another interposer that is preloaded
// behind us). Resolved at the first call; null only in a process without libc. Any thread, before constructors too.
DlsymFunction real_dlsym() noexcept;
DlvsymFunction real_dlvsym() noexcept;

// The definition of `symbol` in the loaded object whose file name is `library` (with or without a folder), or null.
// `library` null: the next definition after this library in load order.
// Reads tables only: takes no lock but the loader's, loads nothing.
void* symbol_in(const char* library, const char* symbol) noexcept;

// Is an object of that file name loaded?
bool loaded(const char* library) noexcept;

// Was this library loaded behind the C library, as by a dlopen? It then stands before nothing: too late to be of use.
bool loaded_late() noexcept;

}  // namespace grape::lifecycle
