#include "python_hooks/control/strict.h"

#include <new>

#include "python_hooks/report/advice.h"

namespace grape::python::replay {

Object* raise_not_replayed(const Region& region, const std::string& reason, const std::string& place) noexcept {
  try {
    std::string text = "GRAPE_STRICT: " + region.name + " is not replayed: " + reason;
    if (!place.empty()) text += ", at " + place;
    const Advice& advice = advice_for(reason);
    if (*advice.text != '\0') text += std::string(". ") + advice.text;
    g_api.PyErr_SetString(exception(g_api.PyExc_RuntimeError), text.c_str());
  } catch (const std::bad_alloc&) {
    g_api.PyErr_NoMemory();
  }
  return nullptr;
}

}  // namespace grape::python::replay
