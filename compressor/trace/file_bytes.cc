#include "compressor/trace/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace grape::trace {

bool write_all(int descriptor, const std::uint8_t* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return false;
    data += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

std::unique_ptr<FileBytes> FileBytes::open(const std::string& path, std::string& message) {
  std::unique_ptr<FileBytes> file(new FileBytes);
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  struct stat status;
  if (file->descriptor_ < 0 || fstat(file->descriptor_, &status) != 0) {
    message = std::strerror(errno);
    return nullptr;
  }
  if (!S_ISREG(status.st_mode)) {
    message = "not a regular file";
    return nullptr;
  }
  file->size_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

std::unique_ptr<FileBytes> FileBytes::from_bytes(std::vector<std::uint8_t> bytes) {
  std::unique_ptr<FileBytes> file(new FileBytes);
  file->bytes_ = std::move(bytes);
  file->size_ = file->bytes_.size();
  return file;
}

FileBytes::~FileBytes() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool FileBytes::read(std::uint64_t offset, void* to, std::size_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) return false;
  if (bytes == 0) return true;
  if (descriptor_ < 0) {
    std::memcpy(to, bytes_.data() + offset, bytes);
    return true;
  }
  auto* at = static_cast<std::uint8_t*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace grape::trace
