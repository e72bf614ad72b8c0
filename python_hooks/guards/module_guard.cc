#include "python_hooks/guards/module_guard.h"

#include <new>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_versions.h"

namespace grape::python::guards {
namespace {

// Hooks that every module's call runs; of torch.nn.modules.module.
constexpr const char* kGlobalHooks[] = {"_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
                                        "_global_backward_pre_hooks", "_global_forward_hooks_always_called"};
constexpr std::size_t kGlobalHookCount = sizeof kGlobalHooks / sizeof *kGlobalHooks;

// The dictionaries of those hooks as they stand in torch's module; looked up again only when that has changed, and
// looked at only when one of them has reported a change, where they do.
class GlobalHooks {
 public:
  // Null: there are none; else the name of one that has some.
  const char* find() noexcept {
    if (module_ == nullptr) {
      module_ = new_reference(imported_dict("torch.nn.modules.module"));
      if (module_ == nullptr) return nullptr;
    }
    if (reported_ && !reports_.changed()) return found_;
    if (reported_ || !tells_of_changes(module_) || version_ != dict_version(module_)) look_up();
    found_ = nullptr;
    for (std::size_t i = 0; i < kGlobalHookCount && found_ == nullptr; ++i) {
      if (hooks_[i] != nullptr && g_api.PyDict_Size(hooks_[i]) != 0) found_ = kGlobalHooks[i];
    }
    return found_;
  }

 private:
  void look_up() noexcept {
    const KeepException keep;
    reports_.clear();
    reported_ = reports_changes(module_) && reports_.add(module_);
    for (std::size_t i = 0; i < kGlobalHookCount; ++i) {
      hooks_[i] = dict_item(module_, kGlobalHooks[i]);
      if (hooks_[i] != nullptr && !is_dict(hooks_[i])) hooks_[i] = nullptr;
      if (hooks_[i] != nullptr) reported_ = reported_ && reports_changes(hooks_[i]) && reports_.add(hooks_[i]);
    }
    version_ = dict_version(module_);
  }

  Object* module_ = nullptr;  // its dictionary, a reference held
  std::uint64_t version_ = 0;
  Object* hooks_[kGlobalHookCount] = {};  // borrowed from it; null: no dictionary
  DictReports reports_;
  bool reported_ = false;  // all of them report
  const char* found_ = nullptr;
};

GlobalHooks& global_hooks() {
  static GlobalHooks& hooks = *new GlobalHooks;
  return hooks;
}

}  // namespace

bool ModuleGuard::gone() const noexcept {
  return referent(root_.get()) == g_api._Py_NoneStruct ||
         (self_.get() != nullptr && referent(self_.get()) == g_api._Py_NoneStruct);
}

bool ModuleGuard::walk_into(walk::Walk& walk) const noexcept {
  Object* first = referent(root_.get());
  return walk.add(first, is_function(first) ? "function" : "module") &&
         (self_.get() == nullptr || walk.add(referent(self_.get()), "module"));
}

std::unique_ptr<ModuleGuard> ModuleGuard::take(Object* root, Object* self, refusal::Refusal& refusal) noexcept {
  const KeepException keep;
  try {
    if (const char* hooks = global_hooks().find()) {
      return refusal::refuse(refusal, refusal::hook_for_all_modules, hooks);
    }
    std::unique_ptr<ModuleGuard> guard(new ModuleGuard);
    const NoCollection no_collection;
    const Reference weak_root(g_api.PyWeakref_NewRef(root, nullptr));
    const Reference weak_self(self != nullptr ? g_api.PyWeakref_NewRef(self, nullptr) : nullptr);
    guard->root_ = Strong(weak_root.get());
    guard->self_ = Strong(weak_self.get());
    if (!weak_root || (self != nullptr && !weak_self)) {
      return refusal::refuse(refusal, refusal::no_weak_reference);
    }
    if (guard->walked_.take([&](walk::Walk& walk) { return guard->walk_into(walk); }, refusal)) return guard;
  } catch (const std::bad_alloc&) {
    refusal = {};
  }
  return nullptr;
}

bool ModuleGuard::holds() noexcept {
  try {
    if (gone()) {
      change_ = "the module is gone";
    } else if (const char* hooks = global_hooks().find()) {
      change_ = std::string("a hook for all modules was registered (torch.nn.modules.module.") + hooks + ")";
    } else if (walked_.quick() || walked_.same([&](walk::Walk& walk) { return walk_into(walk); })) {
      return true;
    } else {
      change_ = walked_.change();
    }
  } catch (const std::bad_alloc&) {
    change_.clear();
  }
  return false;
}

const AliasRelation& ModuleGuard::sharing() {
  if (shared_walk_ != walked_.walks()) {
    sharing_.clear();
    sharing_.add(walked_.walk());
    shared_walk_ = walked_.walks();
  }
  return sharing_;
}

}  // namespace grape::python::guards
