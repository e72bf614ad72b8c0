// Stream captures of the whole process that have begun and not ended.
#pragma once

#include <atomic>

namespace grape::driver {

extern std::atomic<int> g_captures;

}  // namespace grape::driver
