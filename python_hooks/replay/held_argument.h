// An argument of a replayed call, which may be made again for a backward pass that was not seen. With the GIL.
#pragma once

#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::replay {

// Owned, but moved by hand: a call's arguments are many, and they end together.
struct HeldArgument {
  Object* object = nullptr;  // null: the module of the call
  bool weak = false;         // it is a weak reference: the argument ends when it would without Grape
  // Of an instance that has nothing but attributes: its class, and a dictionary of those. Null: it is another one.
  Object *type = nullptr, *attributes = nullptr;
  Object* copy = nullptr;  // of a list or a dictionary: another one with the items that it had
};

// `argument`: null for the module. Objects that can be weakly referred to are held weakly, but for containers; what
// tensors and containers hold lives on in any case. Throws std::bad_alloc.
HeldArgument hold_argument(Object* argument);
void release(const HeldArgument& held) noexcept;

// The arguments of a call that is made again. For one that is gone, or has other attributes or items now, another one
// stands, with those that it had: the same each time that it was passed. Throws std::bad_alloc.
class ArgumentsAgain {
 public:
  // `root`: the module.
  ArgumentsAgain(const std::vector<HeldArgument>& held, Object* root);
  // False: one is gone, and no other can be made.
  bool good() const noexcept { return good_; }
  const std::vector<Object*>& objects() const noexcept { return objects_; }

 private:
  std::vector<Reference> owned_;
  std::vector<Object*> objects_;  // of these
  bool good_ = true;
};

}  // namespace grape::python::replay
