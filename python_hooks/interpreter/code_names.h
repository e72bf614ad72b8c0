// Which globals a code object names, read from its instructions. With the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

struct NameUse {
  enum class Kind : std::uint8_t {
    kLoad,    // a global, or else a builtin
    kStore,   // a global that is set or deleted
    kImport,  // a module that is imported, by its full name
  };
  Kind kind;
  Object* name;                     // kLoad, kStore; borrowed from the code object
  std::string module;               // kImport
  std::vector<Object*> attributes;  // read directly after it, each of the one before ("nn", "functional" of torch);
                                    // kImport: at most one, which is imported from the module. Borrowed
  bool stores = false;              // the last of these is set or deleted, not read
  bool escapes = false;             // the value goes elsewhere (a variable, a call): later reads of it are not listed
};

// Are the interpreter's instructions known? Only if the standard module `opcode` is imported, as PyTorch does.
bool instructions_known() noexcept;

// Appends all uses in the order of the code, also repeated ones. `globals`: for relative imports. False: no memory.
// Precondition: instructions_known().
bool read_names(Object* code, Object* globals, std::vector<NameUse>& out) noexcept;

}  // namespace grape::python
