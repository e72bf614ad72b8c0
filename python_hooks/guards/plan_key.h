// Tells whether two observed calls ran the same code on the same classes and functions. While a guard of the first one
// holds, its plan is the second one's as well. Making plans is the dearest part of a look. With the GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/guards/globals_plan.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/strong.h"
#include "python_hooks/observation/executed_code_state.h"
#include "python_hooks/walk/held.h"

namespace grape::python::guards {

// Keeps alive: code, its globals, classes, loggers, context variables. Of functions it has weak references.
class PlanKey {
 public:
  // `plan` was made of `code` just now. Throws std::bad_alloc.
  void take(const observation::ExecutedCode::State& code, const GlobalsPlan& plan);
  // Would `code` give the same plan, if all that the plan watches is as it was? False as well where the plan depends on
  // more: on os.environ, or on classes that were made in the call or may be made later.
  bool fits(const observation::ExecutedCode::State& code) const;

 private:
  void keep(const std::vector<Object*>& objects);

  bool known_ = false;
  std::uint32_t met_ = 0, origins_ = 0;
  std::vector<observation::CodeKey> codes_;
  std::vector<Object*> types_, loggers_, contexts_;
  std::vector<walk::Held> functions_;
  std::vector<Strong> kept_;  // all of these but the functions
};

}  // namespace grape::python::guards
