// Kernel launches: the hot path.
#include <algorithm>
#include <cstring>

#include "shim/interpose/function_cache.h"
#include "shim/interpose/recording.h"
#include "shim/interpose/rows.h"

namespace grape::interpose {

static_assert(sizeof(CUlaunchAttribute) == trace::kAttributeBytes, "attributes are copied as they are");

void record_launch(record::ThreadLog& log, std::uint32_t row, bool per_thread, const Launch& launch, CUresult result,
                   record::Stamp stamp, std::uint32_t duration) noexcept {
  constexpr std::uint32_t kMostAttributes = 64;  // CUDA 13 knows 19
  const Position position = current_position(log);
  const Function* function = nullptr;
  PackedParameters parameters;
  std::uint32_t attributes = 0;
  std::uint32_t flags = launch.flags;
  if (__builtin_expect(result == CUDA_SUCCESS, 1)) {
    function = find_function(log, launch.function);
    parameters = packed_parameters(function, launch.parameters, launch.extra);
    flags |= parameters.flags;
    if (launch.attributes != nullptr) attributes = std::min(launch.attribute_count, kMostAttributes);
    if (attributes != launch.attribute_count) flags |= trace::kFlagTruncated;
    if (is_captured(launch.stream, per_thread)) flags |= trace::kFlagCaptured;
  } else {
    // What the driver refused is not read: neither parameters nor attributes, and the handle may be no function.
    flags |= trace::kFlagNoLayout;
  }
  const std::uint32_t attribute_words = attributes * static_cast<std::uint32_t>(trace::kAttributeBytes / 8);
  const auto words =
      static_cast<std::uint32_t>(trace::kLaunchFixed + attribute_words + trace::words_for(parameters.bytes));
  std::uint64_t* out = log.begin(trace::EventKind::kLaunch, function != nullptr ? function->key : 0, words, stamp,
                                 static_cast<std::uint16_t>(flags), duration);
  if (out == nullptr) return;
  out[trace::kLaunchFunction] = trace::pack(function != nullptr ? function->id : 0, api_id(row));
  out[trace::kLaunchStack] = trace::pack(position.frame, position.native_frame);
  out[trace::kLaunchGridXY] = trace::pack(launch.grid[0], launch.grid[1]);
  out[trace::kLaunchGridZ] = trace::pack(launch.grid[2], launch.block[0]);
  out[trace::kLaunchBlock] = trace::pack(launch.block[1], launch.block[2]);
  out[trace::kLaunchShared] = trace::pack(launch.shared_bytes, static_cast<std::uint32_t>(result));
  out[trace::kLaunchStream] = reinterpret_cast<std::uint64_t>(launch.stream);
  out[trace::kLaunchSizes] = trace::pack(attributes, parameters.bytes);
  out += trace::kLaunchFixed;
  if (attributes != 0) std::memcpy(out, launch.attributes, attributes * trace::kAttributeBytes);
  parameters.copy_to(reinterpret_cast<std::uint8_t*>(out + attribute_words));
  log.commit();
}

}  // namespace grape::interpose
