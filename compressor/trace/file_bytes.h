// The bytes of a trace: a regular file, or memory. Files are read by position and never mapped, so that a file which
// shrinks while it is read is a short read and not a SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace grape::trace {

// False, with errno: not all was written.
bool write_all(int descriptor, const std::uint8_t* data, std::size_t bytes);

class FileBytes {
 public:
  // Null: `message` says why. Only regular files: a pipe could keep the reader waiting for ever.
  static std::unique_ptr<FileBytes> open(const std::string& path, std::string& message);
  static std::unique_ptr<FileBytes> from_bytes(std::vector<std::uint8_t> bytes);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::uint64_t size() const { return size_; }

  // False: not all of the range could be read.
  bool read(std::uint64_t offset, void* to, std::size_t bytes) const;

 private:
  FileBytes() = default;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace grape::trace
