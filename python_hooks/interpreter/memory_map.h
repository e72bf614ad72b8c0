// Which of the process's memory may be read, written or run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace grape::python {

// The ranges of the process's memory at the time of construction. Reads /proc/self/maps: not for hot paths. Throws
// std::bad_alloc.
class AddressSpace {
 public:
  enum class Kind : std::uint8_t { kNone, kReserved, kData, kCode };  // kReserved: neither read nor run
  AddressSpace();
  Kind at(std::uintptr_t address) const noexcept {
    const Range* range = find(address);
    return range != nullptr ? range->kind : Kind::kNone;
  }
  bool is_writable(const void* address) const noexcept {
    const Range* range = find(reinterpret_cast<std::uintptr_t>(address));
    return range != nullptr && range->writable;
  }

 private:
  struct Range {
    std::uintptr_t start, end;
    Kind kind;
    bool writable;
  };
  const Range* find(std::uintptr_t address) const noexcept;

  std::vector<Range> ranges_;  // ascending
};

// Reads this process's memory without ever faulting: a wrong address is an error of the kernel's, not a signal.
class CarefulReader {
 public:
  CarefulReader() noexcept;
  ~CarefulReader();
  CarefulReader(const CarefulReader&) = delete;
  CarefulReader& operator=(const CarefulReader&) = delete;

  // Are these bytes mapped? True as well where the system does not let us ask.
  bool readable(const void* address, std::size_t bytes) const noexcept;

 private:
  int descriptor_;  // of /proc/self/mem; -1: not allowed
};

}  // namespace grape::python
