// What Python was doing: the frame behind a launch or an allocation, and the region call that it belongs to. Works
// through symbols found at run time in the process; where there is no Python, or one whose layout is not known,
// everything here returns 0 and one notice says so.
//
// Frames are read without the GIL: a thread reads its own frame chain, whose code objects its own frames keep alive.
#pragma once

#include <cstdint>

#include "shim/record/thread_log.h"

namespace grape::python::scopes {

// This thread's Python stack, as far as GRAPE_STACKS asks for it, as a frame id in `log`'s definitions (defining what
// is new); 0: none.
__attribute__((hot)) std::uint32_t current_stack(record::ThreadLog& log) noexcept;

// attach() and current_stack() in one, the way of each launch and each allocation.
__attribute__((hot)) std::uint32_t attached_stack(record::ThreadLog& log) noexcept;

// Only the innermost frame, as a frame without parent. Cheaper.
__attribute__((hot)) std::uint32_t current_leaf(record::ThreadLog& log) noexcept;

// The region call that this thread's events belong to, where the thread itself has opened none (autograd's device
// threads): emits a kScopeAttach event when it changed. Called before an event is begun.
void attach(record::ThreadLog& log) noexcept;

}  // namespace grape::python::scopes
