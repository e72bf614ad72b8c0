// Where values that the host reads from the device arrive. Ordinary memory of ours, which outlives every context, made
// known to the driver where it allows that: a copy then does not wait by itself, and may be asked for right behind the
// work that it reads. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grape::replay {

class Landing {
 public:
  static constexpr std::size_t kBytes = 4096;

  // Takes a place; a context is current. No copy to it may be under way when it goes.
  Landing() noexcept;
  ~Landing();
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  // A copy to it may still come: nobody gets the place again.
  void abandon() noexcept { place_ = nullptr; }
  void* data() const noexcept { return place_; }  // null: no memory
  bool waits() const noexcept { return waits_; }  // does a copy to it wait until it is done?

 private:
  void* place_ = nullptr;
  bool waits_ = true;
};

}  // namespace grape::replay
