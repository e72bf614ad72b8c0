#include "compressor/program/kept_blocks.h"

#include <algorithm>
#include <cstddef>

namespace grape::program {
namespace {

// The last birth at that address, by its place among the events; their number: there is none.
std::size_t birth_at(const std::vector<BlockEvent>& events, std::uint64_t address) {
  for (std::size_t i = events.size(); i-- > 0;) {
    if (events[i].alloc && events[i].address == address) return i;
  }
  return events.size();
}

bool lies_in_older(const RegionRecord& record, const BlockEvent& birth) {
  return std::any_of(record.before.begin(), record.before.end(),
                     [&birth](const LiveBlock& block) { return overlap(block, birth); });
}

}  // namespace

bool count_as_before(RegionRecord& record, const std::vector<std::uint64_t>& addresses) {
  std::vector<BlockEvent>& events = record.block_events;
  std::vector<LiveBlock> before = record.before;
  std::vector<bool> gone(events.size(), false);
  for (const std::uint64_t address : addresses) {
    const std::size_t birth = birth_at(events, address);
    if (birth == events.size() || lies_in_older(record, events[birth])) return false;
    before.push_back({events[birth].address, events[birth].bytes, events[birth].serial});
    gone[birth] = true;
  }
  std::sort(before.begin(), before.end(), [](const LiveBlock& a, const LiveBlock& b) { return a.address < b.address; });
  record.before = std::move(before);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (!gone[i]) events[kept++] = events[i];
  }
  events.resize(kept);
  return true;
}

}  // namespace grape::program
