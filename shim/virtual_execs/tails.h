// Where the work of a graph ends that is on no exec any more, so that its next launch comes behind it wherever that
// goes: the driver's launches of one exec follow each other in any streams. Calls the driver's real functions.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "shim/virtual_execs/real_exec.h"

namespace grape::virtual_execs {

// The end of what a place had to do when it was last recorded: later than each launch that it stands for. Guarded as
// its owner is; the event is destroyed with the last user.
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
  // Of handles that may come again for others.
  void stream_goes(CUstream stream) noexcept;
  void context_gone(CUcontext context) noexcept;

 private:
  std::vector<std::shared_ptr<Tail>> all_;
};

// Whatever is in its place now lies before it.
void mark_end(Tail& tail) noexcept;
// What is put into `stream` from now on comes behind it.
void come_behind(Tail& tail, CUstream stream) noexcept;

}  // namespace grape::virtual_execs
