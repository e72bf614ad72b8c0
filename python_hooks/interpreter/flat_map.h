// A small hash table for the hot paths: open addressing, keys and values trivially copyable, never throws.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace grape::python {

inline std::uint64_t mix(std::uint64_t value) noexcept {
  value *= 0x9E3779B97F4A7C15U;
  return value ^ (value >> 32);
}

// Key: has empty() (the value after zeroing), hash() and ==. Not for several threads. `Alignment`: of a key with its
// value, in bytes, for those that should be one cache line.
template <typename Key, typename Value, std::size_t Alignment = std::max(alignof(Key), alignof(Value))>
class FlatMap {
  static_assert(std::is_trivially_copyable<Key>::value && std::is_trivially_copyable<Value>::value, "copied as bytes");

 public:
  FlatMap() = default;
  ~FlatMap() { std::free(slots_); }
  FlatMap(const FlatMap&) = delete;
  FlatMap& operator=(const FlatMap&) = delete;

  // Null: not there.
  Value* find(const Key& key) const noexcept {
    if (slots_ == nullptr) return nullptr;
    Slot& slot = probe(slots_, mask_, key);
    return slot.key.empty() ? nullptr : &slot.value;
  }

  // Has where it would stand fetched ahead.
  void fetch(const Key& key) const noexcept {
    if (slots_ != nullptr) __builtin_prefetch(&slots_[key.hash() & mask_]);
  }

  // Adds or replaces. False: no memory.
  bool put(const Key& key, const Value& value) noexcept {
    const bool full = slots_ == nullptr || (used_ + 1) * 4 > (mask_ + 1) * 3;
    if (full && !grow()) return false;
    Slot& slot = probe(slots_, mask_, key);
    if (slot.key.empty()) ++used_;
    slot.key = key;
    slot.value = value;
    return true;
  }

  void clear() noexcept {
    if (used_ != 0) std::memset(static_cast<void*>(slots_), 0, (mask_ + 1) * sizeof(Slot));
    used_ = 0;
  }

 private:
  struct alignas(Alignment) Slot {
    Key key;
    Value value;
  };

  static Slot& probe(Slot* slots, std::size_t mask, const Key& key) noexcept {
    std::size_t at = key.hash() & mask;
    while (!slots[at].key.empty() && !(slots[at].key == key)) at = (at + 1) & mask;
    return slots[at];
  }

  static void* zeroed(std::size_t room) noexcept {
    if constexpr (alignof(Slot) <= alignof(std::max_align_t)) {
      return std::calloc(room, sizeof(Slot));
    } else {
      void* slots = std::aligned_alloc(alignof(Slot), room * sizeof(Slot));
      if (slots != nullptr) std::memset(slots, 0, room * sizeof(Slot));
      return slots;
    }
  }

  bool grow() noexcept {
    const std::size_t room = slots_ == nullptr ? 64 : (mask_ + 1) * 2;
    auto* bigger = static_cast<Slot*>(zeroed(room));
    if (bigger == nullptr) return false;
    for (std::size_t i = 0; slots_ != nullptr && i <= mask_; ++i) {
      if (!slots_[i].key.empty()) probe(bigger, room - 1, slots_[i].key) = slots_[i];
    }
    std::free(slots_);
    slots_ = bigger;
    mask_ = room - 1;
    return true;
  }

  Slot* slots_ = nullptr;
  std::size_t mask_ = 0;
  std::size_t used_ = 0;
};

// An address as a key; null is no key.
struct AddressKey {
  const void* address;
  bool empty() const noexcept { return address == nullptr; }
  std::uint64_t hash() const noexcept { return mix(reinterpret_cast<std::uintptr_t>(address) >> 4); }
  bool operator==(const AddressKey& other) const noexcept { return address == other.address; }
};

// A 64-bit hash of content as a key; 0 is no key.
struct HashKey {
  std::uint64_t value;
  bool empty() const noexcept { return value == 0; }
  std::uint64_t hash() const noexcept { return mix(value); }
  bool operator==(const HashKey& other) const noexcept { return value == other.value; }
};

}  // namespace grape::python
