#include "python_hooks/control/strict.h"

#include <new>

namespace grape::python::replay {

Object* raise_not_replayed(const Region& region, const refusal::Refusal& refusal) noexcept {
  try {
    std::string text = "GRAPE_STRICT: " + region.name + " is not replayed: " + refusal::in_words(refusal);
    const char* const advice = refusal::advice_of(refusal.id);
    if (*advice != '\0') text += std::string(". ") + advice;
    g_api.PyErr_SetString(exception(g_api.PyExc_RuntimeError), text.c_str());
  } catch (const std::bad_alloc&) {
    g_api.PyErr_NoMemory();
  }
  return nullptr;
}

refusal::Refusal last_refusal(const Region& region) noexcept {
  const Reason* last = region.reasons.last();
  try {
    return last != nullptr ? static_cast<const refusal::Refusal&>(*last) : refusal::Refusal();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace grape::python::replay
