// Writes a DispatchState's canonical bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "python_hooks/torch/torch_api.h"

namespace grape::python::torch {

// Appends to a state; too much of it is noted.
class DispatchWriter {
 public:
  DispatchWriter(DispatchState& state, bool portable) noexcept : portable_(portable), state_(state) {
    state_.byte_count = 0;
  }
  void put(const void* data, std::size_t size) noexcept {
    if (state_.byte_count + size > DispatchState::kMostBytes) {
      full_ = true;
      return;
    }
    std::memcpy(state_.bytes + state_.byte_count, data, size);
    state_.byte_count += size;
  }
  template <typename T>
  void put(const T& value) noexcept {
    static_assert(!std::is_pointer_v<T>, "its value is meant");
    put(&value, sizeof value);
  }
  bool full() const noexcept { return full_; }
  bool failed() const noexcept { return failed_; }  // an exception was among the values

  // What Python calls give, by kind. Null: an exception, which is cleared.
  void put_value(Object* value) noexcept;
  void put_failure() noexcept {
    put('!');
    failed_ = true;
  }
  void put_none() noexcept { put('n'); }
  void put_bool(bool value) noexcept { put(value ? 't' : 'f'); }
  void put_number(std::int64_t number) noexcept {
    put('i');
    put(number);
  }
  void put_text(const char* text, std::uint8_t size) noexcept {
    put('s');
    put(size);
    put(text, size);
  }
  void put_items(std::uint8_t count) noexcept {  // their values follow
    put('l');
    put(count);
  }
  void put_constant(Object* constant) noexcept;  // of torch's

  const bool portable_;

 private:
  DispatchState& state_;
  bool full_ = false, failed_ = false;
};

}  // namespace grape::python::torch
