// Scopes: what is called (a module, an optimizer, a function, the backward pass) and the calls that are open. All of it
// under the GIL, except attach().
#pragma once

#include <cstdint>

#include "compressor/trace/event.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/scopes/python_thread.h"

namespace grape::python::scopes {

// Something that can be called: a module, an optimizer, a function. Never freed; stands for another object when the
// address is used again.
struct ScopeEntry {
  const void* address = nullptr;
  Object* reference = nullptr;  // weak; null: the object lives for good
  trace::ScopeKind kind = trace::ScopeKind::kModule;
  std::uint32_t version = 1;  // bumped when the definitions in the threads' logs no longer hold
  std::uint32_t walk = 0;     // modules: the last walk through a root that met it; 0: none did
  std::uint32_t misses = 0;   // roots: unknown modules that were called under it
  bool excluded = false;      // by GRAPE_EXCLUDE
  char* name = nullptr;       // malloc; null: ""
  char* type = nullptr;

  bool alive() const noexcept { return reference == nullptr || referent(reference) == address; }
};

// Bumped with the version of an entry that a thread may know. Under the GIL.
extern std::uint32_t g_scope_epoch;

// The entry of an object that may die; null: no memory, or it cannot be referred to weakly.
ScopeEntry* object_scope(Object* object, trace::ScopeKind kind) noexcept;

// The entry of something that lives for good.
ScopeEntry* lasting_scope(const void* address, trace::ScopeKind kind, const char* name, const char* type) noexcept;

// Is this the register's own weak reference to an object? With the GIL.
bool refers_for_its_name(const Object* reference, const Object* object) noexcept;
// The path of a module in its root, found by a walk through the root's children where it is not known yet. `root`: the
// outermost module that this thread is calling, null: `module` itself.
void name_module(ScopeEntry* module, Object* root) noexcept;

// An open call, kept by the one who opened it.
struct OpenScope {
  std::uint32_t id = 0;  // 0: not opened
  bool written = false;  // its begin is in the trace
  std::uint32_t open_before = 0;
  std::uint64_t number = 0;  // its region call; 0: nested
  Object* root_before = nullptr;
  const ScopeEntry* innermost_before = nullptr;
};

// Opens a scope on this thread. Call close() with the same `scope` in any case. errno is kept.
void open_module(record::ThreadLog& log, Object* module, OpenScope& scope) noexcept;
void open_object(record::ThreadLog& log, Object* object, trace::ScopeKind kind, OpenScope& scope) noexcept;
void open_lasting(record::ThreadLog& log, ScopeEntry* entry, OpenScope& scope) noexcept;
void close(const OpenScope& scope, bool raised) noexcept;

// The backward passes that are open in the process, by their region call.
void backward_begins(std::uint64_t region) noexcept;
void backward_ends(std::uint64_t region) noexcept;

}  // namespace grape::python::scopes
