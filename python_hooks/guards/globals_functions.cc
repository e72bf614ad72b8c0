// The functions that ran: which they are, and whether they are as they were.
#include <new>
#include <unordered_set>

#include "python_hooks/guards/globals_plan.h"
#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::guards {
namespace {

// Where frames do not name their functions, the functions are looked for where functions stand: in the globals of the
// code, in classes, and in the closures of functions that are found.
class FunctionFinder {
 public:
  explicit FunctionFinder(const observation::ExecutedCode::State& code) {
    for (const observation::CodeKey& key : code.codes) codes_.insert(key.code);
  }

  void look_in(Object* dict) {
    std::ptrdiff_t position = 0;
    for (Object *name, *value; g_api.PyDict_Next(dict, &position, &name, &value) != 0;) look_at(value, 0);
  }
  std::vector<Object*>& found() { return found_; }

 private:
  static constexpr int kDeepest = 8;

  void look_at(Object* value, int depth) {
    if (depth > kDeepest) return;
    Object* type = type_of(value);
    if (type == g_api.PyStaticMethod_Type || type == g_api.PyClassMethod_Type) value = wrapped_function(value);
    if (type == g_api.PyProperty_Type) value = property_part(value, 0);
    if (value == nullptr || !is_function(value) || !seen_.insert(value).second) return;
    const FunctionParts parts = function_parts(value);
    if (codes_.count(parts.code) != 0) found_.push_back(value);
    for (std::size_t i = 0; parts.closure != nullptr && i < item_count(parts.closure); ++i) {
      Object* content = cell_content(tuple_data(parts.closure)[i]);
      if (content != nullptr) look_at(content, depth + 1);
    }
  }

  std::unordered_set<Object*> codes_, seen_;
  std::vector<Object*> found_;
};

}  // namespace

std::vector<Object*> functions_of(const observation::ExecutedCode::State& code, const GlobalsPlan& plan) {
  if (g_layout.frame_function < 0) {
    FunctionFinder finder(code);
    std::unordered_set<Object*> dicts;
    for (const observation::CodeKey& key : code.codes) dicts.insert(key.globals);
    for (const Strong& type : plan.types) {
      Object* bases = type::mro(type.get());
      for (std::size_t i = 0; i < item_count(bases); ++i) dicts.insert(type::dict(tuple_data(bases)[i]));
    }
    dicts.erase(nullptr);
    for (Object* dict : dicts) finder.look_in(dict);
    return std::move(finder.found());
  }
  return living_functions(code);
}

std::vector<Object*> living_functions(const observation::ExecutedCode::State& code) {
  std::vector<Object*> found;
  std::unordered_set<Object*> seen;
  for (Object* reference : code.functions) {
    Object* function = referent(reference);
    if (function != g_api._Py_NoneStruct && seen.insert(function).second) found.push_back(function);
  }
  return found;
}

std::vector<Object*> unknown_closures(const observation::ExecutedCode::State& code,
                                      const std::vector<FunctionMark>& functions,
                                      const std::unordered_set<Object*>& inner) {
  std::unordered_set<Object*> known = inner;
  for (const FunctionMark& mark : functions) known.insert(function_parts(mark.function()).code);
  std::vector<Object*> unknown;
  for (const observation::CodeKey& key : code.codes) {
    const Reference names(g_api.PyObject_GetAttrString(key.code, "co_freevars"));
    if (!names || item_count(names.get()) == 0 || origin_of(key.code, key.globals) != CodeOrigin::kUser) continue;
    if (known.insert(key.code).second) unknown.push_back(key.code);
  }
  return unknown;
}

FunctionMark::FunctionMark(Object* function, bool users) : function_(function) {
  const FunctionParts parts = function_parts(function);
  code_ = Strong(parts.code);
  defaults_ = Strong(parts.defaults);
  keyword_defaults_ = Strong(parts.keyword_defaults);
  closure_ = parts.closure;
  for (std::size_t i = 0; !users && closure_ != nullptr && i < item_count(closure_); ++i) {
    cells_.emplace_back(cell_content(tuple_data(closure_)[i]), true);
  }
  const Reference weak(closure_ != nullptr ? g_api.PyWeakref_NewRef(function, nullptr) : nullptr);
  if (closure_ != nullptr && !weak) throw std::bad_alloc();
  reference_ = Strong(weak ? weak.get() : function);
}

bool FunctionMark::holds() const noexcept {
  if (reference_.get() != function_ && referent(reference_.get()) != function_) return true;
  const FunctionParts parts = function_parts(function_);
  if (parts.code != code_.get() || parts.defaults != defaults_.get()) return false;
  if (parts.keyword_defaults != keyword_defaults_.get() || parts.closure != closure_) return false;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (!cells_[i].is_or_equals(cell_content(tuple_data(closure_)[i]))) return false;
  }
  return true;
}

// An address that is no more is not followed.
void FunctionMark::fetch() const noexcept {
  const auto* function = reinterpret_cast<const char*>(function_);
  __builtin_prefetch(function + g_layout.function_code);
  __builtin_prefetch(function + g_layout.function_defaults + 16);  // the closure
  if (closure_ != nullptr) __builtin_prefetch(reinterpret_cast<const char*>(reference_.get()) + 16);
  if (!cells_.empty()) __builtin_prefetch(cells_.data());
}

std::string FunctionMark::name() const {
  char name[256] = "";
  return qualified_name(function_, name, sizeof(name)) ? name : "a function";
}

}  // namespace grape::python::guards
