// Where PyTorch's operators put a call's work: on the device of its tensors, be that the current one or not, on that
// device's current stream. Its own work for such a call Grape does there as well, and nobody sees it: not in what the
// current device is while code of the program's runs. With the GIL.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "python_hooks/interpreter/cpython_objects.h"
#include "shim/device/thread_context.h"

namespace grape::python::state {
class Walk;
}

namespace grape::python::replay {

struct Call;
struct Region;

struct WorkPlace {
  std::int32_t device = 0;
  std::uint64_t stream = 0;  // CUstream
  // Of the device, to be made current for work of Grape's; null: it is the current device.
  CUcontext context = nullptr;

  CUstream driver_stream() const noexcept { return reinterpret_cast<CUstream>(stream); }
  bool operator==(const WorkPlace& other) const noexcept {
    return device == other.device && stream == other.stream && context == other.context;
  }
};

// Once the call's arguments are written: finds its place, and adds to the walk what that tells of PyTorch's state
// beside the dispatch state. The module's guard holds. False: not known.
bool find_work_place(const Region& region, Call& call, state::Walk& walk);
// After the call: is its stream still the device's current one? That of the current device is in the dispatch state.
bool is_as_it_was(const WorkPlace& place) noexcept;

// The place's context is current as long as it lives. Where it was not before, no code of the program's runs for
// collections meanwhile. Not around pauses, in which other threads have the GIL.
class OnWorkDevice {
 public:
  explicit OnWorkDevice(const WorkPlace& place) noexcept : scope_(place.context) {
    if (place.context != nullptr) no_collection_.emplace();
  }
  bool entered() const noexcept { return scope_.entered(); }

 private:
  grape::replay::ContextScope scope_;
  std::optional<NoCollection> no_collection_;
};

}  // namespace grape::python::replay
