// Host memory where values that the host reads from the device arrive. It outlives every context, and is registered
// with the driver where that is allowed. A copy to registered memory does not wait, so it may be enqueued right behind
// the work that it reads, and kernels may write to the memory. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace grape::graphs {

class HostBuffer {
 public:
  static constexpr std::size_t kBytes = 4096;

  // Takes a place; a context is current. No copy to it may be under way when it goes.
  HostBuffer() noexcept;
  // A place where kernels of `context`, which is current, may write as well, at the same address. data() is null if the
  // driver maps no host memory in that way.
  explicit HostBuffer(CUcontext context) noexcept;
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

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

// A context is gone, and with it the memory that it had mapped.
void note_context_gone() noexcept;

}  // namespace grape::graphs
