// Prepares the next replay while the device works on this one: allocates its outputs, and sets its graphs' parameters
// to the addresses where its inputs will probably lie (address_prediction.h). Expects programs to follow one another as
// they did before (decoding: one length after the other). A wrong guess costs only its own time: other addresses are
// patched at the call. With the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/replay/address_prediction.h"
#include "python_hooks/replay/work_place.h"
#include "python_hooks/torch/torch_api.h"

namespace grape::python::replay {

struct Call;
struct Proven;
struct Region;

// What was run after a program.
struct Successor {
  std::weak_ptr<Proven> proven;
  AddressPrediction inputs;
  int confidence = 0;  // above 0: it is expected
};

// A region's.
class Prefetch {
 public:
  Prefetch() = default;
  ~Prefetch() { clear(); }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // Before a run of `proven`: hands over what was got ready for it, its `tensors` as make_outputs() makes them, their
  // addresses in its bindings; none, if nothing was. Whatever else was got ready is `useless`. Both are empty before.
  void take(Proven& proven, const Call& call, std::vector<Object*>& tensors, std::vector<Object*>& useless) noexcept;
  // After `ran` was launched with the addresses in its bindings: learns from it, and gets its successor ready.
  void prepare(Region& region, Proven& ran, const Call& call) noexcept;
  // Behind that, if the device is still at work: walks the argument that takes longest, as it is now (walk_memo.h).
  void remember_arguments(Region& region, const Call& call) noexcept;
  void clear() noexcept;

 private:
  void learn(const std::shared_ptr<Proven>& ran);
  void get_ready(Region& region, const Proven& ran, Proven& next, const Successor& successor, const Call& call);

  std::weak_ptr<Proven> last_;  // the program that ran last
  // Of that one, and of what is ready. Never null.
  std::shared_ptr<RunAddresses> addresses_ = std::make_shared<RunAddresses>();
  std::vector<std::uint64_t> predicted_;  // inputs of what is run next; empty: it is not known what
  // What is ready.
  std::weak_ptr<Proven> ready_;
  torch::DispatchState dispatch_;   // tensors are made for a mode,
  WorkPlace work_;                  // a stream and a device
  std::uint64_t pool_changes_ = 0;  // and from a pool of memory
  std::vector<Object*> tensors_;    // owned
  // Of the region's memo.
  std::uint64_t recalled_ = 0;      // when it was recorded last
  std::uint32_t in_vain_ = 0;       // recordings in a row that were not used, or took longer than the device
  std::uint32_t without_memo_ = 0;  // replays to come that record nothing
};

}  // namespace grape::python::replay
