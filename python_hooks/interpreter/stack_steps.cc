#include "python_hooks/interpreter/stack_steps.h"

#include <string_view>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/instructions.h"

namespace grape::python {
namespace {

using Kind = StackStep::Kind;
using Use = StackStep::Local::Use;

// What an instruction does with the variable of its argument: r reads, s sets, d deletes. Two letters: with those of
// the upper bits of the argument, and of its lower four.
constexpr struct {
  std::string_view name;
  const char* uses;
} kLocalForms[] = {{"LOAD_FAST", "r"},
                   {"LOAD_FAST_CHECK", "r"},
                   {"LOAD_FAST_BORROW", "r"},
                   {"LOAD_FAST_AND_CLEAR", "r"},
                   {"STORE_FAST", "s"},
                   {"DELETE_FAST", "d"},
                   {"STORE_FAST_LOAD_FAST", "sr"},
                   {"STORE_FAST_STORE_FAST", "ss"},
                   {"LOAD_FAST_LOAD_FAST", "rr"},
                   {"LOAD_FAST_BORROW_LOAD_FAST_BORROW", "rr"}};

// The argument counts: n its value, b its lowest bit, - not at all.
struct Form {
  std::string_view name;
  Kind kind;
  std::uint8_t pops, pushes;
  char pops_more = '-', pushes_more = '-';
};
constexpr Form kForms[] = {{"NOP", Kind::kMoves, 0, 0},
                           {"NOT_TAKEN", Kind::kMoves, 0, 0},
                           {"PUSH_NULL", Kind::kMoves, 0, 1},
                           {"LOAD_CONST", Kind::kMoves, 0, 1},
                           {"LOAD_SMALL_INT", Kind::kMoves, 0, 1},
                           {"LOAD_DEREF", Kind::kMoves, 0, 1},
                           {"LOAD_GLOBAL", Kind::kMoves, 0, 1, '-', 'b'},
                           {"LOAD_ATTR", Kind::kMoves, 1, 1, '-', 'b'},
                           {"BINARY_OP", Kind::kMoves, 2, 1},
                           {"BINARY_SUBSCR", Kind::kMoves, 2, 1},
                           {"UNARY_NEGATIVE", Kind::kMoves, 1, 1},
                           {"CALL", Kind::kMoves, 2, 1, 'n', '-'},
                           {"COPY", Kind::kCopy, 0, 1},
                           {"SWAP", Kind::kSwap, 0, 0},
                           {"POP_TOP", Kind::kDrop, 1, 0},
                           {"COMPARE_OP", Kind::kCompare, 2, 1},
                           {"TO_BOOL", Kind::kTruth, 1, 1},
                           {"UNARY_NOT", Kind::kTruth, 1, 1},
                           {"POP_JUMP_IF_FALSE", Kind::kBranch, 1, 0},
                           {"POP_JUMP_IF_TRUE", Kind::kBranch, 1, 0}};
constexpr char kUnknownUses[] = "?";

struct Opcodes {
  bool known = false;
  int extended_arg = -1, cache = -1;
  std::uint32_t asks = 0;       // the bit of COMPARE_OP's argument; 0: none
  const char* uses[256] = {};   // null: none of a local variable's
  const Form* forms[256] = {};  // null: not known
};

const char* uses_of(std::string_view name) noexcept {
  for (const auto& form : kLocalForms) {
    if (form.name == name) return form.uses;
  }
  return kUnknownUses;
}

bool read_opcodes(Opcodes& out) noexcept {
  Object* names = module_member("opcode", "opname");
  Object* local = module_member("opcode", "haslocal");
  const std::ptrdiff_t count = names != nullptr ? g_api.PyList_Size(names) : -1;
  const std::ptrdiff_t locals = local != nullptr ? g_api.PyList_Size(local) : -1;
  if (count < 1 || locals < 1) return false;
  out.extended_arg = opcode_number("EXTENDED_ARG");
  out.cache = opcode_number("CACHE");
  out.asks = g_layout.minor >= 13 ? 16 : 0;
  for (std::ptrdiff_t i = 0; i < locals; ++i) {
    const long number = g_api.PyLong_AsLong(g_api.PyList_GetItem(local, i));
    char name[64];
    if (number < 0 || number >= 256 || number >= count) continue;
    Object* text = g_api.PyList_GetItem(names, number);
    out.uses[number] = uses_of({name, copy_text(text, name, sizeof(name))});
  }
  for (const Form& form : kForms) {
    const int number = opcode_number(form.name.data());
    if (number >= 0 && number < 256) out.forms[number] = &form;
  }
  return out.extended_arg >= 0 && out.cache >= 0;
}

const Opcodes& opcodes() noexcept {
  static Opcodes found;
  if (!found.known) found.known = read_opcodes(found);
  return found;
}

// Where the instruction that begins at `unit`, or its prefixes, stands itself; in bytes.
std::size_t past_prefixes(Object* instructions, std::size_t unit) noexcept {
  Instruction found;
  return (instruction_at(instructions, opcodes().extended_arg, unit, found) ? found.at : unit) * 2;
}

void use_locals(const char* uses, std::uint32_t argument, StackStep& out) noexcept {
  out.kind = Kind::kLocals;
  const bool pair = uses[1] != '\0';
  for (std::size_t i = 0; uses[i] != '\0'; ++i) {
    const std::uint32_t variable = !pair ? argument : i == 0 ? argument >> 4 : argument & 15;
    const Use use = uses[i] == 'r' ? Use::kReads : uses[i] == 's' ? Use::kSets : Use::kDeletes;
    out.locals[i] = {use, static_cast<std::uint16_t>(variable)};
  }
}

std::uint32_t more(char how, std::uint32_t argument) noexcept {
  return how == 'n' ? argument : how == 'b' ? argument & 1 : 0;
}

}  // namespace

bool stack_steps_known() noexcept { return opcodes().known; }

bool stack_step_at(Object* instructions, std::size_t offset, StackStep& out) noexcept {
  const Opcodes& ops = opcodes();
  out = {};
  out.kind = Kind::kAnyLocal;
  Instruction found;
  if (!instruction_at(instructions, ops.extended_arg, offset / 2, found)) return true;
  if (found.at != offset / 2) return false;
  std::size_t behind = found.at + 1;  // and its caches
  while (behind < bytes_size(instructions) / 2 && bytes_data(instructions)[2 * behind] == ops.cache) ++behind;
  out.next = past_prefixes(instructions, behind);
  const char* const uses = ops.uses[found.op];
  if (uses == kUnknownUses || (uses != nullptr && found.argument > UINT16_MAX)) return true;
  if (uses != nullptr) {
    use_locals(uses, found.argument, out);
    return true;
  }
  const Form* const form = ops.forms[found.op];
  out.kind = form != nullptr ? form->kind : Kind::kUnknown;
  if (form == nullptr) return true;
  out.pops = form->pops + more(form->pops_more, found.argument);
  out.pushes = form->pushes + more(form->pushes_more, found.argument);
  out.depth = found.argument;
  out.asks = form->kind == Kind::kCompare && (found.argument & ops.asks) != 0;
  if (form->kind == Kind::kBranch) out.target = past_prefixes(instructions, behind + found.argument);
  return true;
}

}  // namespace grape::python
