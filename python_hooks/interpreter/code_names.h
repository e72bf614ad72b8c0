// Which globals a code object names, read from its instructions. With the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {

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
  bool escapes = false;  // the value goes elsewhere (a variable, a call): what is read of it is not known from here
};

// Are the interpreter's instructions known? The standard module `opcode` says what they are; where that is not imported
// (PyTorch imports it), they are not.
bool instructions_known() noexcept;

// In the order met, also more than once. `globals`: for relative imports. False: no memory. Only where instructions are
// known.
bool read_names(Object* code, Object* globals, std::vector<NameUse>& out) noexcept;

}  // namespace grape::python::state
