// A hash table of blocks by address, for LiveBlocks, which locks it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace grape::memory {

struct Block {
  std::uint64_t address = 0;  // 0: a free place
  std::uint64_t bytes = 0;
  std::uint64_t serial = 0;
  std::uint64_t context = 0;
  std::uint32_t references = 0;
};

// Blocks by address: open addressing, at most half full, so that an allocation costs no memory allocation of its own.
class BlockTable {
 public:
  // The block at the address, or the free place for it. Precondition: room() > 0.
  Block& place_of(std::uint64_t address) const noexcept {
    std::size_t i = home_of(address);
    while (places_[i].address != 0 && places_[i].address != address) i = (i + 1) & (room_ - 1);
    return places_[i];
  }

  Block* find(std::uint64_t address) const noexcept {
    if (room_ == 0 || address == 0) return nullptr;
    Block& place = place_of(address);
    return place.address == address ? &place : nullptr;
  }

  void fetch_ahead(std::uint64_t address) const noexcept {
    if (room_ != 0) __builtin_prefetch(&places_[home_of(address)], 1);
  }

  // Null: no memory. The place of a new block has address 0.
  Block* place_for(std::uint64_t address) noexcept {
    if (used_ * 2 >= room_ && !grow()) return nullptr;
    Block& place = place_of(address);
    if (place.address == 0) ++used_;
    return &place;
  }

  // Closes the gap, so that searches still find what lies behind it.
  void erase(Block& block) noexcept {
    auto gap = static_cast<std::size_t>(&block - places_);
    for (std::size_t i = (gap + 1) & (room_ - 1); places_[i].address != 0; i = (i + 1) & (room_ - 1)) {
      const std::size_t home = home_of(places_[i].address);
      const bool stays = gap <= i ? gap < home && home <= i : gap < home || home <= i;
      if (stays) continue;
      places_[gap] = places_[i];
      gap = i;
    }
    places_[gap] = Block{};
    --used_;
  }

  void clear() noexcept {
    std::fill(places_, places_ + room_, Block{});
    used_ = 0;
  }

  std::size_t used() const noexcept { return used_; }
  const Block* begin() const noexcept { return places_; }
  const Block* end() const noexcept { return places_ + room_; }

 private:
  std::size_t home_of(std::uint64_t address) const noexcept {
    return static_cast<std::size_t>((address * 0x9E3779B97F4A7C15ull) >> 32) & (room_ - 1);
  }

  bool grow() noexcept {
    const std::size_t larger = room_ == 0 ? 1024 : room_ * 2;
    auto* fresh = static_cast<Block*>(std::calloc(larger, sizeof(Block)));
    if (fresh == nullptr) return false;
    Block* old = places_;
    const std::size_t old_room = room_;
    places_ = fresh;
    room_ = larger;
    for (std::size_t i = 0; i < old_room; ++i) {
      if (old[i].address != 0) place_of(old[i].address) = old[i];
    }
    std::free(old);
    return true;
  }

  Block* places_ = nullptr;
  std::size_t room_ = 0;  // a power of two
  std::size_t used_ = 0;
};

}  // namespace grape::memory
