// Room on a device for looks at calls under autograd. Such a look keeps copies until the backward pass has been seen:
// the program itself goes on meanwhile, and must find the memory that it would have without Grape. With the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "python_hooks/replay/work_place.h"

namespace grape::python::proof {

// What one look has claimed; given back at the end.
class LookRoom {
 public:
  LookRoom() = default;
  ~LookRoom() { give_back(); }
  LookRoom(LookRoom&& other) noexcept : device_(other.device_), bytes_(std::exchange(other.bytes_, 0)) {}
  LookRoom& operator=(LookRoom&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // `held`: bytes that are kept or copied beside gradients; `gradients`: bytes of those of the call's weights, at most.
  // True, too, where PyTorch does not say how much memory it has. The work's context is current.
  bool claim(const replay::WorkPlace& work, std::uint64_t held, std::uint64_t gradients) noexcept;
  void give_back() noexcept;

 private:
  std::size_t device_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace grape::python::proof
