#include "python_hooks/guards/globals_plan.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "python_hooks/guards/class_names.h"
#include "python_hooks/interpreter/code_names.h"
#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::guards {
namespace {

// What is in a tuple of the code's; borrowed from it.
std::vector<Object*> items_of(Object* code, const char* tuple) {
  const Reference items(g_api.PyObject_GetAttrString(code, tuple));
  return items ? std::vector<Object*>(tuple_data(items.get()), tuple_data(items.get()) + item_count(items.get()))
               : std::vector<Object*>();
}

// The code's names, and its constants, among which there may be more.
std::vector<Object*> names_in(Object* code) {
  std::vector<Object*> names = items_of(code, "co_names");
  const std::vector<Object*> constants = items_of(code, "co_consts");
  names.insert(names.end(), constants.begin(), constants.end());
  return names;
}

// Code that was made by code that ran: a lambda, a function inside of another. Likely made anew in each call.
std::unordered_set<Object*> inner_codes(const observation::ExecutedCode::State& code) {
  std::unordered_set<Object*> inner;
  for (const observation::CodeKey& key : code.codes) {
    for (Object* constant : items_of(key.code, "co_consts")) {
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
  explicit Planner(GlobalsPlan& plan)
      : plan_(plan), modules_(g_api.PyImport_GetModuleDict()), builtins_(imported_dict("builtins")) {}

  bool names_of(const observation::CodeKey& key) {
    std::vector<NameUse> uses;
    if (!read_names(key.code, key.globals, uses)) return false;
    code_ = key.code;
    users_code_ = origin_of(key.code, key.globals) == CodeOrigin::kUser;
    if (users_code_ && !attributes_known()) return true;
    for (Object* name : users_code_ ? names_in(code_) : std::vector<Object*>()) {
      if (is_exactly(name, g_api.PyUnicode_Type)) attributes_.insert(name);  // alive as long as the code
    }
    for (const NameUse& use : uses) {
      if (use.kind == NameUse::Kind::kImport) {
        import(use);
      } else {
        follow(global(key.globals, use), use);
      }
    }
    return true;
  }

  // What the user's code names of the classes whose methods ran, and their own content leaves out: data in libraries'
  // classes, where the program may have put it; names with two underscores on both sides, which are also looked for in
  // classes of the user's none of whose methods ran ("type(part).__settings__").
  void class_data(const std::unordered_set<Object*>& inner) {
    std::unordered_set<Object*> classes;
    std::vector<Object*> own;
    std::copy_if(attributes_.begin(), attributes_.end(), std::back_inserter(own), is_own_dunder);
    plan_.looks_for_classes = !own.empty();
    for (Object* one : classes_that_define(own)) {
      if (!walk::is_library_class(one) && !made_in_call(one, inner) && classes.insert(one).second) class_data_of(one);
    }
    for (std::size_t i = 0; i < plan_.types.size(); ++i) {
      Object* mro = type::mro(plan_.types[i].get());
      for (std::size_t at = 0; mro != nullptr && at < item_count(mro); ++at) {
        Object* one = tuple_data(mro)[at];
        if (type::is_heap(one) && classes.insert(one).second) class_data_of(one);
      }
    }
  }

  void type(Object* type) {
    if (type::is_heap(type) && types_.insert(type).second) plan_.types.emplace_back(type);
  }

  // What code of the user's reads that cannot be guarded ("sys.modules", and so modules by names that it does not
  // show); null: nothing.
  const char* reads() const { return reads_; }
  // Does it ask exceptions which one was handled before?
  bool asks_handled() const { return asks_handled_; }

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

  // Of an operator that torch.library.custom_op() made, and whose kernel ran: its functions, and which are disabled.
  void operator_kernels(Object* closure) {
    Object* type = closure != nullptr ? module_member("torch._library.custom_ops", "CustomOpDef") : nullptr;
    for (std::size_t i = 0; type != nullptr && i < item_count(closure); ++i) {
      Object* content = cell_content(tuple_data(closure)[i]);
      Object* dict = content != nullptr && type_of(content) == type ? instance_dict(content) : nullptr;
      if (dict == nullptr) continue;
      const bool added = by_dict_.emplace(dict, plan_.names.size()).second;
      if (added) plan_.names.emplace_back(dict, false, "an operator", true);
      for (const char* name : {"_backend_fns", "_disabled_kernel", "_init_fn"}) attribute(dict, name, "an operator");
    }
  }

  // Which thread runs, and what it is called.
  void thread() {
    plan_.thread = g_api.PyThread_get_thread_ident();
    Object* active = module_member("threading", "_active");
    const Reference number(g_api.PyLong_FromUnsignedLongLong(plan_.thread));
    if (active == nullptr || !is_dict(active) || !number) return;
    Object* own = dict_item(active, number.get());
    Object* dict = own != nullptr ? instance_dict(own) : nullptr;
    if (dict != nullptr) attribute(dict, "_name", "a thread");
    if (dict != nullptr) attribute(dict, "_daemonic", "a thread");
  }

 private:
  void class_data_of(Object* one) {
    const bool librarys = walk::is_library_class(one);
    std::vector<Object*> found;
    std::ptrdiff_t position = 0;
    for (Object *name, *held; g_api.PyDict_Next(type::dict(one), &position, &name, &held) != 0;) {
      if (attributes_.count(name) == 0 || !(librarys || walk::is_dunder(name))) continue;
      if (is_type(held)) {
        if (!librarys) type(held);
      } else if (is_data(held)) {
        found.push_back(name);
      }
    }
    for (Object* name : found) value(type::dict(one), type::name(one), name, false, true);
  }

  // The watch of `dict`'s names. The reference is valid until the next call.
  NamedValues& names(Object* dict, const char* owner) {
    const auto found = by_dict_.find(dict);
    if (found != by_dict_.end()) return plan_.names[found->second];
    const std::string module = owner != nullptr ? owner : text_or_empty<256>(dict_item(dict, "__name__"));
    const bool users = owner == nullptr && origin_of_globals(dict) == CodeOrigin::kUser;
    by_dict_.emplace(dict, plan_.names.size());
    plan_.names.emplace_back(dict, users, module, owner == nullptr);
    return plan_.names.back();
  }

  // `by_value`: see NamedValues.
  Object* value(Object* dict, const char* owner, Object* name, bool set_by_code = false, bool by_value = false) {
    Object* value = names(dict, owner).add(name, set_by_code, by_value);
    if (value == modules_ && users_code_ && modules_ != nullptr) reads_ = "sys.modules";
    return value;
  }

  // What is named of functions, frames, exceptions and modules that stands in no state. Code of a class statement names
  // the first of them to set it.
  bool attributes_known() {
    constexpr unsigned long kOptimized = 1;  // a function's code
    const Reference flags(g_api.PyObject_GetAttrString(code_, "co_flags"));
    if (!flags || (static_cast<unsigned long>(g_api.PyLong_AsLong(flags.get())) & kOptimized) == 0) return true;
    for (Object* name : names_in(code_)) {
      for (const char* hidden :
           {"__annotations__", "__annotate__", "__globals__", "__import__", "f_back", "f_globals", "f_builtins"}) {
        if (text_is(name, hidden)) reads_ = hidden;
      }
      if (text_is(name, "__context__")) asks_handled_ = true;
    }
    return reads_ == nullptr;
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
    return dict != nullptr ? value(dict, nullptr, use.name, false, users_code_) : nullptr;
  }

  void follow(Object* value_now, const NameUse& use) {
    for (std::size_t i = 0; i < use.attributes.size(); ++i) {
      if (value_now == nullptr) return;
      Object* name = use.attributes[i];
      if (is_type(value_now)) {
        type(value_now);
        value_now = users_code_ ? class_attribute(value_now, name) : nullptr;
        continue;
      }
      Object* dict = module_dict(value_now);
      if (dict == nullptr) {
        if (users_code_) own_attribute(value_now, name);
        return;
      }
      if (text_is(name, "__dict__")) return escape(value_now);
      module_class(value_now);
      value_now = value(dict, nullptr, name, use.stores && i + 1 == use.attributes.size(), users_code_);
      if (value_now == nullptr) attribute(dict, "__getattr__", nullptr);
    }
    if (use.stores || value_now == nullptr) return;
    if (users_code_ && is_type(value_now)) type(value_now);
    if (use.escapes) escape(value_now);
  }

  void module_class(Object* module) {
    if (modules_seen_.insert(module).second) plan_.modules.push_back({Strong(module), type_of(module)});
  }

  // Data that a library's class holds.
  Object* class_attribute(Object* type, Object* name) {
    Object* mro = type::mro(type);
    for (std::size_t i = 0; mro != nullptr && i < item_count(mro); ++i) {
      Object* dict = type::dict(tuple_data(mro)[i]);
      Object* found = dict != nullptr ? dict_item(dict, name) : nullptr;
      if (found == nullptr) continue;
      if (!is_type(found)) value(dict, type::name(tuple_data(mro)[i]), name, false, true);
      return found;
    }
    return nullptr;
  }

  // What a library's function or logger was given.
  void own_attribute(Object* object, Object* name) {
    Object* logger = module_member("logging", "Logger");
    const bool is_logger = logger != nullptr && is_type(logger) && g_api.PyType_IsSubtype(type_of(object), logger) != 0;
    if (!is_function(object) && !is_logger) return;
    if (is_function(object)) plan_.functions.emplace_back(object, false);  // "__defaults__", "__code__"
    const Reference dict(walk::own_dict(object));
    char owner[256] = "a logger";
    if (is_function(object)) qualified_name(object, owner, sizeof(owner));
    if (dict && (is_function(object) || dict_item(dict.get(), name) != nullptr))
      value(dict.get(), owner, name, false, true);
  }

  // Whoever has a module may read any of its names, by whichever way. Of the user's all are watched; of a library's all
  // where the user's code has it, but for what it keeps for itself and this code does not name; else those that the
  // same code names. Modules among these are not followed further.
  void escape(Object* module) {
    if (module == modules_ && users_code_) reads_ = "sys.modules";
    Object* dict = module_dict(module);
    if (dict == nullptr) return;
    module_class(module);
    const bool users = is_users_module(dict);
    if (!users) {
      for (Object* name : users_code_ ? names_in(code_) : items_of(code_, "co_names")) {
        if (is_exactly(name, g_api.PyUnicode_Type) && dict_item(dict, name) != nullptr) {
          value(dict, nullptr, name, false, users_code_);
        }
      }
      if (!users_code_) return;
    }
    if (!escaped_.insert(dict).second) return;
    std::vector<Object*> found;
    std::ptrdiff_t position = 0;
    for (Object *name, *held; g_api.PyDict_Next(dict, &position, &name, &held) != 0;) {
      if (held != modules_ && NamedValues::counts(name, users)) found.push_back(name);
    }
    for (Object* name : found) value(dict, nullptr, name);
    names(dict, nullptr).take_whole();
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
  std::unordered_set<Object*> types_, loggers_, escaped_, modules_seen_;
  std::unordered_set<Object*> attributes_;  // interned names in the user's code
  Object* code_ = nullptr;                  // that is being read; borrowed
  bool users_code_ = false, asks_handled_ = false;
  const char* reads_ = nullptr;
};

}  // namespace

bool GlobalsPlan::make(const observation::ExecutedCode::State& code, refusal::Refusal& refusal) {
  if (!instructions_known()) return refusal::refuse(refusal, refusal::unknown_instructions);
  Planner planner(*this);
  for (const observation::CodeKey& key : code.codes) {
    if (!planner.names_of(key)) throw std::bad_alloc();
  }
  if (planner.reads() != nullptr) return refusal::refuse(refusal, refusal::reads_hidden, planner.reads());
  if (code.has_met(observation::EffectKind::kHandled) || planner.asks_handled()) {
    if (handles_exception()) return refusal::refuse(refusal, refusal::asks_handled_exception);
    nothing_handled = true;
  }
  sees_storages = code.has_met(observation::EffectKind::kStorage);
  if (code.has_met(observation::EffectKind::kAbstract)) abstract_token = guards::abstract_token();
  if (code.has_met(observation::EffectKind::kThread)) planner.thread();
  const std::unordered_set<Object*> inner = inner_codes(code);
  for (Object* type : code.types) {
    if (!made_in_call(type, inner)) planner.type(type);
  }
  planner.class_data(inner);
  for (Object* logger : code.loggers) planner.logger(logger);
  for (Object* variable : code.contexts) contexts.emplace_back(variable);
  for (const NamedValues& watched : names) {
    if (Object* name = watched.set_to_unknown()) {
      return refusal::refuse(refusal, refusal::sets_global, watched.name_of(name));
    }
  }
  for (Object* function : functions_of(code, *this)) {
    const FunctionParts parts = function_parts(function);
    const bool users = origin_of(parts.code, parts.globals) == CodeOrigin::kUser;
    functions.emplace_back(function, users);
    if (!users) planner.operator_kernels(parts.closure);
    if (!users || inner.count(parts.code) != 0) continue;
    const Reference reference(g_api.PyWeakref_NewRef(function, nullptr));
    if (!reference) throw std::bad_alloc();
    alone.emplace_back(reference.get());
  }
  if (g_layout.frame_function < 0) closures = unknown_closures(code, functions, inner);
  if (code.has_met(observation::EffectKind::kEnvironment)) {
    Object* environ = module_member("os", "environ");
    const Reference data(environ != nullptr ? g_api.PyObject_GetAttrString(environ, "_data") : nullptr);
    environment = Strong(data.get());
  }
  return true;
}

}  // namespace grape::python::guards
