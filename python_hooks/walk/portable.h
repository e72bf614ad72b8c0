// Names and digests that hold in other processes: nothing of them depends on where objects lie. For GRAPE_CACHE. With
// the GIL; throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/cache/cache.h"
#include "python_hooks/interpreter/cpython.h"

namespace grape::python::walk {

// For what counts by identity in a walk: a class, a function or a module by its name, code by what it does, constants
// of torch by theirs, anything else by its class. Not as sharp as identity: two such names may be equal, where the
// objects are not.
std::uint64_t portable_name(Object* object);

// What a code object does: its instructions, constants and names, code inside of it too; not where it stands.
cache::Digest digest_of_code(Object* code);

cache::Digest digest_of(const std::vector<std::uint8_t>& bytes);
// Of several, whose order does not count.
cache::Digest digest_of_all(std::vector<cache::Digest> digests);

}  // namespace grape::python::walk
