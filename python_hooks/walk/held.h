// Remembers a value, and tells it later from every other value, also from a new one at the same address. Plain
// immutable values, and objects without weak references, are kept alive. With the GIL.
#pragma once

#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::walk {

// None, a number, str, bytes, range, dtype, device, or a tuple of such.
bool is_constant(Object* object) noexcept;
// Two plain values: the same in all that code can read but their addresses?
bool same_constants(Object* first, Object* second) noexcept;

class Held {
 public:
  Held() = default;
  // `keep_any`: also containers and other objects without weak references; else those are not held(). Null: no value.
  Held(Object* value, bool keep_any) noexcept;
  Held(Held&& other) noexcept { swap(other); }
  Held& operator=(Held&& other) noexcept {
    swap(other);
    return *this;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held();

  Object* address() const noexcept { return value_; }  // null: no value; not to be followed
  // Can is() tell this value from another one that came to lie where it lay? Plain values are equal or they are not.
  bool held() const noexcept { return value_ == nullptr || reference_ != nullptr; }
  bool plain() const noexcept { return plain_; }
  // Equal for the same object only, as long as both are held.
  std::uint64_t identity() const noexcept;
  // Is it this very object, alive all the time?
  bool is(const Object* object) const noexcept {
    return object == value_ && (!weak_ || referent(reference_) == object);
  }
  // The same object, or an equal plain value.
  bool is_or_equals(Object* object) const noexcept {
    return is(object) || (plain_ && object != nullptr && is_constant(object) && same_constants(value_, object));
  }

 private:
  void swap(Held& other) noexcept;

  Object* value_ = nullptr;
  Object* reference_ = nullptr;  // the value itself, or a weak reference
  bool weak_ = false, plain_ = false;
};

}  // namespace grape::python::walk
