// The trace on disk. The file belongs to this process alone: it is created with O_EXCL and O_NOFOLLOW, mode 0600
// whatever the umask.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compressor/trace/writer.h"

namespace grape::record {

constexpr std::size_t kPathRoom = 4096;

// Expands %h host, %p process id, %r rank (RANK, else 0), %% in `pattern` into `path`. Path separators in the host's
// or rank's text become '_'. False: too long.
bool expand_path(const char* pattern, char (&path)[kPathRoom]) noexcept;

class TraceFile final : public trace::Sink {
 public:
  ~TraceFile() override;

  // Creates the file. Where the name is taken, "-2" to "-99" before the extension is tried, and a notice says so.
  // With `replace`, writes to a name beside it, and commit() renames. False, with errno: nothing was created.
  bool create(const char* pattern, bool replace) noexcept;
  bool write(const std::uint8_t* data, std::size_t bytes) override;

  // Closes; with `replace` gives the file its name. False, with errno: it did not get it (the data stays beside).
  bool commit() noexcept;
  const char* path() const noexcept { return path_; }  // the name it has, or will have after commit()
  int error() const noexcept { return error_; }        // errno of the first failed write, else 0

 private:
  int descriptor_ = -1;
  int error_ = 0;
  bool replace_ = false;
  char path_[kPathRoom] = {};
  char partial_[kPathRoom] = {};
};

}  // namespace grape::record
