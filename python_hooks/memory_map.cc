#include "python_hooks/memory_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace grape::python {
namespace {

// Reads "start-end perms ..." lines character by character, so that no line is too long.
class MapScanner {
 public:
  explicit MapScanner(std::uintptr_t address) noexcept : address_(address) {}

  void take(char c) noexcept {
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
    } else if (part_ < 4) {
      // The permissions: "rw-p"; the second letter counts.
      if (++part_ == 4 && start_ <= address_ && address_ < end_) writable_ = c == 'w';
    }
  }
  bool writable() const noexcept { return writable_; }

 private:
  std::uintptr_t address_, start_ = 0, end_ = 0;
  int part_ = 0;
  bool writable_ = false;
};

}  // namespace

bool is_writable(const void* address) noexcept {
  const int saved = errno;
  MapScanner scanner(reinterpret_cast<std::uintptr_t>(address));
  const int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    char buffer[4096];
    for (ssize_t bytes; (bytes = read(descriptor, buffer, sizeof(buffer))) > 0;) {
      for (ssize_t i = 0; i < bytes; ++i) scanner.take(buffer[i]);
    }
    close(descriptor);
  }
  errno = saved;
  return scanner.writable();
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
