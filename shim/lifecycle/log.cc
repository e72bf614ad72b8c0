#include "shim/lifecycle/log.h"

#include <errno.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "shim/lifecycle/notices.h"

namespace grape {
namespace {

constexpr std::size_t kLine = 1024;
constexpr std::size_t kMaxNotices = 32;

struct Notices {
  std::atomic<const char*> format[kMaxNotices];
  char text[kMaxNotices][256];
  std::atomic<bool> ready[kMaxNotices];
};
Notices g_notices;

// Control characters could rewrite the terminal: they come from file names and environment values.
void escape(char* line) {
  for (; *line != '\0'; ++line) {
    if (static_cast<unsigned char>(*line) < 0x20 || *line == 0x7f) *line = '?';
  }
}

void write_line(const char* text) {
  char line[kLine];
  const int length = std::snprintf(line, sizeof line, "grape: %s", text);
  std::size_t bytes = length < 0 ? 0 : static_cast<std::size_t>(length);
  if (bytes > sizeof line - 2) bytes = sizeof line - 2;
  line[bytes] = '\0';
  escape(line);
  line[bytes++] = '\n';
  // A message that cannot be written is lost: there is nobody left to tell.
  if (::write(STDERR_FILENO, line, bytes) < 0) return;
}

// The slot for a format seen for the first time; kMaxNotices: seen before, or no slot left.
std::size_t claim(const char* format) {
  for (std::size_t i = 0; i < kMaxNotices; ++i) {
    const char* expected = nullptr;
    if (g_notices.format[i].compare_exchange_strong(expected, format)) return i;
    if (expected == format) break;
  }
  return kMaxNotices;
}

}  // namespace

void log_line(LogLevel level, const char* format, ...) noexcept {
  if (level > config().log) return;
  const int saved = errno;
  char text[kLine];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  write_line(text);
  errno = saved;
}

void notice(const char* format, ...) noexcept {
  const int saved = errno;
  const std::size_t slot = claim(format);
  if (slot < kMaxNotices) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(g_notices.text[slot], sizeof g_notices.text[slot], format, arguments);
    va_end(arguments);
    g_notices.ready[slot].store(true, std::memory_order_release);
    if (config().log >= (config().asked ? LogLevel::kWarning : LogLevel::kInfo)) write_line(g_notices.text[slot]);
  }
  errno = saved;
}

std::size_t notice_count() noexcept { return kMaxNotices; }

const char* notice_text(std::size_t index) noexcept {
  return index < kMaxNotices && g_notices.ready[index].load(std::memory_order_acquire) ? g_notices.text[index]
                                                                                       : nullptr;
}

}  // namespace grape
