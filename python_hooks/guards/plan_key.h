// Tells whether two observed calls ran the same code on the same classes and functions. The plan of a GlobalsGuard that
// holds is the second one's as well then, and making plans is the dearest part of a look. With the GIL.
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
  // Would `code` give the same plan, if all that the plan watches is as it was? False as well where that depends on
  // more: on classes that were made in the call, or that anybody may make later; on os.environ.
  bool fits(const observation::ExecutedCode::State& code) const;

 private:
  bool known_ = false;
  std::uint32_t met_ = 0, origins_ = 0;
  std::vector<Strong> codes_;  // each with its globals behind it
  std::vector<Strong> types_, loggers_, contexts_;
  std::vector<walk::Held> functions_;
};

}  // namespace grape::python::guards
