// Marks where the last launch of a graph ends that has left its exec. The graph's next launch follows that mark on any
// stream, as the driver's launches of one exec follow each other. Calls the driver's real functions.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "shim/virtual_execs/real_exec.h"

namespace grape::virtual_execs {

// An event at the end of a place's work, recorded after each launch that the tail stands for. Guarded as its owner is;
// the event is destroyed with the last user.
struct Tail {
  Tail() = default;
  ~Tail();
  Tail(const Tail&) = delete;
  Tail& operator=(const Tail&) = delete;

  Place place;  // none: the stream is gone
  CUcontext context = nullptr;
  CUevent event = nullptr;
};

// One for each place. One thread at a time, in the right context. Throws std::bad_alloc.
class Tails {
 public:
  // Null: the driver gives no event.
  std::shared_ptr<Tail> of(const Place& place, CUcontext context);
  // The handle may come again for another stream, or context.
  void stream_goes(CUstream stream) noexcept;
  void context_gone(CUcontext context) noexcept;

 private:
  std::vector<std::shared_ptr<Tail>> all_;
};

// Moves the tail behind all work that its place has now.
void mark_end(Tail& tail) noexcept;
// Work that `stream` gets from now on follows the tail.
void come_behind(Tail& tail, CUstream stream) noexcept;

}  // namespace grape::virtual_execs
