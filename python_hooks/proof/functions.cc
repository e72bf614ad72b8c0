#include "python_hooks/proof/functions.h"

#include <new>

#include "python_hooks/replay/region.h"

namespace grape::python::proof {
const char* deferred(Object* function) noexcept {
  constexpr struct {
    long flag;  // of a code object
    const char* name;
  } kinds[] = {{0x20, "a generator"}, {0x80, "a coroutine"}, {0x200, "an asynchronous generator"}};
  const KeepException keep;
  const Reference flags(g_api.PyObject_GetAttrString(g_api.PyFunction_GetCode(function), "co_flags"));
  const long set = flags ? g_api.PyLong_AsLong(flags.get()) : 0;
  for (const auto& kind : kinds) {
    if ((set & kind.flag) != 0) return kind.name;
  }
  return nullptr;
}

Object* self_of(Object* const* arguments, std::size_t count) noexcept {
  Object* module = torch::module_class();
  if (positional_count(count) == 0 || module == nullptr) return nullptr;
  return g_api.PyType_IsSubtype(type_of(arguments[0]), module) != 0 ? arguments[0] : nullptr;
}

bool takes_self_as_argument(const replay::Region& region) noexcept {
  return region.budget.self_changes >= (region.inner ? 1 : 2);  // before it is given up for that
}

Object* lasting_argument(const replay::Region& region) noexcept {
  if (!region.evidence.self_is_argument) return nullptr;
  return region.of_function() ? region.self : region.root;
}

void note_change_of_self(replay::Region& region, const replay::Call& call) noexcept {
  const bool of_module = !region.of_function() || call.self != nullptr;
  if (of_module && !region.evidence.self_is_argument) ++region.budget.self_changes;
}

bool never_comes_again(replay::Region& region, const replay::Signature& signature) noexcept {
  constexpr std::uint32_t kMostStates = 4;  // in a row that did not come again
  if (region.of_function() || !region.evidence.self_is_argument || region.statistics.replayed != 0) return false;
  region.budget.states = signature.calls == 1 ? region.budget.states + 1 : 0;
  return region.budget.states > kMostStates;
}

void give_self_as_argument(replay::Region& region, replay::Call& call) noexcept {
  if (!region.of_function()) call.root = call.function;
  call.self = nullptr;
  call.first = 0;
  if (region.evidence.self_is_argument) return;
  region.evidence.self_is_argument = true;
  region.drop_proofs();
  region.evidence.guard = nullptr;
  region.evidence.cast_weights.clear();
  region.budget.failures = 0;
}

void refuse_deferred(replay::Region& region, Object* root) noexcept {
  const char* kind = region.of_function() ? deferred(root) : nullptr;
  if (kind == nullptr) return;
  region.given_up = true;
  try {
    region.reasons.add(refusal::make(refusal::deferred, kind));
  } catch (const std::bad_alloc&) {  // then without a reason
  }
}

}  // namespace grape::python::proof
