#include "tools/inputs/attributes.h"

#include <fmt/format.h>

#include <cstring>

namespace grape::tools {
namespace {

template <class Value>
Value read(const std::uint8_t* at) {
  Value value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::string dimensions(const char* name, const std::uint8_t* value) {
  return fmt::format("{} {}x{}x{}", name, read<std::uint32_t>(value), read<std::uint32_t>(value + 4),
                     read<std::uint32_t>(value + 8));
}

// CUlaunchAttributeID and CUlaunchAttributeValue, cuda.h of CUDA 13.0: a 4-byte id, 4 bytes of padding, 64 of value.
std::string decode(const std::uint8_t* attribute) {
  const std::uint8_t* value = attribute + 8;
  const auto number = read<std::int32_t>(value);
  switch (read<std::uint32_t>(attribute)) {
    case 0:
      return "";
    case 1:
      return fmt::format("access policy window {:#x}, {} B", read<std::uint64_t>(value),
                         read<std::uint64_t>(value + 8));
    case 2:
      return number != 0 ? "cooperative" : "";
    case 3:
      return fmt::format("synchronization policy {}", number);
    case 4:
      return dimensions("cluster", value);
    case 5:
      return fmt::format("cluster scheduling policy {}", number);
    case 6:
      return number != 0 ? "programmatic stream serialization" : "";
    case 7:
      return fmt::format("programmatic event {:#x}", read<std::uint64_t>(value));
    case 8:
      return fmt::format("priority {}", number);
    case 9:
      return fmt::format("memory sync domains {}/{}", value[0], value[1]);
    case 10:
      return fmt::format("memory sync domain {}", number);
    case 11:
      return dimensions("preferred cluster", value);
    case 12:
      return fmt::format("launch completion event {:#x}", read<std::uint64_t>(value));
    case 13:
      return "device-updatable";
    case 14:
      return fmt::format("preferred shared memory carveout {}", number);
    case 16:
      return fmt::format("NVLink-centric scheduling {}", number);
    default:
      return fmt::format("attribute {}", read<std::uint32_t>(attribute));
  }
}

}  // namespace

std::vector<std::string> launch_attributes(const trace::LaunchView& launch) {
  std::vector<std::string> list;
  if ((launch.header->flags & trace::kFlagCooperative) != 0) list.emplace_back("cooperative");
  for (std::uint32_t i = 0; i < launch.attribute_count(); ++i) {
    std::string text = decode(launch.attribute(i));
    if (!text.empty() && (list.empty() || list[0] != text)) list.push_back(std::move(text));
  }
  return list;
}

std::vector<std::string> flag_notes(std::uint16_t flags) {
  std::vector<std::string> list;
  if ((flags & trace::kFlagNoLayout) != 0) list.emplace_back("parameters unknown");
  if ((flags & trace::kFlagPackedExtra) != 0) list.emplace_back("packed parameters");
  if ((flags & trace::kFlagTruncated) != 0) list.emplace_back("parameters cut");
  return list;
}

std::string attributes_text(const std::vector<std::string>& list) {
  return list.empty() ? "none" : fmt::format("{}", fmt::join(list, ", "));
}

}  // namespace grape::tools
