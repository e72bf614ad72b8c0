#include "tools/text/output.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {

void check_output(const std::string& output, const std::string& input) {
  struct stat read, written;
  if (output.empty() || stat(input.c_str(), &read) != 0 || stat(output.c_str(), &written) != 0) return;
  if (read.st_dev == written.st_dev && read.st_ino == written.st_ino) {
    throw Failure(fmt::format("-o {}: this is what is read", escape_text(output)));
  }
}

Output::Output(const std::string& path, bool pager) : name_(path.empty() ? "standard output" : escape_text(path)) {
  if (!path.empty() && path != "-") {
    // Emptied with the first that is written: a view that cannot be shown leaves what was there.
    file_ = std::fopen(path.c_str(), "ae");
    owned_ = true;
  } else if (pager && isatty(STDOUT_FILENO) != 0) {
    const char* command = std::getenv("PAGER");
    setenv("LESS", "FRX", 0);
    // The pager is the user's own command line, with options or a pipe in it as in "less -R": a shell has to read it.
    // NOLINTNEXTLINE(cert-env33-c)
    file_ = popen(command != nullptr && *command != '\0' ? command : "less", "we");
    piped_ = true;
  } else {
    file_ = stdout;
    winsize size{};
    if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns_ = size.ws_col;
  }
  if (file_ == nullptr) throw Failure(fmt::format("{}: {}", name_, std::strerror(errno)));
}

Output::~Output() {
  if (file_ == nullptr) return;
  if (piped_) {
    pclose(file_);
  } else if (owned_) {
    std::fclose(file_);
  }
}

void Output::flush() {
  if (file_ == nullptr) return buffer_.clear();
  const std::size_t bytes = buffer_.size();
  // What is no file (/dev/stderr, a pipe) cannot be emptied, and need not be.
  struct stat status;
  const bool fills_file = owned_ && !begun_ && fstat(fileno(file_), &status) == 0 && S_ISREG(status.st_mode);
  bool good = !fills_file || ftruncate(fileno(file_), 0) == 0;
  begun_ = true;
  good = good && std::fwrite(buffer_.data(), 1, bytes, file_) == bytes;
  buffer_.clear();
  if (!good) throw Failure(fmt::format("{}: {}", name_, std::strerror(errno)));
}

void Output::close() {
  flush();
  std::FILE* file = file_;
  file_ = nullptr;
  const bool flushed = std::fflush(file) == 0;
  const int error = errno;
  const bool closed = piped_ ? pclose(file) >= 0 : !owned_ || std::fclose(file) == 0;
  if ((!flushed && !piped_) || !closed) throw Failure(fmt::format("{}: {}", name_, std::strerror(error)));
}

}  // namespace grape::tools
