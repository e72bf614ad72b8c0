// The instructions of a code object, by the interpreter's own numbers (module `opcode`). With the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python_hooks/interpreter/cpython_objects.h"

namespace grape::python {

// Its number; -1: this interpreter has no such instruction, or `opcode` is not imported.
inline int opcode_number(const char* name) noexcept {
  Object* map = module_member("opcode", "opmap");
  Object* number = map != nullptr && is_dict(map) ? dict_item(map, name) : nullptr;
  return number != nullptr ? static_cast<int>(g_api.PyLong_AsLong(number)) : -1;
}

struct Instruction {
  std::size_t first, at;  // in units of two bytes: where its prefixes begin, and where it stands itself
  int op;
  std::uint32_t argument;  // with those of its prefixes
};

// The instruction that stands at `unit` (of two bytes), or whose prefixes do. `code`: co_code. False: it is shorter.
inline bool instruction_at(Object* code, int extended_arg, std::size_t unit, Instruction& out) noexcept {
  const std::uint8_t* data = bytes_data(code);
  const std::size_t units = bytes_size(code) / 2;
  while (unit != 0 && unit < units && data[2 * (unit - 1)] == extended_arg) --unit;
  out = {unit, unit, -1, 0};
  for (; out.at < units; ++out.at) {
    out.op = data[2 * out.at];
    out.argument = out.argument << 8 | data[2 * out.at + 1];
    if (out.op != extended_arg) return true;
  }
  return false;
}

// Calls `found(instruction)` for each that is no prefix and no cache.
template <typename Found>
void each_instruction(Object* code, int extended_arg, int cache, Found found) {
  Instruction instruction;
  for (std::size_t at = 0; instruction_at(code, extended_arg, at, instruction); at = instruction.at + 1) {
    if (instruction.op != cache) found(instruction);
  }
}

}  // namespace grape::python
