#include "tools/inputs/blocks.h"

#include <fmt/format.h>

namespace grape::tools {

using trace::ApiClass;
using trace::EventKind;

void BlockTable::Space::add(std::uint64_t address, std::uint64_t bytes, bool driver) {
  if (address == 0) return;
  live[address] = {address, bytes, ++allocations, driver};
}

Block BlockTable::Space::find(std::uint64_t address) const {
  auto found = live.upper_bound(address);
  if (found == live.begin()) return {};
  --found;
  const Block& block = found->second;
  return address - block.address < (block.bytes == 0 ? 1 : block.bytes) ? block : Block();
}

void BlockTable::see(const trace::EventView& event) {
  const std::uint64_t* words = event.words();
  switch (event.header->kind) {
    case EventKind::kBlockAlloc:
      return framework_.add(words[0], words[1], false);
    case EventKind::kBlockFree:
      return framework_.remove(words[0]);
    case EventKind::kCall:
      break;
    default:
      return;
  }
  const record::CallView call(event);
  const record::ApiLayout& layout = apis_[call.api()];
  if (layout.ends_range) {  // what happens to them now is not seen
    framework_.live.clear();
    driver_.live.clear();
  }
  if (call.result() != 0 || layout.ptr < 0) return;
  if (layout.api_class == ApiClass::kAlloc) {
    const std::uint64_t bytes = layout.bytes >= 0    ? call.argument(layout.bytes)
                                : layout.height >= 0 ? call.argument(layout.width) * call.argument(layout.height)
                                                     : 0;
    driver_.add(call.argument(layout.ptr), bytes, true);
  } else if (layout.api_class == ApiClass::kFree) {
    driver_.remove(call.argument(layout.ptr));
  }
}

Block BlockTable::find(std::uint64_t address) const {
  const Block block = framework_.find(address);
  return block ? block : driver_.find(address);
}

std::string describe(const Block& block, std::uint64_t address) {
  if (!block) return "";
  return fmt::format("{} {}+{:#x} of {} B", block.driver ? "driver block" : "block", block.ordinal,
                     address - block.address, block.bytes);
}

}  // namespace grape::tools
