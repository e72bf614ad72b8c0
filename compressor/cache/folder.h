// The folder that GRAPE_CACHE names: files that are read whole and replaced whole, by several processes at a time. Only
// what nobody but this user can have written is read. Core: no CUDA, no Python. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace grape::cache {

class Folder {
 public:
  Folder() = default;
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Makes the folder, for this user alone, if its parent is there. False: `error` says why it is not to be used; it has
  // to be this user's, and nobody else's to write to.
  bool open(const std::string& path, std::string& error);

  // False: there is no such file (`error` is empty), or it cannot be read, or not be trusted.
  bool read(const std::string& name, std::vector<std::uint8_t>& bytes, std::string& error) const;
  // Replaces the file in one step: whoever reads it meanwhile has the old one or the new one. False: `error`.
  bool write(const std::string& name, const std::vector<std::uint8_t>& bytes, std::string& error) const;

  // From a read to the write that follows from it, no other process does the same. Waits so long at most; false:
  // another one still had it. Given back by unlock(), by the destructor, and by the end of the process.
  bool lock(int milliseconds);
  void unlock();

  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of a file

 private:
  int folder_ = -1, lock_ = -1;
};

}  // namespace grape::cache
