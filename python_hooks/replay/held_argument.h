// An argument of a replayed call, which may be made again for a backward pass that was not seen. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::replay {

// Owned, but moved by hand: a call's arguments are many, and they end together.
struct HeldArgument {
  Object* object = nullptr;  // null: the module of the call
  bool weak = false;         // it is a weak reference: the argument ends when it would without Grape
  // Of an instance that has nothing but attributes: its class, and a dictionary of those. Null: it is another one.
  Object *type = nullptr, *attributes = nullptr;
};

// `argument`: null for the module. Objects that can be weakly referred to are held weakly, but for containers; what
// tensors and containers hold lives on in any case. Throws std::bad_alloc.
HeldArgument hold_argument(Object* argument);
void release(const HeldArgument& held) noexcept;

// The argument, or an instance of its class with the attributes that it had, if it is gone or has others now. Null: it
// is gone, and none can be made. Throws std::bad_alloc.
Reference argument_again(const HeldArgument& held);

}  // namespace grape::python::replay
