// Handles: what the driver gives out as CUstream, CUevent, CUfunction and so on.
//
// A handle is the address of a slot in a table of its kind. Slots are never unmapped, so a stale or foreign handle is
// recognised instead of followed. A freed slot is the next to be used again: handles come back at once, as they may
// with the real driver.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

// Where LeakSanitizer is: it does not look for pointers in memory of mmap unless it is told to.
extern "C" void __lsan_register_root_region(const void* begin, std::size_t bytes) __attribute__((weak));

namespace simcuda {

template <typename T>
class HandleTable {
 public:
  static HandleTable& instance() {
    static HandleTable& table = *new HandleTable;  // never destroyed: workers outlive main
    return table;
  }

  void* create(std::shared_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    Slot* slot = nullptr;
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
    } else {
      if (used_ == kSlots) throw std::bad_alloc();
      constexpr std::size_t kChunk = 1024;
      if (used_ % kChunk == 0 && __lsan_register_root_region != nullptr) {
        __lsan_register_root_region(slots_ + used_, kChunk * sizeof(Slot));
      }
      slot = new (slots_ + used_) Slot;
      ++used_;
    }
    slot->owner = std::move(object);
    slot->object.store(slot->owner.get(), std::memory_order_release);
    return slot;
  }

  // The object, or null if the handle is none of this table's live ones. Valid until destroy().
  T* find(const void* handle) const {
    const auto offset = reinterpret_cast<std::uintptr_t>(handle) - reinterpret_cast<std::uintptr_t>(slots_);
    if (offset >= kSlots * sizeof(Slot) || offset % sizeof(Slot) != 0) return nullptr;
    return static_cast<const Slot*>(handle)->object.load(std::memory_order_acquire);
  }

  std::shared_ptr<T> share(const void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    return find(handle) == nullptr ? nullptr : static_cast<const Slot*>(handle)->owner;
  }

  // Ends the handle; the object lives on while others share it. Null for an invalid handle.
  std::shared_ptr<T> destroy(void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (find(handle) == nullptr) return nullptr;
    Slot* slot = static_cast<Slot*>(handle);
    slot->object.store(nullptr, std::memory_order_release);
    free_.push_back(slot);
    return std::move(slot->owner);
  }

 private:
  struct alignas(64) Slot {
    std::atomic<T*> object{nullptr};
    std::shared_ptr<T> owner;
  };
  static constexpr std::size_t kSlots = std::size_t{1} << 22;

  HandleTable() {
    void* memory = mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    slots_ = static_cast<Slot*>(memory);
  }

  std::mutex mutex_;
  Slot* slots_ = nullptr;
  std::size_t used_ = 0;
  std::vector<Slot*> free_;
};

template <typename T>
T* find_handle(const void* handle) {
  return HandleTable<T>::instance().find(handle);
}
template <typename T>
std::shared_ptr<T> share_handle(const void* handle) {
  return HandleTable<T>::instance().share(handle);
}
template <typename Handle, typename T>
Handle create_handle(std::shared_ptr<T> object) {
  return static_cast<Handle>(HandleTable<T>::instance().create(std::move(object)));
}
template <typename T>
std::shared_ptr<T> destroy_handle(void* handle) {
  return HandleTable<T>::instance().destroy(handle);
}

}  // namespace simcuda
