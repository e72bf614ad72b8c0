#include "compressor/cache/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "compressor/trace/file_bytes.h"

namespace grape::cache {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  bool close() {
    const int number = number_;
    number_ = -1;
    return number < 0 || ::close(number) == 0;
  }

 private:
  int number_;
};

// Null: it is this user's, and nobody else may write to it.
const char* distrust(const struct stat& facts) {
  if (facts.st_uid != geteuid()) return "it belongs to another user";
  return (facts.st_mode & kOthersWrite) != 0 ? "others may write to it" : nullptr;
}

bool read_all(int descriptor, std::vector<std::uint8_t>& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::read(descriptor, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) bytes.resize(done);  // shorter by now: its checksums will tell
    done += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

Folder::~Folder() {
  unlock();
  if (folder_ >= 0) ::close(folder_);
}

bool Folder::open(const std::string& path, std::string& error) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    error = std::strerror(errno);
    return false;
  }
  folder_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat facts {};
  if (folder_ < 0 || fstat(folder_, &facts) != 0) {
    error = std::strerror(errno);
    return false;
  }
  const char* reason = distrust(facts);
  if (reason != nullptr) error = reason;
  return reason == nullptr;
}

bool Folder::read(const std::string& name, std::vector<std::uint8_t>& bytes, std::string& error) const {
  error.clear();
  const Descriptor file(openat(folder_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (file.get() < 0 || fstat(file.get(), &facts) != 0) {
    if (errno != ENOENT) error = std::strerror(errno);
    return false;
  }
  if (!S_ISREG(facts.st_mode)) {
    error = "it is no file";
    return false;
  }
  if (const char* reason = distrust(facts)) {
    error = reason;
    return false;
  }
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  if (size > kMostBytes) {
    error = "it is larger than 1 GiB";
    return false;
  }
  bytes.resize(size);
  if (read_all(file.get(), bytes)) return true;
  error = std::strerror(errno);
  return false;
}

bool Folder::write(const std::string& name, const std::vector<std::uint8_t>& bytes, std::string& error) const {
  const std::string beside = name + ".partial-" + std::to_string(getpid());
  unlinkat(folder_, beside.c_str(), 0);  // of a process that had this number and was killed
  Descriptor file(openat(folder_, beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    error = std::strerror(errno);
    return false;
  }
  if (trace::write_all(file.get(), bytes.data(), bytes.size()) && fsync(file.get()) == 0 && file.close() &&
      renameat(folder_, beside.c_str(), folder_, name.c_str()) == 0) {
    return true;
  }
  error = std::strerror(errno);
  unlinkat(folder_, beside.c_str(), 0);
  return false;
}

bool Folder::lock(int milliseconds) {
  constexpr int kStep = 20;  // milliseconds
  if (lock_ < 0) lock_ = openat(folder_, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (lock_ < 0) return false;
  for (int waited = 0;; waited += kStep) {
    if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return true;
    if (waited >= milliseconds) break;
    usleep(kStep * 1000);
  }
  unlock();
  return false;
}

void Folder::unlock() {
  if (lock_ >= 0) ::close(lock_);
  lock_ = -1;
}

}  // namespace grape::cache
