// The instructions of a code object, by the interpreter's own numbers (module `opcode`). With the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python_hooks/interpreter/cpython_objects.h"

namespace grape::python::state {

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

// Calls `found(instruction)` for each that is no prefix and no cache. `code`: co_code.
template <typename Found>
void each_instruction(Object* code, int extended_arg, int cache, Found found) {
  const std::uint8_t* data = bytes_data(code);
  std::uint32_t extension = 0;
  for (std::size_t at = 0, first = 0; at < bytes_size(code) / 2; ++at) {
    const int op = data[2 * at];
    const std::uint32_t argument = extension | data[2 * at + 1];
    if (at == 0 || data[2 * (at - 1)] != extended_arg) first = at;
    extension = op == extended_arg ? argument << 8 : 0;
    if (op != extended_arg && op != cache) found(Instruction{first, at, op, argument});
  }
}

}  // namespace grape::python::state
