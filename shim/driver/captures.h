// Stream captures of the whole process that have begun and not ended.
#pragma once

#include <atomic>

struct CUstream_st;

namespace grape::driver {

extern std::atomic<int> g_captures;

// Is work on this stream captured rather than executed, as the driver says? `per_thread`: stream 0 is the thread's own.
// Keeps errno.
bool is_capturing(CUstream_st* stream, bool per_thread) noexcept;

}  // namespace grape::driver
