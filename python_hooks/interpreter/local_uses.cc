#include "python_hooks/interpreter/local_uses.h"

#include <string_view>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/instructions.h"

namespace grape::python::state {
namespace {

// What an instruction does with its argument (Python's module `opcode`).
enum class Use : std::uint8_t { kNothing, kRead, kSet, kUnset, kSetThenRead, kSetBoth, kReadBoth, kUnknown, kDrop };

struct Opcodes {
  bool known = false;
  int extended_arg = -1, cache = -1;
  Use uses[256] = {};
};

Use use_of(std::string_view name) noexcept {
  if (name == "LOAD_FAST" || name == "LOAD_FAST_CHECK" || name == "LOAD_FAST_BORROW" || name == "LOAD_FAST_AND_CLEAR")
    return Use::kRead;
  if (name == "STORE_FAST") return Use::kSet;
  if (name == "DELETE_FAST") return Use::kUnset;
  if (name == "STORE_FAST_LOAD_FAST") return Use::kSetThenRead;
  if (name == "STORE_FAST_STORE_FAST") return Use::kSetBoth;
  if (name == "LOAD_FAST_LOAD_FAST" || name == "LOAD_FAST_BORROW_LOAD_FAST_BORROW") return Use::kReadBoth;
  return Use::kUnknown;
}

bool read_opcodes(Opcodes& out) {
  Object* names = module_member("opcode", "opname");
  Object* local = module_member("opcode", "haslocal");
  const std::ptrdiff_t count = names != nullptr ? g_api.PyList_Size(names) : -1;
  const std::ptrdiff_t locals = local != nullptr ? g_api.PyList_Size(local) : -1;
  if (count < 1 || locals < 1) return false;
  out.extended_arg = opcode_number("EXTENDED_ARG");
  out.cache = opcode_number("CACHE");
  const int drop = opcode_number("POP_TOP");
  if (drop >= 0 && drop < 256) out.uses[drop] = Use::kDrop;
  for (std::ptrdiff_t i = 0; i < locals; ++i) {
    const long number = g_api.PyLong_AsLong(g_api.PyList_GetItem(local, i));
    char name[64];
    if (number < 0 || number >= 256 || number >= count) continue;
    Object* text = g_api.PyList_GetItem(names, number);
    out.uses[number] = use_of({name, copy_text(text, name, sizeof(name))});
  }
  return out.extended_arg >= 0 && out.cache >= 0;
}

const Opcodes& opcodes() noexcept {
  static Opcodes found;
  if (!found.known) found.known = read_opcodes(found);
  return found;
}

LocalUse read_use(Use use, std::uint32_t argument) noexcept {
  LocalUse out;
  const auto one = static_cast<std::uint16_t>(argument);
  const auto upper = static_cast<std::uint16_t>(argument >> 4), lower = static_cast<std::uint16_t>(argument & 15);
  switch (use) {
    case Use::kNothing:
    case Use::kUnset:  // nobody sees what it was
      break;
    case Use::kRead:
      out.reads[0] = one;
      break;
    case Use::kSet:
      out.sets = one;
      break;
    case Use::kSetThenRead:
      out.sets = upper;
      out.reads[0] = lower;
      break;
    case Use::kSetBoth:
      out.sets = upper;
      break;
    case Use::kReadBoth:
      out.reads[0] = upper;
      out.reads[1] = lower;
      break;
    case Use::kUnknown:
      out.reads[0] = LocalUse::kAny;
      break;
    case Use::kDrop:
      out.drops = true;
      break;
  }
  return out;
}

}  // namespace

bool LocalUses::read(Object* code) noexcept {
  const Opcodes& ops = opcodes();
  const Reference instructions(ops.known ? g_api.PyObject_GetAttrString(code, "co_code") : nullptr);
  if (!instructions) return false;
  const std::size_t units = bytes_size(instructions.get()) / 2;
  try {
    uses_.assign(units, LocalUse());
    begins_.assign(units, false);
  } catch (...) {
    return false;
  }
  each_instruction(instructions.get(), ops.extended_arg, ops.cache, [&](const Instruction& found) {
    const std::uint32_t argument = found.argument;
    begins_[found.first] = true;
    // Also for its prefixes: it may be told by where they begin.
    for (std::size_t at = found.first; at <= found.at; ++at) {
      uses_[at] = argument < LocalUse::kAny ? read_use(ops.uses[found.op], argument) : read_use(Use::kUnknown, 0);
    }
  });
  return true;
}

std::size_t LocalUses::behind(std::size_t offset) const noexcept {
  std::size_t unit = offset / 2 + 1;
  while (unit < begins_.size() && !begins_[unit]) ++unit;
  return unit * 2;
}

}  // namespace grape::python::state
