// The device and the stream of a call's work: PyTorch's operators use the device of the call's tensors, which need not
// be the current device, and the current stream of that device. Grape's own work for the call goes there too. The
// program's code never sees another current device than its own. With the GIL.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "python_hooks/interpreter/cpython_objects.h"
#include "shim/device/thread_context.h"

namespace grape::python::walk {
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

// Finds the place of a call whose arguments are written, and adds the place to the walk where the dispatch state does
// not have it. The module's guard holds. False: not known.
bool find_work_place(const Region& region, Call& call, walk::Walk& walk);
// After the call: is its stream still the current one of its device? The dispatch state tells for the current device.
bool is_as_it_was(const WorkPlace& place) noexcept;

// Does its stream have work that the device has yet to do?
bool has_work(const WorkPlace& place) noexcept;

// Makes the context of a place current, and keeps garbage collections from running the program's code meanwhile. Must
// not live across pauses, in which other threads have the GIL.
class OnWorkDevice {
 public:
  explicit OnWorkDevice(const WorkPlace& place) noexcept : scope_(place.context) {
    if (place.context != nullptr) no_collection_.emplace();
  }
  bool entered() const noexcept { return scope_.entered(); }

 private:
  device::ContextScope scope_;
  std::optional<NoCollection> no_collection_;
};

}  // namespace grape::python::replay
