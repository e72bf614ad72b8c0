// Owned references in a fixed number of places, given up together. With the GIL: the end of an object may run code.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::effects {

class References {
 public:
  References() = default;
  ~References() noexcept { clear(); }
  References(const References&) = delete;
  References& operator=(const References&) = delete;

  // So many places, all null. False: no memory, and there are none. Precondition: there are none.
  bool make(std::size_t count) noexcept {
    at_ = count <= kInline ? inline_ : static_cast<Object**>(std::calloc(count, sizeof(void*)));
    if (at_ == nullptr) return false;
    count_ = count;
    if (at_ == inline_) std::fill_n(at_, count, nullptr);
    return true;
  }
  Object*& operator[](std::size_t i) noexcept { return at_[i]; }
  // All are given up, and there are no places.
  void clear() noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (at_[i] != nullptr) g_api.Py_DecRef(at_[i]);
    }
    count_ = 0;
    if (at_ != inline_) std::free(at_);
    at_ = inline_;
  }

 private:
  static constexpr std::size_t kInline = 128;
  std::size_t count_ = 0;
  Object** at_ = inline_;
  Object* inline_[kInline];
};

}  // namespace grape::python::effects
