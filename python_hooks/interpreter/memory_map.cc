#include "python_hooks/interpreter/memory_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace grape::python {

AddressSpace::AddressSpace() {
  const int saved = errno;
  if (std::FILE* maps = std::fopen("/proc/self/maps", "re")) {
    char* line = nullptr;  // "start-end rwxp ..."
    std::size_t room = 0;
    while (getline(&line, &room, maps) > 0) {
      char* rest = nullptr;
      const std::uintptr_t start = std::strtoul(line, &rest, 16), end = std::strtoul(rest + 1, &rest, 16);
      const Kind readable = rest[1] == 'r' ? Kind::kData : Kind::kReserved;
      ranges_.push_back({start, end, rest[3] == 'x' ? Kind::kCode : readable, rest[2] == 'w'});
    }
    std::free(line);
    std::fclose(maps);
  }
  errno = saved;
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
