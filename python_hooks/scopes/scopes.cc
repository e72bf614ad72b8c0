#include "python_hooks/scopes/scopes.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "python_hooks/scopes/frames.h"
#include "python_hooks/scopes/positions.h"
#include "shim/lifecycle/hot.h"

namespace grape::python::scopes {
namespace {

using trace::EventKind;
using trace::pack;
using trace::ScopeKind;

std::atomic<std::uint64_t> g_region_calls{0};

// The region call that all open backward passes belong to; 0: none is open, or they belong to several.
GRAPE_HOT std::atomic<std::uint64_t> g_backward{0};
constexpr std::size_t kMaxBackwards = 64;
std::uint64_t g_backwards[kMaxBackwards];
std::size_t g_backward_count = 0;

void publish_backward() {
  const std::uint64_t first = g_backward_count != 0 ? g_backwards[0] : 0;
  bool same = g_backward_count <= kMaxBackwards;
  for (std::size_t i = 0; same && i < g_backward_count; ++i) same = g_backwards[i] == first;
  g_backward.store(same ? first : 0, std::memory_order_release);
}

// 0: no room for the definition.
std::uint32_t define(record::ThreadLog& log, PythonThread& thread, const ScopeEntry& entry) {
  const char* name = entry.name != nullptr ? entry.name : "";
  const char* type = entry.type != nullptr ? entry.type : "";
  const std::size_t name_bytes = std::strlen(name), type_bytes = std::strlen(type);
  const auto count = static_cast<std::uint32_t>(3 + trace::words_for(name_bytes) + trace::words_for(type_bytes));
  std::uint64_t* words = log.begin(EventKind::kDefScope, 0, count, record::Stamp{record::ticks(), 0});
  if (words == nullptr) return 0;
  words[0] = pack(thread.scope_count + 1, static_cast<std::uint32_t>(entry.kind));
  words[1] = reinterpret_cast<std::uintptr_t>(entry.address);
  words[2] = pack(static_cast<std::uint32_t>(name_bytes), static_cast<std::uint32_t>(type_bytes));
  const std::size_t used = put_text(words + 3, name, name_bytes);
  put_text(words + 3 + used, type, type_bytes);
  log.commit();
  return ++thread.scope_count;
}

// What this thread knows of the scope from now on; id 0: excluded, or it cannot be told.
KnownScope learn(record::ThreadLog& log, PythonThread& thread, ScopeEntry* entry) {
  if (entry == nullptr) return KnownScope{};
  thread.opened_last = nullptr;
  KnownScope scope;
  scope.entry = entry;
  scope.reference = entry->reference;
  scope.version = entry->version;
  scope.epoch = g_scope_epoch;
  scope.id = entry->excluded ? 0 : define(log, thread, *entry);
  if (scope.id != 0 || entry->excluded) thread.scopes.put(AddressKey{entry->address}, scope);
  return scope;
}

// Null: not known to this thread, or no longer what it was.
KnownScope* find_known(PythonThread& thread, const void* address) {
  KnownScope* scope = thread.scopes.find(AddressKey{address});
  if (scope == nullptr) return nullptr;
  if (__builtin_expect(scope->epoch != g_scope_epoch, 0)) {
    if (scope->version != scope->entry->version) return nullptr;
    scope->epoch = g_scope_epoch;
  }
  return scope->reference == nullptr || referent(scope->reference) == address ? scope : nullptr;
}

// A model calls its modules in the same order again and again, each time so much later that they left the near caches.
void fetch_ahead(PythonThread& thread, KnownScope& opened) {
  if (KnownScope* before = thread.opened_last) {
    before->next[0] = &opened;
    before->next[1] = opened.reference;
  }
  thread.opened_last = &opened;
  for (const void* address : opened.next) __builtin_prefetch(address);
}

KnownScope learn_object(record::ThreadLog& log, PythonThread& thread, Object* object, ScopeKind kind) {
  const KeepException keep;
  ScopeEntry* entry = object_scope(object, kind);
  if (kind == ScopeKind::kModule && entry != nullptr && entry->walk == 0) name_module(entry, thread.root);
  return learn(log, thread, entry);
}

// `stack`: where the call came from, of an outermost one. `frame`: the one that calls.
__attribute__((always_inline)) inline void begin(record::ThreadLog& log, PythonThread& thread, const KnownScope& known,
                                                 std::uint32_t stack, const char* frame, OpenScope& scope) {
  scope.id = known.id;
  scope.open_before = thread.open;
  scope.root_before = thread.root;
  scope.innermost_before = thread.innermost;
  if (__builtin_expect(thread.open < kMaxWaiting, 1)) thread.waiting[thread.open] = {frame, 0, 0};
  ++thread.open;
  thread.innermost = known.entry;
  std::uint64_t* words = log.begin(EventKind::kScopeBegin, known.id, 2, record::Stamp{record::ticks(), 0});
  if (words == nullptr) return;
  words[0] = pack(known.id, stack);
  words[1] = scope.number;
  log.commit();
  scope.written = true;
}

void open(record::ThreadLog& log, PythonThread& thread, const KnownScope& known, OpenScope& scope) {
  std::uint32_t frame = 0;
  if (thread.open == 0) {
    attach(log);
    // A thread that works for another one's region opens no region call of its own.
    scope.number = thread.attached == 0 ? g_region_calls.fetch_add(1, std::memory_order_relaxed) + 1 : 0;
    thread.region = thread.attached == 0 ? scope.number : thread.attached;
    frame = current_stack(log);
  }
  begin(log, thread, known, frame, waiting_frame(), scope);
}

// Closed in another order than opened (greenlets that share a thread): nobody knows who waits for whom.
__attribute__((cold, noinline)) void forget_waiting(PythonThread& thread) {
  std::fill(std::begin(thread.waiting), std::end(thread.waiting), WaitingFrame{});
}

// The first time, or the outermost.
__attribute__((noinline)) void open_module_carefully(record::ThreadLog& log, Object* module,
                                                     OpenScope& scope) noexcept {
  const int saved = errno;
  if (PythonThread* thread = python_thread(log)) {
    KnownScope* found = find_known(*thread, module);
    if (found != nullptr) fetch_ahead(*thread, *found);
    const KnownScope known = found != nullptr ? *found : learn_object(log, *thread, module, ScopeKind::kModule);
    if (known.id != 0) {
      open(log, *thread, known, scope);
      if (thread->root == nullptr) thread->root = module;
    }
  }
  errno = saved;
}

}  // namespace

void open_module(record::ThreadLog& log, Object* module, OpenScope& scope) noexcept {
  // A module inside of another one that this thread has called before, in few cache lines of code and data.
  auto* thread = static_cast<PythonThread*>(log.python.data);
  if (__builtin_expect(thread == nullptr || thread->open == 0 || thread->main_state == nullptr ||
                           !g_straight.open.load(std::memory_order_acquire),
                       0)) {
    return open_module_carefully(log, module, scope);
  }
  KnownScope* known = find_known(*thread, module);
  if (__builtin_expect(known == nullptr || known->id == 0, 0)) return open_module_carefully(log, module, scope);
  fetch_ahead(*thread, *known);
  begin(log, *thread, *known, 0, straight_innermost(thread->main_state), scope);
  if (__builtin_expect(thread->root == nullptr, 0)) thread->root = module;
}

void open_object(record::ThreadLog& log, Object* object, ScopeKind kind, OpenScope& scope) noexcept {
  const int saved = errno;
  if (PythonThread* thread = python_thread(log)) {
    const KnownScope* found = find_known(*thread, object);
    const KnownScope known = found != nullptr ? *found : learn_object(log, *thread, object, kind);
    // A step that calls what it wraps is one step.
    const bool repeated = thread->open != 0 && thread->innermost == known.entry;
    if (known.id != 0 && !repeated) open(log, *thread, known, scope);
  }
  errno = saved;
}

void open_lasting(record::ThreadLog& log, ScopeEntry* entry, OpenScope& scope) noexcept {
  const int saved = errno;
  if (PythonThread* thread = python_thread(log)) {
    const KnownScope* found = find_known(*thread, entry->address);
    const KnownScope known = found != nullptr ? *found : learn(log, *thread, entry);
    if (known.id != 0) open(log, *thread, known, scope);
  }
  errno = saved;
}

void close(const OpenScope& scope, bool raised) noexcept {
  if (scope.id == 0) return;
  bool written = false;  // whatever the thread may have left meanwhile, its scope is closed
  record::ThreadLog* log = record::open_thread_log(written);
  if (log == nullptr || log->python.data == nullptr) return;
  PythonThread& thread = *static_cast<PythonThread*>(log->python.data);
  if (__builtin_expect(thread.open != scope.open_before + 1, 0)) forget_waiting(thread);
  thread.open = scope.open_before;
  thread.root = scope.root_before;
  thread.innermost = scope.innermost_before;
  if (scope.written && written) {
    std::uint64_t* words = log->begin(EventKind::kScopeEnd, scope.id, 2, record::Stamp{record::ticks(), 0});
    if (words != nullptr) {
      words[0] = pack(scope.id, raised ? 1 : 0);
      words[1] = scope.number;
      log->commit();
    }
  }
}

void backward_begins(std::uint64_t region) noexcept {
  if (g_backward_count < kMaxBackwards) g_backwards[g_backward_count] = region;
  ++g_backward_count;
  publish_backward();
}

void backward_ends(std::uint64_t region) noexcept {
  if (g_backward_count == 0) return;
  const std::size_t held = g_backward_count < kMaxBackwards ? g_backward_count : kMaxBackwards;
  for (std::size_t i = 0; i < held; ++i) {
    if (g_backwards[i] != region) continue;
    g_backwards[i] = g_backwards[held - 1];
    break;
  }
  --g_backward_count;
  publish_backward();
}

void attach(record::ThreadLog& log) noexcept {
  const std::uint64_t wanted = g_backward.load(std::memory_order_acquire);
  auto* thread = static_cast<PythonThread*>(log.python.data);
  if (thread == nullptr) {
    if (wanted == 0) return;
    thread = python_thread(log);
    if (thread == nullptr) return;
  }
  if (thread->open != 0 || wanted == thread->attached) return;
  // A thread of Python's own (a data loader's, say) runs Python code whenever it calls the driver. Autograd's does not.
  if (wanted != 0 && !thread->without_frames && g_frames_checked.load(std::memory_order_acquire) && !shutting_down()) {
    RawFrame innermost;
    if (read_frames(&innermost, 1) != 0) return;
    thread->without_frames = true;
  }
  std::uint64_t* words = log.begin(EventKind::kScopeAttach, 0, 1, record::Stamp{record::ticks(), 0});
  if (words == nullptr) return;
  words[0] = wanted;
  log.commit();
  thread->attached = wanted;
}

}  // namespace grape::python::scopes
