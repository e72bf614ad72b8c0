#include "shim/driver/function_facts.h"

namespace grape::driver {

InCall in_call_of(std::string_view base) noexcept {
#define GRAPE_FUNCTION(name, class_, action, effects, ...)                                           \
  if (constexpr FunctionFacts kFacts = effects; kFacts.in_call != InCall::kByClass && base == #name) \
    return kFacts.in_call;
#include "shim/driver/hooks.def"
  return InCall::kByClass;
}

}  // namespace grape::driver
