#include "python_hooks/state/globals_plan.h"

#include <new>
#include <unordered_map>
#include <unordered_set>

#include "python_hooks/cpython_objects.h"
#include "python_hooks/state/code_names.h"
#include "python_hooks/state/code_origin.h"

namespace grape::python::state {
namespace {

std::string text_of_name(Object* text) {
  char name[256];
  return text != nullptr && is_text(text) ? std::string(name, copy_text(text, name, sizeof(name))) : std::string();
}

// Code that was made by code that ran: a lambda, a function inside of another. Likely made anew in each call.
std::unordered_set<Object*> inner_codes(const ExecutedCode::State& code) {
  std::unordered_set<Object*> inner;
  for (const CodeKey& key : code.codes) {
    const Reference constants(g_api.PyObject_GetAttrString(key.code, "co_consts"));
    for (std::size_t i = 0; constants && i < item_count(constants.get()); ++i) {
      Object* constant = tuple_data(constants.get())[i];
      if (type_of(constant) == g_api.PyCode_Type) inner.insert(constant);
    }
  }
  return inner;
}

// A class whose methods are inner code: its class statement ran in the call, and would again.
bool made_in_call(Object* type, const std::unordered_set<Object*>& inner) {
  Object* dict = type::dict(type);
  std::ptrdiff_t position = 0;
  for (Object *name, *value; dict != nullptr && g_api.PyDict_Next(dict, &position, &name, &value) != 0;) {
    if (is_function(value) && inner.count(function_parts(value).code) != 0) return true;
  }
  return false;
}

class Planner {
 public:
  explicit Planner(GlobalsPlan& plan) : plan_(plan), modules_(g_api.PyImport_GetModuleDict()) {
    Object* builtins = imported_module("builtins");
    builtins_ = builtins != nullptr ? module_dict(builtins) : nullptr;
  }

  bool names_of(const CodeKey& key) {
    std::vector<NameUse> uses;
    if (!read_names(key.code, key.globals, uses)) return false;
    code_ = key.code;
    users_code_ = origin_of(key.code, key.globals) == CodeOrigin::kUser;
    for (const NameUse& use : uses) {
      if (use.kind == NameUse::Kind::kImport) {
        import(use);
      } else {
        follow(global(key.globals, use), use);
      }
    }
    return true;
  }

  void type(Object* type) {
    if (is_heap_type(type) && types_.insert(type).second) keep(plan_.types, type);
  }

  // Code of the user's reads sys.modules itself, and so modules by names that it does not show.
  bool reads_modules() const { return reads_modules_; }

  // What decides whether a logger is enabled: its level and its parents', and the manager's.
  void logger(Object* logger) {
    constexpr int kMostParents = 64;
    for (int i = 0; i < kMostParents && logger != nullptr && logger != g_api._Py_NoneStruct; ++i) {
      Object* dict = instance_dict(logger);
      if (dict == nullptr || !loggers_.insert(logger).second) return;
      for (const char* name : {"level", "disabled", "propagate"}) attribute(dict, name, "a logger");
      Object* manager = attribute(dict, "manager", "a logger");
      Object* managers = manager != nullptr ? instance_dict(manager) : nullptr;
      if (managers != nullptr) attribute(managers, "_disable", "logging.Manager");
      logger = attribute(dict, "parent", "a logger");
    }
  }

 private:
  static void keep(std::vector<Object*>& list, Object* object) {
    list.push_back(object);
    g_api.Py_IncRef(object);
  }

  // The watch of `dict`'s names. The reference is valid until the next call.
  WatchedNames& names(Object* dict, const char* owner) {
    const auto found = by_dict_.find(dict);
    if (found != by_dict_.end()) return plan_.names[found->second];
    const std::string module = owner != nullptr ? owner : text_of_name(dict_item(dict, "__name__"));
    const bool users = owner == nullptr && origin_of_globals(dict) == CodeOrigin::kUser;
    by_dict_.emplace(dict, plan_.names.size());
    plan_.names.emplace_back(dict, users, module);
    return plan_.names.back();
  }

  Object* value(Object* dict, const char* owner, Object* name, bool set_by_code = false) {
    Object* value = names(dict, owner).add(name, set_by_code);
    if (value != nullptr && is_empty_container(value) && empty_.insert(value).second) keep(plan_.empty, value);
    return value;
  }

  Object* attribute(Object* dict, const char* name, const char* owner) {
    const Reference text(g_api.PyUnicode_InternFromString(name));
    return text ? value(dict, owner, text.get()) : nullptr;
  }

  Object* global(Object* globals, const NameUse& use) {
    Object* found = value(globals, nullptr, use.name, use.kind == NameUse::Kind::kStore);
    if (found != nullptr || use.kind == NameUse::Kind::kStore) return found;
    Object* own = dict_item(globals, "__builtins__");  // a module, or its dictionary
    Object* dict = own == nullptr ? nullptr : is_dict(own) ? own : module_dict(own);
    dict = dict != nullptr ? dict : builtins_;
    return dict != nullptr ? value(dict, "builtins", use.name) : nullptr;
  }

  void follow(Object* value_now, const NameUse& use) {
    for (std::size_t i = 0; i < use.attributes.size(); ++i) {
      if (value_now == nullptr) return;
      if (is_type(value_now)) return type(value_now);
      Object* dict = module_dict(value_now);
      if (dict == nullptr) return;
      value_now = value(dict, nullptr, use.attributes[i], use.stores && i + 1 == use.attributes.size());
    }
    if (use.escapes && !use.stores && value_now != nullptr) escape(value_now);
  }

  // Whoever has a module may read any of its names, by whichever way. Of the user's all are watched, of a library's
  // those that the same code names. Modules among these are not followed further.
  void escape(Object* module) {
    if (module == modules_ && users_code_) reads_modules_ = true;
    Object* dict = module_dict(module);
    if (dict == nullptr) return;
    if (!is_users_module(dict)) {
      const Reference names(g_api.PyObject_GetAttrString(code_, "co_names"));
      for (std::size_t i = 0; names && i < item_count(names.get()); ++i) {
        Object* name = tuple_data(names.get())[i];
        if (dict_has(dict, name)) value(dict, nullptr, name);
      }
      return;
    }
    if (!escaped_.insert(dict).second) return;
    std::vector<Object*> found;
    std::ptrdiff_t position = 0;
    for (Object *name, *held; g_api.PyDict_Next(dict, &position, &name, &held) != 0;) {
      if (is_text(name) && text_of_name(name).substr(0, 2) != "__") found.push_back(name);
    }
    for (Object* name : found) value(dict, nullptr, name);
  }

  static bool dict_has(Object* dict, Object* name) {
    const bool has = g_api.PyDict_GetItemWithError(dict, name) != nullptr;
    if (!has) g_api.PyErr_Clear();
    return has;
  }

  void import(const NameUse& use) {
    const Reference name(g_api.PyUnicode_InternFromString(use.module.c_str()));
    if (name && modules_ != nullptr) follow(value(modules_, "sys.modules", name.get()), use);
    // "import a.b" gives a; all the way down to b may be read of it.
    const std::size_t dot = use.module.find('.');
    if (!use.escapes || dot == std::string::npos) return;
    const Reference top(g_api.PyUnicode_InternFromString(use.module.substr(0, dot).c_str()));
    Object* package = top && modules_ != nullptr ? value(modules_, "sys.modules", top.get()) : nullptr;
    if (package != nullptr) escape(package);
  }

  GlobalsPlan& plan_;
  Object *modules_, *builtins_;
  std::unordered_map<Object*, std::size_t> by_dict_;
  std::unordered_set<Object*> types_, loggers_, empty_, escaped_;
  Object* code_ = nullptr;  // that is being read; borrowed
  bool users_code_ = false;
  bool reads_modules_ = false;
};

// Where frames do not name their functions, the functions are looked for where functions stand: in the globals of the
// code, in classes, and in the closures of functions that are found.
class FunctionFinder {
 public:
  explicit FunctionFinder(const ExecutedCode::State& code) {
    for (const CodeKey& key : code.codes) codes_.insert(key.code);
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

// The functions that ran and are still there, each once; borrowed.
std::vector<Object*> functions_of(const ExecutedCode::State& code, const GlobalsPlan& plan) {
  if (g_layout.frame_function < 0) {
    FunctionFinder finder(code);
    std::unordered_set<Object*> dicts;
    for (const CodeKey& key : code.codes) dicts.insert(key.globals);
    for (Object* type : plan.types) {
      Object* bases = type::mro(type);
      for (std::size_t i = 0; i < item_count(bases); ++i) dicts.insert(type::dict(tuple_data(bases)[i]));
    }
    dicts.erase(nullptr);
    for (Object* dict : dicts) finder.look_in(dict);
    return std::move(finder.found());
  }
  std::vector<Object*> found;
  std::unordered_set<Object*> seen;
  for (Object* reference : code.functions) {
    Object* function = referent(reference);
    if (function != g_api._Py_NoneStruct && seen.insert(function).second) found.push_back(function);
  }
  return found;
}

// Code of the user's that ran with a closure, and of which no function was found.
std::vector<Object*> unknown_closures(const ExecutedCode::State& code, const std::vector<FunctionMark>& functions,
                                      const std::unordered_set<Object*>& inner) {
  std::unordered_set<Object*> known = inner;
  for (const FunctionMark& mark : functions) known.insert(function_parts(mark.function()).code);
  std::vector<Object*> unknown;
  for (const CodeKey& key : code.codes) {
    const Reference names(g_api.PyObject_GetAttrString(key.code, "co_freevars"));
    if (!names || item_count(names.get()) == 0 || origin_of(key.code, key.globals) != CodeOrigin::kUser) continue;
    if (known.insert(key.code).second) unknown.push_back(key.code);
  }
  return unknown;
}

// The dictionary behind os.environ; a new reference, or null.
Object* environment() {
  Object* os = imported_module("os");
  Object* dict = os != nullptr ? module_dict(os) : nullptr;
  Object* environ = dict != nullptr ? dict_item(dict, "environ") : nullptr;
  Object* data = environ != nullptr ? g_api.PyObject_GetAttrString(environ, "_data") : nullptr;
  if (data == nullptr) g_api.PyErr_Clear();
  return data;
}

Object* warning_filters() noexcept {
  Object* warnings = imported_module("warnings");
  Object* dict = warnings != nullptr ? module_dict(warnings) : nullptr;
  Object* filters = dict != nullptr ? dict_item(dict, "filters") : nullptr;
  return filters != nullptr && type_of(filters) == g_api.PyList_Type ? filters : nullptr;
}

bool same_filter(Object* one, Object* other) noexcept {
  if (one == other) return true;
  if (type_of(one) != g_api.PyTuple_Type || type_of(other) != g_api.PyTuple_Type) return false;
  const std::size_t count = item_count(one);
  if (count != item_count(other)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (tuple_data(one)[i] != tuple_data(other)[i]) return false;
  }
  return true;
}

}  // namespace

bool is_empty_container(Object* object) noexcept {
  Object* type = type_of(object);
  if (type == g_api.PyDict_Type || type == g_api.PyList_Type || type == g_named_types.ordered_dict) {
    return item_count(object) == 0;
  }
  return type == g_api.PySet_Type && set_size(object) == 0;
}

FunctionMark::FunctionMark(Object* function, bool users) : function_(function), reference_(function) {
  const FunctionParts parts = function_parts(function);
  parts_[0] = parts.code;
  parts_[1] = parts.defaults;
  parts_[2] = parts.keyword_defaults;
  parts_[3] = parts.closure;
  if (!users && parts.closure != nullptr) {
    for (std::size_t i = 0; i < item_count(parts.closure); ++i) {
      cells_.emplace_back(cell_content(tuple_data(parts.closure)[i]), true);
    }
  }
  if (parts.closure != nullptr) {
    reference_ = g_api.PyWeakref_NewRef(function, nullptr);
    if (reference_ == nullptr) throw std::bad_alloc();
  } else {
    g_api.Py_IncRef(function);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    if (parts_[i] != nullptr) g_api.Py_IncRef(parts_[i]);
  }
}

FunctionMark::FunctionMark(FunctionMark&& other) noexcept
    : function_(other.function_), reference_(other.reference_), cells_(std::move(other.cells_)) {
  for (std::size_t i = 0; i < 4; ++i) parts_[i] = other.parts_[i];
  other.reference_ = nullptr;
}

FunctionMark::~FunctionMark() {
  if (reference_ == nullptr) return;
  g_api.Py_DecRef(reference_);
  for (std::size_t i = 0; i < 3; ++i) {
    if (parts_[i] != nullptr) g_api.Py_DecRef(parts_[i]);
  }
}

bool FunctionMark::holds() const noexcept {
  if (reference_ != function_ && referent(reference_) != function_) return true;
  const FunctionParts parts = function_parts(function_);
  if (parts.code != parts_[0] || parts.defaults != parts_[1] || parts.keyword_defaults != parts_[2]) return false;
  if (parts.closure != parts_[3]) return false;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (!cells_[i].is_or_equals(cell_content(tuple_data(parts.closure)[i]))) return false;
  }
  return true;
}

std::string FunctionMark::name() const {
  char name[256] = "";
  return qualified_name(function_, name, sizeof(name)) ? name : "a function";
}

ContextVariable::ContextVariable(Object* variable) : variable_(variable) {
  g_api.Py_IncRef(variable);
  take_again();
}

ContextVariable::~ContextVariable() {
  if (variable_ != nullptr) g_api.Py_DecRef(variable_);
}

ContextVariable::ContextVariable(ContextVariable&& other) noexcept
    : variable_(other.variable_), value_(std::move(other.value_)) {
  other.variable_ = nullptr;
}

Reference ContextVariable::now() const noexcept {
  Object* value = nullptr;
  if (g_api.PyContextVar_Get(variable_, nullptr, &value) != 0) g_api.PyErr_Clear();
  return Reference(value);
}

bool ContextVariable::untouched() const noexcept { return value_.held() && value_.is(now().get()); }

void ContextVariable::take_again() { value_ = Held(now().get(), false); }

bool ContextVariable::walk(Walk& into) const {
  const Reference value = now();
  const bool there = static_cast<bool>(value);
  into.add_bytes(&there, sizeof there);
  if (!there) return true;
  const Reference name(g_api.PyObject_GetAttrString(variable_, "name"));
  return into.add(value.get(), ("the context variable " + text_of_name(name.get())).c_str());
}

WarningFilters::WarningFilters() {
  Object* filters = warning_filters();
  known_ = filters != nullptr;
  for (std::size_t i = 0; known_ && i < item_count(filters); ++i) {
    filters_.push_back(list_data(filters)[i]);
    g_api.Py_IncRef(filters_.back());
  }
}

WarningFilters::~WarningFilters() {
  for (Object* filter : filters_) g_api.Py_DecRef(filter);
}

bool WarningFilters::hold() const noexcept {
  Object* filters = warning_filters();
  if (filters == nullptr || item_count(filters) != filters_.size()) return filters == nullptr && !known_;
  for (std::size_t i = 0; i < filters_.size(); ++i) {
    if (!same_filter(list_data(filters)[i], filters_[i])) return false;
  }
  return true;
}

GlobalsPlan::~GlobalsPlan() {
  for (auto* list : {&types, &empty, &alone}) {
    for (Object* object : *list) g_api.Py_DecRef(object);
  }
  if (environment != nullptr) g_api.Py_DecRef(environment);
}

bool GlobalsPlan::make(const ExecutedCode::State& code, std::string& reason) {
  if (!instructions_known()) {
    reason = "this Python's instructions are not known: its module opcode is not imported";
    return false;
  }
  Planner planner(*this);
  for (const CodeKey& key : code.codes) {
    if (!planner.names_of(key)) throw std::bad_alloc();
  }
  if (planner.reads_modules()) {
    reason = "reads sys.modules";
    return false;
  }
  const std::unordered_set<Object*> inner = inner_codes(code);
  for (Object* type : code.types) {
    if (!made_in_call(type, inner)) planner.type(type);
  }
  for (Object* logger : code.loggers) planner.logger(logger);
  for (Object* variable : code.contexts) contexts.emplace_back(variable);
  for (const WatchedNames& watched : names) {
    if (Object* name = watched.set_to_unknown()) {
      reason = "sets the global " + watched.name_of(name);
      return false;
    }
  }
  for (Object* function : functions_of(code, *this)) {
    const FunctionParts parts = function_parts(function);
    const bool users = origin_of(parts.code, parts.globals) == CodeOrigin::kUser;
    functions.emplace_back(function, users);
    if (!users || inner.count(parts.code) != 0) continue;
    Object* reference = g_api.PyWeakref_NewRef(function, nullptr);
    if (reference == nullptr) throw std::bad_alloc();
    alone.push_back(reference);
  }
  if (g_layout.frame_function < 0) closures = unknown_closures(code, functions, inner);
  if (code.reads_environment) environment = state::environment();
  return true;
}

}  // namespace grape::python::state
