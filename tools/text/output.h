// Where a view writes: standard output, a file (-o), or a pager.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace grape::tools {

enum class Format { kText, kJson, kCsv, kDot, kChrome };

// Writing to the output empties it first: what is both that and the input would be lost. Throws Failure.
void check_output(const std::string& output, const std::string& input);

class Output {
 public:
  Output() = default;  // nowhere
  // `path`: "" or "-" is standard output. Throws Failure.
  Output(const std::string& path, bool pager);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  template <class... Arguments>
  void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Arguments>(arguments)...);
    if (buffer_.size() > kFlushAt) flush();
  }
  void write(std::string_view text) {
    buffer_.append(text.data(), text.data() + text.size());
    if (buffer_.size() > kFlushAt) flush();
  }
  // Writes all out; throws Failure where that fails (disk full).
  void close();
  // Columns of the terminal, 0: not a terminal, do not cut lines.
  std::size_t columns() const { return columns_; }

 private:
  static constexpr std::size_t kFlushAt = 1u << 16;
  void flush();
  std::FILE* file_ = nullptr;
  bool piped_ = false, owned_ = false;
  bool begun_ = false;  // something was written
  std::string name_;
  std::size_t columns_ = 0;
  fmt::memory_buffer buffer_;
};

}  // namespace grape::tools
