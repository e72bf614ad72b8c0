// The plan of a GlobalsGuard: which names, functions, classes and settings of the process the executed code uses. With
// the GIL.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "python_hooks/guards/named_values.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/strong.h"
#include "python_hooks/observation/executed_code_state.h"
#include "python_hooks/observation/traps.h"
#include "python_hooks/walk/held.h"

namespace grape::python::guards {

// A function that ran: its code, defaults and closure are to stay; of a library's function also what the cells hold.
class FunctionMark {
 public:
  FunctionMark(Object* function, bool users);

  bool holds() const noexcept;  // true as well when it is gone: who led to it has changed, then
  void fetch() const noexcept;  // has what holds() looks at fetched ahead
  Object* function() const noexcept { return function_; }
  bool has_closure() const noexcept { return closure_ != nullptr; }  // of which no change is reported
  std::string name() const;

 private:
  Object* function_;  // borrowed
  Object* closure_;   // the same
  Strong reference_;  // the function itself where it has no closure, else a weak reference
  Strong code_, defaults_, keyword_defaults_;
  std::vector<walk::Held> cells_;
};

// A context variable that the code read or set, and its value on the calling thread.
class ContextVariable {
 public:
  explicit ContextVariable(Object* variable) : variable_(variable) { take_again(); }

  bool untouched() const noexcept;    // false: walk to know
  void take_again();                  // after a walk found it to be the same
  bool walk(walk::Walk& into) const;  // false: refused
  Object* variable() const noexcept { return variable_.get(); }

 private:
  Reference now() const noexcept;  // null: it has none

  Strong variable_;
  walk::Held value_;
};

// warnings.filters: who is shown a warning again.
class WarningFilters {
 public:
  WarningFilters();
  bool hold() const noexcept;

 private:
  std::vector<Strong> filters_;
  bool known_ = false;
};

// The class of a module whose names are watched: of another one's, what it is asked for may be a property.
struct ModuleClass {
  Strong module;
  Object* type;
  void fetch() const noexcept { __builtin_prefetch(module.get()); }
};

struct GlobalsPlan {
  std::vector<NamedValues> names;
  std::vector<ModuleClass> modules;
  std::vector<FunctionMark> functions;
  std::vector<ContextVariable> contexts;
  std::vector<Strong> types;
  std::vector<Strong> alone;      // weak references: functions of the user's that ran, and were not made in the call
  std::vector<Object*> closures;  // borrowed: code of the user's that ran with a closure which is not known
  Strong environment;             // the dictionary behind os.environ, if it was read
  WarningFilters filters;
  std::uint64_t settings = observation::setting_changes();
  long abstract_token = -1;        // the number of classes that abstract ones have registered; -1: not asked
  unsigned long thread = 0;        // that asked which it is; 0: none did
  bool sees_storages = false;      // the arguments' memory is to be as large as it was
  bool looks_for_classes = false;  // it depends on which classes there are in the process
  bool nothing_handled = false;    // there is to be no exception that is handled: code asks which

  // Throws std::bad_alloc. False: refused.
  bool make(const observation::ExecutedCode::State& code, refusal::Refusal& refusal);
};

// The functions that ran and are still there, each once; borrowed. Throws std::bad_alloc, as the next one does.
std::vector<Object*> functions_of(const observation::ExecutedCode::State& code, const GlobalsPlan& plan);
// Where frames name their functions.
std::vector<Object*> living_functions(const observation::ExecutedCode::State& code);
// Code of the user's that ran with a closure, and of which no function was found. `inner`: code that is left out.
std::vector<Object*> unknown_closures(const observation::ExecutedCode::State& code,
                                      const std::vector<FunctionMark>& functions,
                                      const std::unordered_set<Object*>& inner);

long abstract_token() noexcept;
bool handles_exception() noexcept;  // does the thread, by an except clause that encloses all?

}  // namespace grape::python::guards
