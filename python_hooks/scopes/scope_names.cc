// The process's register of scopes, and the names of modules in their roots.
#include <cstdlib>
#include <cstring>
#include <new>

#include "python_hooks/interpreter/patterns.h"
#include "python_hooks/scopes/scopes.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"

namespace grape::python::scopes {

GRAPE_HOT std::uint32_t g_scope_epoch = 1;

namespace {

using trace::ScopeKind;

constexpr std::size_t kMaxPath = 1024;
constexpr int kMaxModuleDepth = 100;
constexpr std::uint32_t kEagerWalks = 8;  // under one root; then only every 64th unknown module is looked for

using Register = FlatMap<AddressKey, ScopeEntry*>;
std::uint32_t g_walks = 0;

// Never freed: wrappers may run after destructors.
Register* scope_register() {
  static Register* entries = new (std::nothrow) Register;
  return entries;
}

ScopeEntry* entry_at(const void* address) {
  Register* entries = scope_register();
  if (entries == nullptr) return nullptr;
  if (ScopeEntry** found = entries->find(AddressKey{address})) return *found;
  auto* entry = new (std::nothrow) ScopeEntry;
  if (entry == nullptr || !entries->put(AddressKey{address}, entry)) {
    delete entry;
    return nullptr;
  }
  return entry;
}

void set_text(char*& field, const char* text) {
  std::free(field);
  field = *text != 0 ? strdup(text) : nullptr;
}

// What the threads have written down of it no longer holds.
void changed(ScopeEntry& entry) {
  ++entry.version;
  ++g_scope_epoch;
}

// The entry now stands for the object that lives at its address.
bool take_over(ScopeEntry* entry, Object* object, ScopeKind kind) {
  Object* reference = g_api.PyWeakref_NewRef(object, nullptr);
  if (reference == nullptr) {
    g_api.PyErr_Clear();
    return false;
  }
  Object* const before = entry->reference;
  char type[kMaxPath];
  if (!qualified_name(type_of(object), type, sizeof(type))) type[0] = 0;
  entry->address = object;
  entry->reference = reference;
  entry->kind = kind;
  entry->walk = 0;
  entry->misses = 0;
  entry->excluded = matches(config().exclude, type);
  set_text(entry->name, kind == ScopeKind::kOptimizer ? "step" : "");
  set_text(entry->type, type);
  changed(*entry);
  if (before != nullptr) g_api.Py_DecRef(before);  // read until now, by threads that know the entry
  return true;
}

void name_children(Object* module, char (&path)[kMaxPath], std::size_t length, std::uint32_t walk, int depth);

void name_child(Object* key, Object* child, char (&path)[kMaxPath], std::size_t length, std::uint32_t walk, int depth) {
  if (!is_text(key) || child == g_api._Py_NoneStruct || length + 2 >= kMaxPath) return;
  ScopeEntry* entry = object_scope(child, ScopeKind::kModule);
  if (entry == nullptr || entry->walk == walk) return;
  std::size_t used = length;
  if (used != 0) path[used++] = '.';
  used += copy_text(key, path + used, kMaxPath - used - 1);
  path[used] = 0;
  // Of several paths the one from the largest root.
  if (entry->walk == 0 || used > (entry->name != nullptr ? std::strlen(entry->name) : 0)) {
    if (entry->name == nullptr || std::strcmp(entry->name, path) != 0) changed(*entry);
    set_text(entry->name, path);
  }
  entry->walk = walk;
  name_children(child, path, used, walk, depth + 1);
}

void name_children(Object* module, char (&path)[kMaxPath], std::size_t length, std::uint32_t walk, int depth) {
  if (depth > kMaxModuleDepth) return;
  const Reference attributes(g_api.PyObject_GenericGetDict(module, nullptr));
  Object* children = attributes && is_dict(attributes.get()) ? dict_item(attributes.get(), "_modules") : nullptr;
  if (children == nullptr || !is_dict(children)) return;
  each_pair(g_api.PyDict_Items(children),
            [&](Object* key, Object* child) { name_child(key, child, path, length, walk, depth); });
}

void walk_root(ScopeEntry* root) {
  char path[kMaxPath];
  const std::size_t length = root->name != nullptr ? std::strlen(root->name) : 0;
  if (length >= kMaxPath) return;
  std::memcpy(path, length != 0 ? root->name : "", length + 1);
  root->walk = ++g_walks;
  // Borrowed from the weak reference: the one who calls the root keeps it alive.
  name_children(static_cast<Object*>(const_cast<void*>(root->address)), path, length, root->walk, 0);
}

}  // namespace

ScopeEntry* object_scope(Object* object, ScopeKind kind) noexcept {
  ScopeEntry* entry = entry_at(object);
  if (entry == nullptr) return nullptr;
  const bool current = entry->address == object && entry->reference != nullptr && entry->alive();
  return current || take_over(entry, object, kind) ? entry : nullptr;
}

ScopeEntry* lasting_scope(const void* address, ScopeKind kind, const char* name, const char* type) noexcept {
  ScopeEntry* entry = entry_at(address);
  if (entry == nullptr) return nullptr;
  entry->address = address;
  entry->kind = kind;
  entry->excluded = matches(config().exclude, type);
  set_text(entry->name, name);
  set_text(entry->type, type);
  changed(*entry);
  return entry;
}

bool refers_for_its_name(const Object* reference, const Object* object) noexcept {
  Register* entries = scope_register();
  ScopeEntry** found = entries != nullptr ? entries->find(AddressKey{object}) : nullptr;
  return found != nullptr && (*found)->address == object && (*found)->reference == reference;
}

void name_module(ScopeEntry* module, Object* root) noexcept {
  if (root != nullptr) {
    // A module that was added to its root after the root was walked, or one that is in nobody's `_modules`.
    ScopeEntry* root_entry = object_scope(root, ScopeKind::kModule);
    if (root_entry != nullptr && (++root_entry->misses <= kEagerWalks || root_entry->misses % 64 == 0)) {
      walk_root(root_entry);
    }
  }
  if (module->walk == 0) walk_root(module);
}

}  // namespace grape::python::scopes
