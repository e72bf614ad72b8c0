// The state of a recorded thread that this room keeps in the thread's log.
#pragma once

#include "python_hooks/interpreter/flat_map.h"
#include "python_hooks/scopes/stack_tree.h"
#include "shim/record/thread_log.h"

namespace grape::python::scopes {

struct ScopeEntry;

// A scope that this thread has defined in its log; with its key, in `scopes`, one cache line. Valid while `version` is
// the entry's, which it is without a look at the entry as long as `epoch` is g_scope_epoch.
struct KnownScope {
  ScopeEntry* entry = nullptr;
  const Object* reference = nullptr;  // the entry's; null: it lives for good
  std::uint32_t version = 0;
  std::uint32_t id = 0;
  std::uint32_t epoch = 0;
  // Memory that finding the next scope will touch, as it was opened after this one the last time. Prefetched, never
  // followed.
  const void* next[2] = {};
};

// The frame that called into an open scope. While the scope is open, that frame and all outer ones wait for the call to
// return, so their positions, once read, hold until then.
struct WaitingFrame {
  const char* frame = nullptr;  // null: not known
  std::uint32_t id = 0;         // its stack; 0: not read yet
  std::uint32_t depth = 0;      // frames of that stack
};
constexpr std::uint32_t kMaxWaiting = 64;  // scopes nested deeper have none

struct PythonThread {
  // What each launch, allocation and scope looks at: one cache line.
  alignas(64) std::uint32_t open = 0;       // scopes that are open on this thread
  std::uint32_t scope_count = 0;            // scope ids given out
  std::uint64_t attached = 0;               // the region call that this thread works for; 0: none
  const ScopeEntry* innermost = nullptr;    // the innermost open scope
  KnownScope* opened_last = nullptr;        // in `scopes`; null after `scopes` grew
  Object* root = nullptr;                   // the outermost module that is being called, borrowed
  std::uint64_t region = 0;                 // the region call of the outermost open scope
  const ThreadState* main_state = nullptr;  // of the main thread, where it is known; null: to be asked for
  std::uint32_t code_epoch = 0;             // g_code_epoch when `stacks` last looked
  bool without_frames = false;              // a driver call came while no Python ran here: no thread of Python's

  // The frames, shims too, that the last walk met: the next one meets most of them. Asked for ahead, never followed.
  static constexpr std::size_t kWalked = 8;
  alignas(64) const char* walked[kWalked] = {};

  FlatMap<AddressKey, KnownScope, 64> scopes;  // by the object's address
  WaitingFrame waiting[kMaxWaiting];           // by scope, outermost first; the first `open` of them hold
  StackTree stacks;
};

// Null: no memory.
PythonThread* python_thread(record::ThreadLog& log) noexcept;

}  // namespace grape::python::scopes
