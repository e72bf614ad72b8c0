#include "compressor/program/stack_addresses.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace grape::program {
namespace {

constexpr std::uint32_t kPointer = sizeof(std::uint64_t), kStep = sizeof(std::uint32_t);

bool lies_in(std::uint64_t address, const std::vector<Extent>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [=](const Extent& each) { return address - each.address < each.bytes; });
}

}  // namespace

void clear_stack_addresses(RegionRecord& record, const std::vector<Extent>& stacks) {
  for (const RecordedNode& node : record.nodes) {
    if (node.kind != NodeKind::kKernel) continue;
    auto* const parameters = reinterpret_cast<std::uint8_t*>(record.words.data() + node.words_at);
    const std::uint32_t room = node.word_count * kPointer;
    const FunctionInfo& function = record.functions[node.function];
    if (!function.has_layout) continue;
    for (const Parameter& parameter : function.parameters) {
      const std::uint32_t end = std::min(parameter.offset + parameter.bytes, room);
      if (parameter.bytes <= kPointer) continue;
      for (std::uint32_t at = (parameter.offset + kStep - 1) / kStep * kStep; at + kPointer <= end; at += kStep) {
        std::uint64_t value = 0;
        std::memcpy(&value, parameters + at, kPointer);
        if (lies_in(value, stacks)) std::memset(parameters + at, 0, kPointer);
      }
    }
  }
}

}  // namespace grape::program
