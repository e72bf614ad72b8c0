// Numbers for addresses, given in the order in which they are first met. Emptied in no time and without giving memory
// back, for walks that come again and again.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/flat_map.h"

namespace grape::python::walk {

class SeenTable {
 public:
  // The address's number; `added`: it is new. May throw std::bad_alloc.
  std::uint32_t number_of(const void* address, bool& added) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slot_of(address);
    added = slot.round != round_;
    if (added) slot = {address, count_++, round_};
    return slot.number;
  }
  // Null: it was not met.
  const std::uint32_t* find(const void* address) noexcept {
    if (count_ == 0) return nullptr;
    const Slot& slot = slot_of(address);
    return slot.round == round_ ? &slot.number : nullptr;
  }
  // Has a small table fetched ahead.
  void fetch() const noexcept {
    if (slots_.size() > 512) return;
    for (std::size_t i = 0; i < slots_.size(); i += 64 / sizeof(Slot)) __builtin_prefetch(&slots_[i]);
  }
  void clear() noexcept {
    count_ = 0;
    if (++round_ != 0) return;
    for (Slot& slot : slots_) slot.round = 0;
    round_ = 1;
  }

 private:
  struct Slot {
    const void* address = nullptr;
    std::uint32_t number = 0;
    std::uint32_t round = 0;  // in use if it is the table's
  };

  Slot& slot_of(const void* address) noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = mix(reinterpret_cast<std::uintptr_t>(address) >> 4) & mask;
    while (slots_[at].round == round_ && slots_[at].address != address) at = (at + 1) & mask;
    return slots_[at];
  }

  void grow() {
    std::vector<Slot> before(slots_.empty() ? 256 : slots_.size() * 2);
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.round == round_) slot_of(slot.address) = slot;
    }
  }

  std::vector<Slot> slots_;
  std::uint32_t count_ = 0;
  std::uint32_t round_ = 1;
};

}  // namespace grape::python::walk
