#include "python_hooks/interpreter/code_names.h"

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/instructions.h"

namespace grape::python::state {
namespace {

// The interpreter's own numbers (opcode.opmap). -1: it has no such instruction.
struct Opcodes {
  bool known = false;
  int extended_arg = -1, cache = -1, load_global = -1, load_name = -1, load_from_dict_or_globals = -1,
      store_global = -1, delete_global = -1, load_attr = -1, load_method = -1, load_const = -1, load_small_int = -1,
      import_name = -1, import_from = -1, store_attr = -1, delete_attr = -1, copy = -1, dup_top = -1;
};

const Opcodes& opcodes() noexcept {
  static Opcodes found;
  if (found.known) return found;
  found.extended_arg = opcode_number("EXTENDED_ARG");
  found.cache = opcode_number("CACHE");
  found.load_global = opcode_number("LOAD_GLOBAL");
  found.load_name = opcode_number("LOAD_NAME");
  found.load_from_dict_or_globals = opcode_number("LOAD_FROM_DICT_OR_GLOBALS");
  found.store_global = opcode_number("STORE_GLOBAL");
  found.delete_global = opcode_number("DELETE_GLOBAL");
  found.load_attr = opcode_number("LOAD_ATTR");
  found.load_method = opcode_number("LOAD_METHOD");
  found.load_const = opcode_number("LOAD_CONST");
  found.load_small_int = opcode_number("LOAD_SMALL_INT");
  found.import_name = opcode_number("IMPORT_NAME");
  found.import_from = opcode_number("IMPORT_FROM");
  found.store_attr = opcode_number("STORE_ATTR");
  found.delete_attr = opcode_number("DELETE_ATTR");
  found.copy = opcode_number("COPY");
  found.dup_top = opcode_number("DUP_TOP");
  found.known = found.extended_arg >= 0 && found.load_global >= 0 && found.load_attr >= 0 && found.import_name >= 0;
  return found;
}

std::string utf8(Object* text) {
  char name[512];
  return text != nullptr && is_text(text) ? std::string(name, copy_text(text, name, sizeof(name))) : std::string();
}

class NameReader {
 public:
  NameReader(Object* names, Object* constants, Object* globals, std::vector<NameUse>& out)
      : names_(names), constants_(constants), globals_(globals), out_(out) {}

  void read(Object* code) {
    each_instruction(code, ops_.extended_arg, ops_.cache, [this](const Instruction& instruction) {
      take(instruction.op, instruction.argument);
      before_[0] = before_[1];
      before_[1] = {instruction.op, instruction.argument};
    });
  }

 private:
  struct Before {
    int op = -1;
    std::uint32_t argument = 0;
  };

  Object* name(std::uint32_t index) const { return index < item_count(names_) ? tuple_data(names_)[index] : nullptr; }

  void take(int op, std::uint32_t argument) {
    const int minor = g_layout.minor;
    if (op == ops_.load_attr || op == ops_.load_method) {
      if (chained_) add_attribute(name(op == ops_.load_attr && minor >= 12 ? argument >> 1 : argument));
      return;
    }
    // As for "module.count += 1": what is on top is there once more.
    if (chained_ && (op == ops_.dup_top || (op == ops_.copy && argument == 1))) return;
    end_chain(op, argument);
    if (op == ops_.load_global) {
      add(NameUse::Kind::kLoad, name(minor >= 11 ? argument >> 1 : argument));
    } else if (op == ops_.load_name || op == ops_.load_from_dict_or_globals) {
      add(NameUse::Kind::kLoad, name(argument));
    } else if (op == ops_.store_global || op == ops_.delete_global) {
      add(NameUse::Kind::kStore, name(argument));
      chained_ = false;
    } else if (op == ops_.import_name) {
      imported_ = full_name(utf8(name(argument)));
      out_.push_back({NameUse::Kind::kImport, nullptr, imported_, {}});
      out_.back().escapes = imports_all();
    } else if (op == ops_.import_from) {
      out_.push_back({NameUse::Kind::kImport, nullptr, imported_, {}});
      add_attribute(name(argument));
      chained_ = true;
    }
  }

  void end_chain(int op, std::uint32_t argument) {
    if (!chained_) return;
    chained_ = false;
    if (op == ops_.store_attr || op == ops_.delete_attr) {
      add_attribute(name(argument));
      out_.back().stores = true;
    } else {
      out_.back().escapes = true;
    }
  }

  // "import a.b", not "from a import b": no list of names was loaded before.
  bool imports_all() const {
    const Before& load = before_[1];
    return load.op == ops_.load_const && load.argument < item_count(constants_) &&
           tuple_data(constants_)[load.argument] == g_api._Py_NoneStruct;
  }

  void add(NameUse::Kind kind, Object* text) {
    if (text == nullptr) return;
    out_.push_back({kind, text, {}, {}});
    chained_ = true;
  }

  void add_attribute(Object* text) {
    if (text != nullptr) out_.back().attributes.push_back(text);
  }

  // The level is the constant that was loaded last but one: how many packages to go up, counted from this one.
  long level() const {
    const Before& load = before_[0];
    if (load.op == ops_.load_small_int) return static_cast<long>(load.argument);
    if (load.op != ops_.load_const || load.argument >= item_count(constants_)) return 0;
    const long value = g_api.PyLong_AsLong(tuple_data(constants_)[load.argument]);
    if (value < 0) g_api.PyErr_Clear();
    return value > 0 ? value : 0;
  }

  std::string full_name(const std::string& module) const {
    long up = level();
    if (up == 0) return module;
    std::string package = utf8(dict_item(globals_, "__package__"));
    for (; up > 1; --up) package.resize(package.rfind('.') == std::string::npos ? 0 : package.rfind('.'));
    if (module.empty()) return package;
    return package.append(".").append(module);
  }

  const Opcodes& ops_ = opcodes();
  Object *names_, *constants_, *globals_;
  std::vector<NameUse>& out_;
  std::string imported_;
  Before before_[2];
  bool chained_ = false;  // the value on top came from the last of `out_`
};

}  // namespace

bool instructions_known() noexcept { return opcodes().known; }

bool read_names(Object* code, Object* globals, std::vector<NameUse>& out) noexcept {
  const Reference names(g_api.PyObject_GetAttrString(code, "co_names"));
  const Reference constants(g_api.PyObject_GetAttrString(code, "co_consts"));
  const Reference instructions(g_api.PyObject_GetAttrString(code, "co_code"));
  if (!names || !constants || !instructions) return false;
  try {
    NameReader(names.get(), constants.get(), globals, out).read(instructions.get());
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace grape::python::state
