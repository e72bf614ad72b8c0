// Finds the block that an address points into, at one moment of a region. For symbolise.cc only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compressor/program/program.h"

namespace grape::program {

class LiveMemory {
 public:
  struct Place {
    Role role = Role::kStatic;
    std::uint32_t block =
        0;  // kStatic: index into RegionRecord::before; kInput: the extent; kTemp: number of the birth
    std::uint64_t address = 0;  // where the block, or extent, begins
  };

  // `record` must outlive this object.
  explicit LiveMemory(const RegionRecord& record);

  // Births and deaths up to this node, itself included. Nodes ascend from call to call.
  void advance_to(std::uint32_t node);

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

  bool find_slowly(std::uint64_t address, Place& place) const;
  std::uint32_t find_before(std::uint64_t address) const;
  void add_inputs();
  void set_range();
  void bear(const BlockEvent& event);
  void bury(const BlockEvent& event);

  const RegionRecord& record_;
  std::size_t next_event_ = 0;
  std::uint64_t lowest_ = 0, reach_ = 0;  // all memory that is ever known lies here
  std::vector<Interval> inputs_;          // ascending
  std::vector<Interval> born_;            // alive and not empty, ascending
  std::vector<std::uint8_t> dead_;        // per block of RegionRecord::before
  std::vector<BornBlock> births_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> empty_;  // blocks of no bytes: address and birth
};

}  // namespace grape::program
