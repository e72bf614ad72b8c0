// Owns a reference to a Python object. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

// A reference in a container that may be copied around; strong, or none.
class Strong {
 public:
  Strong() = default;
  explicit Strong(Object* borrowed) noexcept : object_(borrowed) {
    if (object_ != nullptr) g_api.Py_IncRef(object_);
  }
  Strong(Strong&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Strong(const Strong& other) noexcept : Strong(other.object_) {}
  Strong& operator=(Strong other) noexcept {
    Object* const before = object_;
    object_ = other.object_;
    other.object_ = before;
    return *this;
  }
  ~Strong() noexcept {
    // At the interpreter's end nothing of it may be touched: what is left is its own affair.
    if (object_ != nullptr && !shutting_down()) g_api.Py_DecRef(object_);
  }
  Object* get() const noexcept { return object_; }

 private:
  Object* object_ = nullptr;
};

}  // namespace grape::python
