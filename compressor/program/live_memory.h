// Finds the block that an address points into, at one moment of a region. For symbolise.cc only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "compressor/program/program.h"

namespace grape::program {

// The last interval that begins at or before `address`; null if there is none.
template <typename Block, typename Begin>
const Block* last_not_after(const std::vector<Block>& blocks, std::uint64_t address, Begin begin) {
  const auto next = std::upper_bound(blocks.begin(), blocks.end(), address,
                                     [&](std::uint64_t value, const Block& block) { return value < begin(block); });
  return next == blocks.begin() ? nullptr : &*(next - 1);
}

class LiveMemory {
 public:
  struct Place {
    Role role = Role::kStatic;
    std::uint32_t block =
        0;  // kStatic: index into RegionRecord::before; kInput: the extent; kTemp: number of the birth
    std::uint64_t address = 0;  // where the block, or extent, begins
  };

  // `record` must outlive this object.
  explicit LiveMemory(const RegionRecord& record) : record_(record), dead_(record.before.size(), 0) {
    add_inputs();
    set_range();
  }

  // Births and deaths up to this node, itself included. Nodes ascend from call to call.
  void advance_to(std::uint32_t node) {
    for (; next_event_ < record_.block_events.size(); ++next_event_) {
      const BlockEvent& event = record_.block_events[next_event_];
      if (event.before_node > node) break;
      event.alloc ? bear(event) : bury(event);
    }
  }

  // What is born inside is a kTemp here: only the end tells which are outputs.
  bool find(std::uint64_t address, Place& place) const {
    return address - lowest_ < reach_ && find_slowly(address, place);
  }

  // All blocks born so far, in the order of birth.
  const std::vector<BornBlock>& births() const { return births_; }

 private:
  struct Interval {
    std::uint64_t begin = 0, end = 0;
    std::uint32_t index = 0;
    std::uint32_t owner = kNever;  // of an extent: the block around it
  };

  // What is born inside comes first: it may lie in a segment of the driver's that was empty, and so a block, before.
  bool find_slowly(std::uint64_t address, Place& place) const {
    const auto begin = [](const Interval& each) { return each.begin; };
    const Interval* interval = last_not_after(born_, address, begin);
    if (interval != nullptr && address < interval->end) {
      place = {Role::kTemp, interval->index, interval->begin};
      return true;
    }
    interval = last_not_after(inputs_, address, begin);
    if (interval != nullptr && address < interval->end && (interval->owner == kNever || dead_[interval->owner] == 0)) {
      place = {Role::kInput, interval->index, interval->begin};
      return true;
    }
    const std::uint32_t before = find_before(address);
    if (before == kNever || dead_[before] != 0) return false;
    place = {Role::kStatic, before, record_.before[before].address};
    return true;
  }

  std::uint32_t find_before(std::uint64_t address) const {
    const LiveBlock* block =
        last_not_after(record_.before, address, [](const LiveBlock& each) { return each.address; });
    if (block == nullptr || address - block->address >= block->bytes) return kNever;
    return static_cast<std::uint32_t>(block - record_.before.data());
  }

  void add_inputs() {
    for (std::uint32_t i = 0; i < record_.inputs.size(); ++i) {
      const Extent& extent = record_.inputs[i];
      if (extent.bytes == 0) continue;
      inputs_.push_back({extent.address, extent.address + extent.bytes, i, find_before(extent.address)});
    }
    std::sort(inputs_.begin(), inputs_.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  }

  void set_range() {
    std::uint64_t low = ~std::uint64_t{0}, high = 0;
    const auto include = [&](std::uint64_t address, std::uint64_t bytes) {
      low = std::min(low, address);
      high = std::max(high, address + bytes);
    };
    for (const LiveBlock& block : record_.before) include(block.address, block.bytes);
    for (const Extent& extent : record_.inputs) include(extent.address, extent.bytes);
    for (const BlockEvent& event : record_.block_events) {
      if (event.alloc) include(event.address, event.bytes);
    }
    if (low < high) {
      lowest_ = low;
      reach_ = high - low;
    }
  }

  void bear(const BlockEvent& event) {
    const auto birth = static_cast<std::uint32_t>(births_.size());
    births_.push_back({event.bytes, birth, event.before_node, kNever});
    outlives_.push_back(std::binary_search(record_.given_away.begin(), record_.given_away.end(), event.serial) &&
                        event.serial != 0);
    if (event.bytes == 0) {
      empty_.emplace_back(event.address, birth);
      return;
    }
    const Interval block{event.address, event.address + event.bytes, birth};
    auto first = std::lower_bound(born_.begin(), born_.end(), block.begin,
                                  [](const Interval& other, std::uint64_t begin) { return other.end <= begin; });
    auto last = first;
    // What lies here still must have died without our being told.
    for (; last != born_.end() && last->begin < block.end; ++last) end(last->index, event.before_node);
    born_.insert(born_.erase(first, last), block);
  }

  void bury(const BlockEvent& event) {
    const auto born = std::lower_bound(born_.begin(), born_.end(), event.address,
                                       [](const Interval& block, std::uint64_t begin) { return block.begin < begin; });
    if (born != born_.end() && born->begin == event.address) {
      end(born->index, event.before_node);
      born_.erase(born);
      return;
    }
    const std::uint32_t before = find_before(event.address);
    if (before != kNever && record_.before[before].address == event.address && dead_[before] == 0) {
      dead_[before] = 1;
      return;
    }
    for (auto block = empty_.begin(); block != empty_.end(); ++block) {
      if (block->first != event.address) continue;
      births_[block->second].died = event.before_node;
      empty_.erase(block);
      return;
    }
  }

  void end(std::uint32_t birth, std::uint32_t before_node) {
    if (!outlives_[birth]) births_[birth].died = before_node;
  }

  const RegionRecord& record_;
  std::size_t next_event_ = 0;
  std::uint64_t lowest_ = 0, reach_ = 0;  // all memory that is ever known lies here
  std::vector<Interval> inputs_;          // ascending
  std::vector<Interval> born_;            // alive and not empty, ascending
  std::vector<std::uint8_t> dead_;        // per block of RegionRecord::before
  std::vector<BornBlock> births_;
  std::vector<bool> outlives_;                                  // per birth: it was given away
  std::vector<std::pair<std::uint64_t, std::uint32_t>> empty_;  // blocks of no bytes: address and birth
};

}  // namespace grape::program
