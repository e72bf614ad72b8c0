#include "compressor/program/kept_blocks.h"

#include <algorithm>
#include <cstddef>

namespace grape::program {
namespace {

template <typename A, typename B>
bool overlap(const A& a, const B& b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

// The last birth at that address; null: none.
const BlockEvent* birth_at(const std::vector<BlockEvent>& events, std::uint64_t address) {
  const auto found = std::find_if(events.rbegin(), events.rend(), [address](const BlockEvent& event) {
    return event.alloc && event.address == address;
  });
  return found != events.rend() ? &*found : nullptr;
}

bool was_something_else(const RegionRecord& record, const BlockEvent& birth) {
  const auto other = [&birth](const BlockEvent& event) {
    return event.alloc && &event != &birth && overlap(event, birth);
  };
  const auto older = [&birth](const LiveBlock& block) { return overlap(block, birth); };
  return std::any_of(record.block_events.begin(), record.block_events.end(), other) ||
         std::any_of(record.before.begin(), record.before.end(), older);
}

}  // namespace

bool count_as_before(RegionRecord& record, const std::vector<std::uint64_t>& addresses) {
  std::vector<BlockEvent> births;
  for (const std::uint64_t address : addresses) {
    const BlockEvent* birth = birth_at(record.block_events, address);
    if (birth == nullptr || was_something_else(record, *birth)) return false;
    births.push_back(*birth);
  }
  std::vector<LiveBlock> before = record.before;
  for (const BlockEvent& birth : births) before.push_back({birth.address, birth.bytes, birth.serial});
  std::sort(before.begin(), before.end(), [](const LiveBlock& a, const LiveBlock& b) { return a.address < b.address; });
  record.before = std::move(before);
  auto& events = record.block_events;
  events.erase(std::remove_if(events.begin(), events.end(),
                              [&addresses](const BlockEvent& event) {
                                return std::find(addresses.begin(), addresses.end(), event.address) != addresses.end();
                              }),
               events.end());
  return true;
}

}  // namespace grape::program
