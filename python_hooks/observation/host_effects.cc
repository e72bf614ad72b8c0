#include "python_hooks/observation/host_effects.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/flat_map.h"
#include "python_hooks/interpreter/memory_map.h"
#include "shim/lifecycle/log.h"

namespace grape::python::observation {
namespace {

// METH_VARARGS | METH_KEYWORDS, of the flags that say how a function gets its arguments.
constexpr int kVarargsAndKeywords = 1 | 2, kMethodFlags = 1 | 2 | 4 | 8 | 0x80 | 0x200;

struct Row {
  bool python;  // its functions are written in Python
  EffectKind kind;
  const char* module;
  const char* names;           // separated by blanks
  const char* said = nullptr;  // what a person calls it, where the name says little
  bool done = false;
};

Row g_rows[] = {
#define NATIVE(kind, ...) {false, EffectKind::k##kind, __VA_ARGS__},
#define PYTHON(kind, ...) {true, EffectKind::k##kind, __VA_ARGS__},
#include "python_hooks/observation/host_effects.def"
#undef NATIVE
#undef PYTHON
};

FlatMap<AddressKey, const HostEffect*>& effects_by_code() {
  static auto* effects = new FlatMap<AddressKey, const HostEffect*>;
  return *effects;
}

bool next_word(std::string_view& words, std::string_view& word) {
  while (!words.empty() && words.front() == ' ') words.remove_prefix(1);
  const std::size_t end = words.find(' ');
  word = words.substr(0, end);
  words.remove_prefix(end == std::string_view::npos ? words.size() : end);
  return !word.empty();
}

bool excluded(const char* names, std::string_view name) {
  std::string_view words = names, word;
  while (next_word(words, word)) {
    if (word.front() == '-' && word.substr(1) == name) return true;
  }
  return false;
}

Object* attribute(Object* object, std::string_view name) {  // a new reference, or null
  return g_api.PyObject_GetAttrString(object, std::string(name).c_str());
}

// "time.sleep()", "datetime.now()", "Tensor.grad": as a user would write it, without the C module's underscore.
HostEffect effect_named(const Row& row, std::string_view owner, std::string_view name, bool is_attribute) {
  HostEffect effect = {};
  effect.attribute = is_attribute;
  effect.kind = row.kind;
  std::string_view where = row.module;
  where.remove_prefix(where.rfind('.') + 1);
  where.remove_prefix(std::min(where.find_first_not_of('_'), where.size()));
  if (where == "posix") where = "os";
  if (where == "C") where = "torch";
  if (std::strcmp(row.module, "builtins") == 0) {
    where = {};
  } else if (!owner.empty()) {
    where = owner == "TensorBase" ? "Tensor" : owner == "StorageBase" ? "UntypedStorage" : owner;
  }
  if (row.said != nullptr) {
    std::snprintf(effect.name, sizeof effect.name, "%s", row.said);
  } else {
    std::snprintf(effect.name, sizeof effect.name, "%.*s%s%.*s%s", static_cast<int>(where.size()), where.data(),
                  where.empty() ? "" : ".", static_cast<int>(name.size()), name.data(), is_attribute ? "" : "()");
  }
  return effect;
}

bool add_code(Object* code, const HostEffect& effect) {
  if (effects_by_code().find({code}) != nullptr) return true;
  g_api.Py_IncRef(code);
  // For good, as the code: it belongs to a module of the system's.
  return effects_by_code().put({code}, new HostEffect(effect));  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
}

// Finds the functions of a row.
class Finder {
 public:
  Finder(const Row& row, const AddressSpace& memory) : row_(row), memory_(memory) {}

  // False: one cannot be watched.
  bool find(Object* module) {
    std::string_view words = row_.names, word;
    while (next_word(words, word)) {
      const std::size_t bracket = word.find('['), dot = word.find('.');
      if (word == "*") {
        add_all(module, "");
      } else if (word.front() == '-') {
        continue;
      } else if (bracket != std::string_view::npos) {
        const Reference owner(attribute(module, word.substr(0, bracket)));
        if (owner) add_special(owner.get(), word.substr(0, bracket), word.substr(bracket));
      } else if (dot != std::string_view::npos) {
        const Reference type(attribute(module, word.substr(0, dot)));
        if (!type) continue;  // a class, or a module of its own
        if (word.substr(dot + 1) == "*") {
          add_all(type.get(), word.substr(0, dot));
        } else {
          add_named(type.get(), word.substr(0, dot), word.substr(dot + 1));
        }
      } else {
        add_named(module, "", word);
      }
    }
    return complete_;
  }

 private:
  void add_place(void** place, std::string_view owner, std::string_view name, bool is_attribute = false) {
    // A place that cannot be written is no interpreter's that we know: what is called there would be missed.
    if (!memory_.is_writable(place) || !add_trap(place, effect_named(row_, owner, name, is_attribute))) {
      complete_ = false;
    }
  }

  void add(Object* callable, std::string_view owner, std::string_view name) {
    if (row_.python) {
      if (!is_function(callable)) return;
      complete_ = add_code(g_api.PyFunction_GetCode(callable), effect_named(row_, owner, name, false)) && complete_;
      return;
    }
    MethodDefinition* definition = definition_of(callable);
    if (definition == nullptr) return;
    // These are asked for their arguments as such functions get them.
    const bool asked = row_.kind == EffectKind::kDraws || row_.kind == EffectKind::kCompares;
    if (!asked || (definition->flags & kMethodFlags) == kVarargsAndKeywords)
      add_place(&definition->method, owner, name);
  }

  void add_named(Object* holder, std::string_view owner, std::string_view name) {
    const Reference callable(attribute(holder, name));
    if (callable) add(callable.get(), owner, name);
  }

  void add_special(Object* type, std::string_view owner, std::string_view special) {
    constexpr std::string_view kGet = "[get:", kSet = "[set:", kCapsule = "[capsule:";
    if (special.substr(0, kCapsule.size()) == kCapsule) return add_of_capsule(type, special.substr(kCapsule.size()));
    if (!is_type(type)) return;
    if (special == "[new]") return add_place(new_slot(type), owner, "__new__");
    if (special == "[dealloc]") return add_place(dealloc_slot(type), owner, "__del__");
    const std::string_view what = special.substr(0, kGet.size());
    if (what != kGet && what != kSet) return add_slot(type, owner, special);
    const std::string_view name = special.substr(kGet.size(), special.size() - kGet.size() - 1);
    const Reference descriptor(attribute(type, name));
    void** getter = descriptor ? getter_of(descriptor.get()) : nullptr;
    if (getter != nullptr) add_place(what == kGet ? getter : getter + 1, owner, name, true);
  }

  // A table of functions, as C APIs of extensions are.
  void add_of_capsule(Object* capsule, std::string_view index) {
    auto** table = static_cast<void**>(g_api.PyCapsule_GetPointer(capsule, g_api.PyCapsule_GetName(capsule)));
    if (table != nullptr) return add_place(table + std::strtol(index.data(), nullptr, 10), "", row_.names);
    g_api.PyErr_Clear();
    complete_ = false;
  }

  void add_slot(Object* type, std::string_view owner, std::string_view slot) {
    const bool init = slot == "[init]";
    const char* name = init ? "__init__" : "__next__";
    add_place(init ? init_slot(type) : next_slot(type), owner, name);
    const Reference method(attribute(type, name));  // what subclasses call
    if (method && wrapped_slot(method.get()) != nullptr) add_place(wrapped_slot(method.get()), owner, name);
  }

  void add_all(Object* holder, std::string_view owner) {
    const Reference dict(attribute(holder, "__dict__"));
    each_pair(dict ? g_api.PyMapping_Items(dict.get()) : nullptr, [&](Object* key, Object* value) {
      if (!is_text(key)) return;
      char text[64];
      const std::string_view name(text, copy_text(key, text, sizeof(text)));
      // Construction, comparison, pickling: nothing outside. Context managers close files.
      if (name.substr(0, 2) == "__" && name != "__enter__" && name != "__exit__") return;
      if (!excluded(row_.names, name)) add(value, owner, name);
    });
  }

  const Row& row_;
  const AddressSpace& memory_;
  bool complete_ = true;
};

bool g_complete = true;

void find_all() {
  std::unique_ptr<const AddressSpace> memory;
  for (Row& row : g_rows) {
    Object* module = row.done ? nullptr : imported_module(row.module);
    if (module == nullptr || module == g_api._Py_NoneStruct) continue;
    if (memory == nullptr) memory = std::make_unique<const AddressSpace>();
    g_complete = Finder(row, *memory).find(module) && g_complete;
    row.done = true;
  }
}

}  // namespace

bool find_effects() noexcept {
  if (!g_complete) return false;
  try {
    find_all();
  } catch (...) {  // no memory
    g_complete = false;
  }
  if (!g_complete) notice("no replay: what a call does outside the process's state cannot be watched");
  return g_complete;
}

const HostEffect* effect_of(Object* code) noexcept {
  const HostEffect* const* effect = effects_by_code().find({code});
  return effect != nullptr ? *effect : nullptr;
}

}  // namespace grape::python::observation
