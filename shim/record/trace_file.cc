#include "shim/record/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "compressor/trace/file_bytes.h"
#include "shim/lifecycle/log.h"

namespace grape::record {
namespace {

constexpr int kNameTries = 99;

bool append(char (&path)[kPathRoom], std::size_t& used, const char* text, bool plain) {
  for (; *text != '\0'; ++text) {
    if (used + 1 >= kPathRoom) return false;
    path[used++] = !plain && *text == '/' ? '_' : *text;
  }
  path[used] = '\0';
  return true;
}

int open_new(const char* path) {
  const int descriptor = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  // The umask may only take rights away; it must not take the owner's.
  if (descriptor >= 0) (void)!::fchmod(descriptor, 0600);
  return descriptor;
}

// "run.grape" → "run-2.grape"
bool numbered(const char* path, int number, char (&out)[kPathRoom]) {
  const char* slash = std::strrchr(path, '/');
  const char* dot = std::strrchr(slash == nullptr ? path : slash, '.');
  const std::size_t stem = dot == nullptr || dot == path ? std::strlen(path) : static_cast<std::size_t>(dot - path);
  const int bytes = std::snprintf(out, kPathRoom, "%.*s-%d%s", static_cast<int>(stem), path, number, path + stem);
  return bytes > 0 && static_cast<std::size_t>(bytes) < kPathRoom;
}

}  // namespace

bool expand_path(const char* pattern, char (&path)[kPathRoom]) noexcept {
  std::size_t used = 0;
  char text[256];
  path[0] = '\0';
  for (const char* p = pattern; *p != '\0'; ++p) {
    if (*p != '%' || (p[1] != 'h' && p[1] != 'p' && p[1] != 'r' && p[1] != '%')) {
      const char one[2] = {*p, '\0'};
      if (!append(path, used, one, true)) return false;
      continue;
    }
    ++p;
    if (*p == 'h') {
      if (gethostname(text, sizeof text) != 0) std::strcpy(text, "localhost");
      text[sizeof text - 1] = '\0';
    } else if (*p == 'p') {
      std::snprintf(text, sizeof text, "%d", static_cast<int>(getpid()));
    } else if (*p == 'r') {
      const char* rank = std::getenv("RANK");
      std::snprintf(text, sizeof text, "%s", rank == nullptr || *rank == '\0' ? "0" : rank);
    } else {
      std::strcpy(text, "%");
    }
    if (!append(path, used, text, false)) return false;
  }
  return used > 0;
}

TraceFile::~TraceFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool TraceFile::create(const char* pattern, bool replace) noexcept {
  if (!expand_path(pattern, path_)) {
    errno = ENAMETOOLONG;
    return false;
  }
  struct stat status;
  if (path_[std::strlen(path_) - 1] == '/' || (::lstat(path_, &status) == 0 && S_ISDIR(status.st_mode))) {
    errno = EISDIR;
    return false;
  }
  replace_ = replace;
  if (replace) {
    const int bytes = std::snprintf(partial_, sizeof partial_, "%s.partial-%d", path_, static_cast<int>(getpid()));
    if (bytes < 0 || static_cast<std::size_t>(bytes) >= sizeof partial_) {
      errno = ENAMETOOLONG;
      return false;
    }
    descriptor_ = open_new(partial_);
    // A run that was killed, or an earlier image of this process, may have left one of the same name.
    const auto stem = static_cast<std::size_t>(bytes);
    for (int number = 2; descriptor_ < 0 && (errno == EEXIST || errno == ELOOP) && number <= kNameTries; ++number) {
      std::snprintf(partial_ + stem, sizeof partial_ - stem, "-%d", number);
      descriptor_ = open_new(partial_);
    }
    return descriptor_ >= 0;
  }
  descriptor_ = open_new(path_);
  if (descriptor_ >= 0 || (errno != EEXIST && errno != ELOOP)) return descriptor_ >= 0;
  char other[kPathRoom];
  for (int number = 2; number <= kNameTries && numbered(path_, number, other); ++number) {
    descriptor_ = open_new(other);
    if (descriptor_ >= 0) {
      notice("%s exists; the trace goes to %s", path_, other);
      std::memcpy(path_, other, sizeof path_);
      return true;
    }
    if (errno != EEXIST && errno != ELOOP) return false;
  }
  return false;
}

bool TraceFile::write(const std::uint8_t* data, std::size_t bytes) {
  const bool written = trace::write_all(descriptor_, data, bytes);
  if (!written) error_ = errno;
  return written;
}

bool TraceFile::commit() noexcept {
  const int closed = descriptor_ < 0 ? 0 : ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 && error_ == 0) error_ = errno;
  if (!replace_) return closed == 0;
  return std::rename(partial_, path_) == 0 && closed == 0;
}

}  // namespace grape::record
