// Guards the state of a module: everything that can be reached from it. The same of a function that is a region (code,
// defaults, closure, attributes) and of the module that the function is a method of. Walked once (walk.h, addresses
// kept), then watched by the reports or version numbers of dictionaries, the version numbers of classes, list items,
// and the addresses of tensors, parents before children, so that no pointer is followed that may be dead. Keeps nothing
// alive: the module is held by a weak reference. With the GIL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compressor/refusal/refusal.h"
#include "python_hooks/guards/alias_relation.h"
#include "python_hooks/guards/guarded_walk.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/strong.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::guards {

class ModuleGuard {
 public:
  // Of `root`, a module or a function, and of `self`, another module (null: none). Null: refused; `refusal` says what
  // (a hook on a submodule, an opaque attribute, ...) and where.
  static std::unique_ptr<ModuleGuard> take(Object* root, Object* self, refusal::Refusal& refusal) noexcept;

  // The budget for GPT-2 (150 modules, 148 parameters): 15 us when nothing has changed. If a version moved but the
  // state is the same (walked again), of the same objects, true.
  bool holds() noexcept;
  // What changed, for the report; after holds() gave false.
  const std::string& change() const noexcept { return change_; }
  // The bytes of the state: equal for guards taken of the same state.
  const std::vector<std::uint8_t>& bytes() const noexcept { return walked_.walk().bytes(); }
  // Weights and buffers on CUDA: (address, bytes) of their distinct storages.
  const std::vector<walk::StorageExtent>& extents() const noexcept { return walked_.walk().extents(); }
  const walk::DeviceSet& devices() const noexcept { return walked_.walk().devices(); }  // of its tensors
  // Borrowed; valid while holds().
  const std::vector<Object*>& objects() const noexcept { return walked_.walk().objects(); }
  const std::vector<walk::WalkedTensor>& tensors() const noexcept { return walked_.walk().tensors(); }
  // What is in it, to tell whether arguments are; after holds(). Throws std::bad_alloc.
  const AliasRelation& sharing();
  // How often everything was walked: once, and again for each time that something had moved.
  std::uint32_t walks() const noexcept { return walked_.walks(); }

 private:
  ModuleGuard() = default;
  bool gone() const noexcept;
  bool walk_into(walk::Walk& walk) const noexcept;  // neither is gone; false: refused

  Strong root_, self_;  // weak references; `self_` may be none
  GuardedWalk walked_;
  std::string change_;
  AliasRelation sharing_;
  std::uint32_t shared_walk_ = 0;  // the walk that `sharing_` was taken of
};

}  // namespace grape::python::guards
