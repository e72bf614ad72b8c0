// Where values that the host reads from the device arrive. Ordinary memory of ours, which outlives every context, made
// known to the driver where it allows that: a copy then does not wait by itself, and may be asked for right behind the
// work that it reads, and kernels may write there. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace grape::replay {

class Landing {
 public:
  static constexpr std::size_t kBytes = 4096;

  // Takes a place; a context is current. No copy to it may be under way when it goes.
  Landing() noexcept;
  // One where kernels of `context`, which is current, may write as well, at the same address. None, if the driver maps
  // no memory of the host in that way.
  explicit Landing(CUcontext context) noexcept;
  ~Landing();
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  // A copy to it may still come: nobody gets the place again.
  void abandon() noexcept { place_ = nullptr; }
  void* data() const noexcept { return place_; }  // null: no memory
  bool waits() const noexcept { return waits_; }  // does a copy to it wait until it is done?

 private:
  void take(void* place) noexcept;

  void* place_ = nullptr;
  bool waits_ = true;
  CUcontext mapped_in_ = nullptr;
  std::uint32_t gone_before_ = 0;
};

// A context is gone, and with it what it had mapped.
void note_context_gone() noexcept;

}  // namespace grape::replay
