#include "python_hooks/replay/work_place.h"

#include "python_hooks/replay/call.h"
#include "shim/observation/device_exclusion.h"

namespace grape::python::replay {

bool find_work_place(const Region& region, Call& call, walk::Walk& walk) {
  const std::int32_t current = call.dispatch.device;
  call.work = {current, call.dispatch.stream, nullptr};
  walk::DeviceSet devices = walk.devices();
  devices.add(region.evidence.guard->devices());
  // Where they are on several, work that is not on the current one is found when the call is observed.
  call.work.device = devices.only_or(current);
  if (call.work.device == current) return true;
  call.work.context = device::primary_context(call.work.device);
  if (call.work.context == nullptr || !torch::current_stream_of(call.work.device, call.work.stream)) return false;
  walk.add_bytes(&call.work.device, sizeof call.work.device);
  walk.add_bytes(&call.work.stream, sizeof call.work.stream);
  return true;
}

bool is_as_it_was(const WorkPlace& place) noexcept {
  std::uint64_t stream = 0;
  return place.context == nullptr || (torch::current_stream_of(place.device, stream) && stream == place.stream);
}

bool has_work(const WorkPlace& place) noexcept {
  const device::ContextScope scope(place.context);
  return scope.entered() && grape::observation::has_work(place.stream);
}

}  // namespace grape::python::replay
