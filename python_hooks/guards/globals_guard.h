// Guards the state that a call's code names outside of its module and its arguments. With the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compressor/cache/cache.h"
#include "compressor/refusal/refusal.h"
#include "python_hooks/guards/alias_relation.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/observation/executed_code.h"
#include "python_hooks/walk/versions.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::guards {

// The globals, builtins, closure cells, defaults and classes that the executed code names, as they were after the call.
// What is named in the globals of installed packages and of the standard library counts by identity; in the user's by
// value (walk.h). Attributes that are read of modules by name ("torch.nn.functional.gelu") count as names of that
// module; of classes, and of the classes of methods' objects, all attributes. Also watched, where they were asked for:
// os.environ, loggers' levels, the values of context variables; warnings.filters always.
//
// A call that changes what it names is found out by a second one: the guard taken after the first must hold before the
// second and after it. (What nobody could tell from that: an attribute that is replaced by an equal tensor at the same
// address. Such a tensor is an output that no result leads to.)
//
// Watched by the versions of dictionaries and classes; name by name, then by walking, where one has moved. Keeps alive:
// code, dictionaries of modules, classes, functions without closures, plain values. Guards of the same are one inside.
class GlobalsGuard {
 public:
  // After end(), also when that gave false. Null: refused; `refusal`: a value that cannot be walked, and its name.
  static std::unique_ptr<GlobalsGuard> take(const observation::ExecutedCode& code, refusal::Refusal& refusal) noexcept;
  ~GlobalsGuard();
  // How many plans were made in this process. A call like one whose guard holds needs none (plan_key.h).
  static std::uint64_t plans() noexcept;
  bool holds() noexcept;
  const std::string& change() const noexcept;  // what is not as it was; after holds() gave false
  // Does the code see how much memory is behind a tensor (as_strided, nbytes), so that it must be as much each time?
  bool sees_storages() const noexcept;
  // The device's memory that the user's globals hold: (address, bytes) of distinct storages.
  const std::vector<walk::StorageExtent>& extents() const noexcept;
  // The tensors that the user's globals hold, one after the other: as they are now; appends; after holds(). And one of
  // them, by its number. Throws std::bad_alloc.
  void take_versions(std::vector<walk::TensorVersion>& out) const;
  Object* tensor(std::size_t number) const noexcept;
  // The values behind the names, in terms that hold in other processes (portable.h). Throws std::bad_alloc.
  cache::Digest digest() const;
  // What the user's globals hold, to tell whether arguments are among it; after holds(). Throws std::bad_alloc.
  const AliasRelation& sharing();

 private:
  GlobalsGuard();
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace grape::python::guards
