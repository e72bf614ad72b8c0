#include "python_hooks/interpreter/code_names.h"

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/instructions.h"
#include "python_hooks/interpreter/texts.h"

namespace grape::python {
namespace {

// clang-format off
#define GRAPE_OPCODES(X) \
  X(EXTENDED_ARG) X(CACHE) X(LOAD_GLOBAL) X(LOAD_NAME) X(LOAD_FROM_DICT_OR_GLOBALS) X(STORE_GLOBAL) X(DELETE_GLOBAL) \
  X(LOAD_ATTR) X(LOAD_METHOD) X(LOAD_CONST) X(LOAD_SMALL_INT) X(IMPORT_NAME) X(IMPORT_FROM) X(STORE_ATTR) \
  X(DELETE_ATTR) X(COPY) X(DUP_TOP)
// clang-format on

// The interpreter's own numbers (opcode.opmap). -1: it has no such instruction.
struct Opcodes {
  bool known = false;
#define GRAPE_OPCODE(name) int name = -1;
  GRAPE_OPCODES(GRAPE_OPCODE)
#undef GRAPE_OPCODE
};

const Opcodes& opcodes() noexcept {
  static Opcodes found;
  if (found.known) return found;
#define GRAPE_OPCODE(name) found.name = opcode_number(#name);
  GRAPE_OPCODES(GRAPE_OPCODE)
#undef GRAPE_OPCODE
  found.known = found.EXTENDED_ARG >= 0 && found.LOAD_GLOBAL >= 0 && found.LOAD_ATTR >= 0 && found.IMPORT_NAME >= 0;
  return found;
}

class NameReader {
 public:
  NameReader(Object* names, Object* constants, Object* globals, std::vector<NameUse>& out)
      : names_(names), constants_(constants), globals_(globals), out_(out) {}

  void read(Object* code) {
    each_instruction(code, ops_.EXTENDED_ARG, ops_.CACHE, [this](const Instruction& instruction) {
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
    if (op == ops_.LOAD_ATTR || op == ops_.LOAD_METHOD) {
      if (chained_) add_attribute(name(op == ops_.LOAD_ATTR && minor >= 12 ? argument >> 1 : argument));
      return;
    }
    // As for "module.count += 1": what is on top is there once more.
    if (chained_ && (op == ops_.DUP_TOP || (op == ops_.COPY && argument == 1))) return;
    end_chain(op, argument);
    if (op == ops_.LOAD_GLOBAL) {
      add(NameUse::Kind::kLoad, name(minor >= 11 ? argument >> 1 : argument));
    } else if (op == ops_.LOAD_NAME || op == ops_.LOAD_FROM_DICT_OR_GLOBALS) {
      add(NameUse::Kind::kLoad, name(argument));
    } else if (op == ops_.STORE_GLOBAL || op == ops_.DELETE_GLOBAL) {
      add(NameUse::Kind::kStore, name(argument));
      chained_ = false;
    } else if (op == ops_.IMPORT_NAME) {
      imported_ = full_name(text_or_empty<512>(name(argument)));
      out_.push_back({NameUse::Kind::kImport, nullptr, imported_, {}});
      out_.back().escapes = imports_all();
    } else if (op == ops_.IMPORT_FROM) {
      out_.push_back({NameUse::Kind::kImport, nullptr, imported_, {}});
      add_attribute(name(argument));
      chained_ = true;
    }
  }

  void end_chain(int op, std::uint32_t argument) {
    if (!chained_) return;
    chained_ = false;
    if (op == ops_.STORE_ATTR || op == ops_.DELETE_ATTR) {
      add_attribute(name(argument));
      out_.back().stores = true;
    } else {
      out_.back().escapes = true;
    }
  }

  // "import a.b", not "from a import b": no list of names was loaded before.
  bool imports_all() const {
    const Before& load = before_[1];
    return load.op == ops_.LOAD_CONST && load.argument < item_count(constants_) &&
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
    if (load.op == ops_.LOAD_SMALL_INT) return static_cast<long>(load.argument);
    if (load.op != ops_.LOAD_CONST || load.argument >= item_count(constants_)) return 0;
    const long value = g_api.PyLong_AsLong(tuple_data(constants_)[load.argument]);
    if (value < 0) g_api.PyErr_Clear();
    return value > 0 ? value : 0;
  }

  std::string full_name(const std::string& module) const {
    long up = level();
    if (up == 0) return module;
    std::string package = text_or_empty<512>(dict_item(globals_, "__package__"));
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

}  // namespace grape::python
