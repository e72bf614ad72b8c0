#include "python_hooks/interpreter/patterns.h"

#include <fnmatch.h>

#include <cstring>

namespace grape::python {
namespace {

constexpr std::size_t kMaxPattern = 1024;

// Copies the next pattern, without blanks around it, and moves `list` behind it. False: there is none left.
bool next_pattern(const char*& list, char (&pattern)[kMaxPattern]) {
  while (*list == ',' || *list == ' ') ++list;
  if (*list == 0) return false;
  std::size_t bytes = std::strcspn(list, ",");
  const char* start = list;
  list += bytes;
  while (bytes > 0 && start[bytes - 1] == ' ') --bytes;
  if (bytes >= kMaxPattern) bytes = 0;
  std::memcpy(pattern, start, bytes);
  pattern[bytes] = 0;
  return true;
}

// Splits in place at the colon. False: no such pattern.
bool split(char* text, const char*& name) {
  char* colon = std::strchr(text, ':');
  if (colon == nullptr) return false;
  *colon = 0;
  name = colon + 1;
  return true;
}

}  // namespace

bool matches(const char* list, const char* qualified_name) noexcept {
  char subject[kMaxPattern], pattern[kMaxPattern];
  const std::size_t bytes = std::strlen(qualified_name);
  const char *name = nullptr, *name_pattern = nullptr;
  if (bytes >= sizeof(subject)) return false;
  std::memcpy(subject, qualified_name, bytes + 1);
  if (!split(subject, name)) return false;
  while (next_pattern(list, pattern)) {
    if (split(pattern, name_pattern) && fnmatch(pattern, subject, 0) == 0 && fnmatch(name_pattern, name, 0) == 0) {
      return true;
    }
  }
  return false;
}

bool may_match_module(const char* list, const char* module) noexcept {
  char pattern[kMaxPattern];
  const char* name = nullptr;
  while (next_pattern(list, pattern)) {
    if (split(pattern, name) && fnmatch(pattern, module, 0) == 0) return true;
  }
  return false;
}

}  // namespace grape::python
