#include "python_hooks/interpreter/memory_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>

namespace grape::python {
namespace {

// What a range may be used for.
struct Permissions {
  bool read, write, run;
};

// Reads "start-end perms ..." lines character by character, so that no line is too long, and calls
// `found(start, end, permissions)` for each.
template <typename Found>
class MapScanner {
 public:
  explicit MapScanner(Found found) noexcept : found_(found) {}

  void take(char c) {
    if (c == '\n') {
      part_ = 0;
      start_ = end_ = 0;
    } else if (part_ == 0 && c == '-') {
      part_ = 1;
    } else if (part_ == 1 && c == ' ') {
      part_ = 2;
    } else if (part_ == 0 || part_ == 1) {
      std::uintptr_t& value = part_ == 0 ? start_ : end_;
      value = value * 16 + static_cast<std::uintptr_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    } else if (part_ < 5) {
      // The permissions: "rw-p".
      letters_[part_ - 2] = c;
      if (++part_ == 5) found_(start_, end_, Permissions{letters_[0] == 'r', letters_[1] == 'w', letters_[2] == 'x'});
    }
  }

 private:
  Found found_;
  std::uintptr_t start_ = 0, end_ = 0;
  char letters_[3] = {};
  int part_ = 0;
};

template <typename Found>
void scan_maps(Found found) {
  const int saved = errno;
  MapScanner<Found> scanner(found);
  const int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    char buffer[4096];
    for (ssize_t bytes; (bytes = read(descriptor, buffer, sizeof(buffer))) > 0;) {
      for (ssize_t i = 0; i < bytes; ++i) scanner.take(buffer[i]);
    }
    close(descriptor);
  }
  errno = saved;
}

}  // namespace

bool is_writable(const void* address) noexcept {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool writable = false;
  scan_maps([&](std::uintptr_t start, std::uintptr_t end, Permissions may) {
    if (start <= wanted && wanted < end) writable = may.write;
  });
  return writable;
}

AddressSpace::AddressSpace() {
  scan_maps([this](std::uintptr_t start, std::uintptr_t end, Permissions may) {
    const Kind readable = may.read ? Kind::kData : Kind::kReserved;
    ranges_.push_back({start, end, may.run ? Kind::kCode : readable, may.write});
  });
}

const AddressSpace::Range* AddressSpace::find(std::uintptr_t address) const noexcept {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](std::uintptr_t wanted, const Range& range) { return wanted < range.start; });
  return after != ranges_.begin() && address < std::prev(after)->end ? &*std::prev(after) : nullptr;
}

CarefulReader::CarefulReader() noexcept {
  const int saved = errno;
  descriptor_ = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  errno = saved;
}

CarefulReader::~CarefulReader() {
  const int saved = errno;
  if (descriptor_ >= 0) close(descriptor_);
  errno = saved;
}

bool CarefulReader::readable(const void* address, std::size_t bytes) const noexcept {
  if (descriptor_ < 0) return true;
  const int saved = errno;
  char buffer[512];
  bool all = true;
  for (std::size_t done = 0; done < bytes && all;) {
    const std::size_t part = bytes - done < sizeof(buffer) ? bytes - done : sizeof(buffer);
    const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(address) + done);
    all = at > 0 && pread(descriptor_, buffer, part, at) == static_cast<ssize_t>(part);
    done += part;
  }
  errno = saved;
  return all;
}

}  // namespace grape::python
