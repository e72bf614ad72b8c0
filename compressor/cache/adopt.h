// Puts a cached program on the functions and memory of this process. Throws std::bad_alloc only.
#pragma once

#include <string>
#include <vector>

#include "compressor/cache/cache.h"

namespace grape::cache {

// Puts `program` on the statics of `other`: each becomes the one that stands in its first place there, if that is as
// large and no other one's yet. Which ones did; the others stay.
std::vector<bool> put_on_statics_of(program::Program& program, const program::Program& other);

// Gives `cached` the functions, streams and memory of `seen`, so that program::compare() can tell whether they are the
// same. `kernels`: of seen's functions. A static of the cached one becomes what stands in its first place in the seen
// one; what stands in none becomes memory that is nobody's. False, and `why`: they are not of the same kernels, or wait
// for what only the other process had (events, streams).
bool adopt(program::Program& cached, const program::Program& seen, const std::vector<Digest>& kernels,
           std::string& why);

}  // namespace grape::cache
