#include <string>

#include "python_hooks/walk/walker.h"

namespace grape::python::walk {

namespace {

std::string step_name(const Path& step) { return step.object != nullptr ? text_value(step.object) : step.text; }

// Children, parameters and buffers of modules stand in dictionaries that Python code does not name.
bool is_hidden(const Path& step, const Path* next) {
  if (step.step != Path::Step::kAttribute || next == nullptr || next->step != Path::Step::kKey ||
      !is_text(next->object)) {
    return false;
  }
  const std::string name = step_name(step);
  return name == "_modules" || name == "_parameters" || name == "_buffers";
}

void append(const Path& path, const Path* next, std::string& out) {
  if (path.from != nullptr) append(*path.from, &path, out);
  const bool child = path.from != nullptr && is_hidden(*path.from, &path);
  switch (path.step) {
    case Path::Step::kRoot:
      out += path.text;
      break;
    case Path::Step::kAttribute:
      if (!is_hidden(path, next)) out += "." + step_name(path);
      break;
    case Path::Step::kKey:
      if (child) {
        out += "." + text_value(path.object);
      } else if (is_text(path.object)) {
        out += "['" + text_value(path.object) + "']";
      } else {
        int overflow = 0;
        const bool number = is_exactly(path.object, g_api.PyLong_Type);
        out += number ? "[" + std::to_string(g_api.PyLong_AsLongLongAndOverflow(path.object, &overflow)) + "]"
                      : "[a " + full_type_name(type_of(path.object)) + "]";
      }
      break;
    case Path::Step::kIndex:
      out += "[" + std::to_string(path.index) + "]";
      break;
    case Path::Step::kNote:
      out += std::string(" (") + path.text + ")";
      break;
  }
}

}  // namespace

std::string render(const Path& path) {
  std::string out;
  append(path, nullptr, out);
  return out;
}

}  // namespace grape::python::walk
