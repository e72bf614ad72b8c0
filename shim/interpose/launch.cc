// Kernel launches: the hot path.
#include <algorithm>
#include <cstring>

#include "shim/interpose/recording.h"
#include "shim/interpose/rows.h"
#include "shim/record/function_cache.h"

namespace grape::interpose {

static_assert(sizeof(CUlaunchAttribute) == trace::kAttributeBytes, "attributes are copied as they are");

namespace {

constexpr std::uint32_t kMostAttributes = 64;  // CUDA 13 knows 19

// Without the function id, the stack and what comes behind the sizes.
inline void write_fixed(std::uint64_t* out, const Launch& launch, CUresult result, std::uint32_t attributes,
                        std::uint32_t parameter_bytes) noexcept {
  out[trace::kLaunchGridXY] = trace::pack(launch.grid[0], launch.grid[1]);
  out[trace::kLaunchGridZ] = trace::pack(launch.grid[2], launch.block[0]);
  out[trace::kLaunchBlock] = trace::pack(launch.block[1], launch.block[2]);
  out[trace::kLaunchShared] = trace::pack(launch.shared_bytes, static_cast<std::uint32_t>(result));
  out[trace::kLaunchStream] = reinterpret_cast<std::uint64_t>(launch.stream);
  out[trace::kLaunchSizes] = trace::pack(attributes, parameter_bytes);
}

}  // namespace

void record_refused_launch(record::ThreadLog& log, std::uint32_t row, const Launch& launch, CUresult result,
                           record::Stamp stamp, std::uint32_t duration) noexcept {
  const Position position = current_position(log);
  // Neither parameters nor attributes are read, and the handle may be no function.
  const auto flags = static_cast<std::uint16_t>(launch.flags | trace::kFlagNoLayout);
  std::uint64_t* out = log.begin(trace::EventKind::kLaunch, 0, trace::kLaunchFixed, stamp, flags, duration);
  if (out == nullptr) return;
  out[trace::kLaunchFunction] = trace::pack(0, api_id(row));
  out[trace::kLaunchStack] = trace::pack(position.frame, position.native_frame);
  write_fixed(out, launch, result, 0, 0);
  log.commit();
}

void record_launch(record::ThreadLog& log, std::uint32_t row, bool per_thread, const Launch& launch,
                   record::Stamp stamp, std::uint32_t duration) noexcept {
  const Position position = current_position(log);
  const record::Function* function = record::find_function(log, launch.function);
  const bool by_layout =
      __builtin_expect(launch.parameters != nullptr && function != nullptr && function->has_layout, 1);
  record::PackedParameters packed;
  std::uint32_t flags = launch.flags;
  std::uint32_t parameter_bytes = 0;
  if (__builtin_expect(by_layout, 1)) {
    parameter_bytes = function->parameter_bytes;
  } else {
    packed = record::packed_parameters(function, launch.parameters, launch.extra);
    parameter_bytes = packed.bytes;
    flags |= packed.flags;
  }
  std::uint32_t attributes = 0;
  if (launch.attributes != nullptr) attributes = std::min(launch.attribute_count, kMostAttributes);
  if (__builtin_expect(attributes != launch.attribute_count, 0)) flags |= trace::kFlagTruncated;
  if (is_captured(launch.stream, per_thread)) flags |= trace::kFlagCaptured;
  const auto attribute_words = attributes * static_cast<std::uint32_t>(trace::kAttributeBytes / 8);
  const auto words =
      static_cast<std::uint32_t>(trace::kLaunchFixed + attribute_words + trace::words_for(parameter_bytes));
  std::uint64_t* out = log.begin(trace::EventKind::kLaunch, function != nullptr ? function->key : 0, words, stamp,
                                 static_cast<std::uint16_t>(flags), duration);
  if (out == nullptr) return;
  out[words - 1] = 0;  // the padding: written over, but for that
  out[trace::kLaunchFunction] = trace::pack(function != nullptr ? function->id : 0, api_id(row));
  out[trace::kLaunchStack] = trace::pack(position.frame, position.native_frame);
  write_fixed(out, launch, CUDA_SUCCESS, attributes, parameter_bytes);
  out += trace::kLaunchFixed;
  if (__builtin_expect(attributes != 0, 0)) std::memcpy(out, launch.attributes, attributes * trace::kAttributeBytes);
  auto* to = reinterpret_cast<std::uint8_t*>(out + attribute_words);
  if (__builtin_expect(by_layout, 1)) {
    record::copy_parameters(to, *function, launch.parameters);
  } else {
    packed.copy_to(to);
  }
  log.commit();
}

}  // namespace grape::interpose
