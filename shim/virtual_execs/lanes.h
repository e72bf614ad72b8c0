// Our own streams and events, for graphs whose nodes run side by side. Calls the driver's real functions; the right
// context is current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "shim/virtual_execs/sequence.h"
#include "shim/virtual_execs/tails.h"

namespace grape::virtual_execs {

// The streams of one context, for one graph at a time. The context destroys them: nothing is destroyed here.
class Lanes {
 public:
  explicit Lanes(CUcontext context) noexcept : context_(context) {}
  CUcontext context() const noexcept { return context_; }

  // Makes the streams and events that the sequence needs. False: the driver refuses. Throws std::bad_alloc.
  bool suffice(const Sequence& sequence);
  // For a launch that ends with `tail`. False: the lanes still have work of another place.
  bool take(const std::shared_ptr<Tail>& tail) noexcept;

  CUstream stream(std::uint32_t lane, CUstream application) const noexcept {
    return lane == 0 ? application : streams_[lane - 1];
  }
  CUresult wait(CUstream stream, std::uint32_t event) const noexcept;
  CUresult record(std::uint32_t event, CUstream stream) const noexcept;
  // Work that `application` gets from now on follows all work of the lanes.
  void join(CUstream application) const noexcept;

 private:
  CUcontext context_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::shared_ptr<Tail> last_;  // all that was put on them lies before it
};

// One for each context. One thread at a time.
class AllLanes {
 public:
  // For a launch of that sequence into the tail's place. Null: there are none for it now. Throws std::bad_alloc.
  std::shared_ptr<Lanes> of(const std::shared_ptr<Tail>& tail, const Sequence& sequence);
  void context_gone(CUcontext context) noexcept;

 private:
  std::vector<std::shared_ptr<Lanes>> all_;
};

}  // namespace grape::virtual_execs
