// Which loaded object holds a code address: what an unwinder asks for each frame.
//
// The unwinder that is linked into libgrape.so asks glibc's _dl_find_object, which came with glibc 2.35. A direct
// reference would keep the library from loading on older systems, so this room defines the function itself: it calls
// glibc's where there is one and walks the loader's list elsewhere.
#pragma once

#include <dlfcn.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE  // the build machine's glibc has the function, so its libgcc asks for it
namespace grape::lifecycle {

// As _dl_find_object, by dl_iterate_phdr: 0 and `result` filled in (link map left null), or -1 where no loaded object
// with unwind tables holds `address`. Any thread; takes the loader's lock.
int find_object_by_walk(const void* address, dl_find_object* result) noexcept;

}  // namespace grape::lifecycle
#endif
