// Tracks live memory blocks while a walk passes allocations and frees, and finds the block of a pointer.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "shim/record/api_table.h"

namespace grape::tools {

struct Block {
  std::uint64_t address = 0, bytes = 0;
  std::uint64_t ordinal = 0;  // of the allocation, from 1; framework and driver blocks count apart
  bool driver = false;        // of a driver allocation: the framework's allocator gave no block here
  explicit operator bool() const { return ordinal != 0; }
};

class BlockTable {
 public:
  explicit BlockTable(const record::ApiTable& apis) : apis_(apis) {}
  void see(const trace::EventView& event);
  // The live block that holds the address; none: ordinal 0. A framework's block goes before the driver's around it.
  Block find(std::uint64_t address) const;
  std::uint64_t allocations() const { return framework_.allocations; }

 private:
  struct Space {
    std::map<std::uint64_t, Block> live;
    std::uint64_t allocations = 0;
    void add(std::uint64_t address, std::uint64_t bytes, bool driver);
    void remove(std::uint64_t address) { live.erase(address); }
    Block find(std::uint64_t address) const;
  };
  const record::ApiTable& apis_;
  Space framework_, driver_;
};

// "block 17+0x40 of 4096 B".
std::string describe(const Block& block, std::uint64_t address);

}  // namespace grape::tools
