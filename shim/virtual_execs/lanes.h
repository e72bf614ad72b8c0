// Streams of our own beside the application's, for graphs whose nodes run side by side, with the events between them.
// Calls the driver's real functions; the right context is current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "shim/virtual_execs/sequence.h"
#include "shim/virtual_execs/tails.h"

namespace grape::virtual_execs {

// Those of one context, one graph at a time. They go with it: nothing is destroyed here.
class Lanes {
 public:
  explicit Lanes(CUcontext context) noexcept : context_(context) {}
  CUcontext context() const noexcept { return context_; }

  // False: the driver does not give as many as the sequence needs. Throws std::bad_alloc.
  bool suffice(const Sequence& sequence);
  // For a launch that ends with `tail`. False: they have work of another place's, which nothing may have to wait for.
  bool take(const std::shared_ptr<Tail>& tail) noexcept;

  CUstream stream(std::uint32_t lane, CUstream application) const noexcept {
    return lane == 0 ? application : streams_[lane - 1];
  }
  CUresult wait(CUstream stream, std::uint32_t event) const noexcept;
  CUresult record(std::uint32_t event, CUstream stream) const noexcept;
  // What they do, however far it has come, lies before what `application` gets from now on.
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
