#include "python_hooks/interpreter/local_uses.h"

#include <string_view>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/instructions.h"

namespace grape::python {
namespace {

// What an instruction does with the variable of its argument: r reads, s sets, - neither. Two letters: with those of
// the upper bits of the argument, and of its lower four.
constexpr struct {
  std::string_view name;
  const char* uses;
} kForms[] = {{"LOAD_FAST", "r"},
              {"LOAD_FAST_CHECK", "r"},
              {"LOAD_FAST_BORROW", "r"},
              {"LOAD_FAST_AND_CLEAR", "r"},
              {"STORE_FAST", "s"},
              {"DELETE_FAST", "-"},  // nobody sees what it was
              {"STORE_FAST_LOAD_FAST", "sr"},
              {"STORE_FAST_STORE_FAST", "s-"},  // the upper one gets what is on top of the stack
              {"LOAD_FAST_LOAD_FAST", "rr"},
              {"LOAD_FAST_BORROW_LOAD_FAST_BORROW", "rr"}};
constexpr char kUnknown[] = "?";

struct Opcodes {
  bool known = false;
  int extended_arg = -1, cache = -1, drop = -1;
  const char* uses[256] = {};  // null: none of a local variable's
};

const char* uses_of(std::string_view name) noexcept {
  for (const auto& form : kForms) {
    if (form.name == name) return form.uses;
  }
  return kUnknown;
}

bool read_opcodes(Opcodes& out) noexcept {
  Object* names = module_member("opcode", "opname");
  Object* local = module_member("opcode", "haslocal");
  const std::ptrdiff_t count = names != nullptr ? g_api.PyList_Size(names) : -1;
  const std::ptrdiff_t locals = local != nullptr ? g_api.PyList_Size(local) : -1;
  if (count < 1 || locals < 1) return false;
  out.extended_arg = opcode_number("EXTENDED_ARG");
  out.cache = opcode_number("CACHE");
  out.drop = opcode_number("POP_TOP");
  for (std::ptrdiff_t i = 0; i < locals; ++i) {
    const long number = g_api.PyLong_AsLong(g_api.PyList_GetItem(local, i));
    char name[64];
    if (number < 0 || number >= 256 || number >= count) continue;
    Object* text = g_api.PyList_GetItem(names, number);
    out.uses[number] = uses_of({name, copy_text(text, name, sizeof(name))});
  }
  return out.extended_arg >= 0 && out.cache >= 0;
}

const Opcodes& opcodes() noexcept {
  static Opcodes found;
  if (!found.known) found.known = read_opcodes(found);
  return found;
}

}  // namespace

bool local_uses_known() noexcept { return opcodes().known; }

LocalUse local_use_at(Object* instructions, std::size_t offset) noexcept {
  const Opcodes& ops = opcodes();
  LocalUse out;
  Instruction found;
  const bool there = instruction_at(instructions, ops.extended_arg, offset / 2, found);
  const char* uses = there ? ops.uses[found.op] : kUnknown;
  if (uses == kUnknown || found.argument >= LocalUse::kAny) {
    out.reads[0] = LocalUse::kAny;
    return out;
  }
  out.drops = found.op == ops.drop;
  const bool pair = uses != nullptr && uses[1] != '\0';
  for (std::size_t i = 0; uses != nullptr && uses[i] != '\0'; ++i) {
    const std::uint32_t upper = pair ? found.argument >> 4 : found.argument;
    const auto variable = static_cast<std::uint16_t>(i == 0 ? upper : found.argument & 15);
    if (uses[i] == 'r') out.reads[i] = variable;
    if (uses[i] == 's') out.sets = variable;
  }
  return out;
}

std::size_t next_instruction(Object* instructions, std::size_t offset) noexcept {
  const Opcodes& ops = opcodes();
  Instruction found;
  std::size_t at = offset / 2 + 1;
  if (instruction_at(instructions, ops.extended_arg, offset / 2, found)) at = found.at + 1;
  while (at < bytes_size(instructions) / 2 && bytes_data(instructions)[2 * at] == ops.cache) ++at;
  return at * 2;
}

}  // namespace grape::python
