#include "python_hooks/interpreter/patterns.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace grape::python {
namespace {

constexpr std::size_t kMaxPattern = 1024;

// The next pattern, without blanks around it; moves `list` behind it. False: there is none left.
bool next_pattern(std::string_view& list, std::string_view& pattern) {
  list.remove_prefix(std::min(list.find_first_not_of(", "), list.size()));
  if (list.empty()) return false;
  pattern = list.substr(0, list.find(','));
  list.remove_prefix(pattern.size());
  while (pattern.back() == ' ') pattern.remove_suffix(1);
  return true;
}

// At the colon. False: no such pattern.
bool split(std::string_view text, std::string_view& module, std::string_view& name) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  module = text.substr(0, colon);
  name = text.substr(colon + 1);
  return true;
}

// As fnmatch, which is asked only if the text begins as the pattern does.
bool fits(std::string_view pattern, std::string_view text) {
  const std::string_view plain = pattern.substr(0, pattern.find_first_of("*?[\\"));
  if (text.substr(0, plain.size()) != plain || pattern.size() >= kMaxPattern || text.size() >= kMaxPattern)
    return false;
  char of_pattern[kMaxPattern], of_text[kMaxPattern];
  pattern.copy(of_pattern, pattern.size());
  text.copy(of_text, text.size());
  of_pattern[pattern.size()] = of_text[text.size()] = 0;
  return fnmatch(of_pattern, of_text, 0) == 0;
}

}  // namespace

bool matches(const char* list, const char* qualified_name) noexcept {
  std::string_view left(list), pattern, module, name, module_pattern, name_pattern;
  if (!split(qualified_name, module, name)) return false;
  while (next_pattern(left, pattern)) {
    if (split(pattern, module_pattern, name_pattern) && fits(module_pattern, module) && fits(name_pattern, name))
      return true;
  }
  return false;
}

bool may_match_module(const char* list, const char* module) noexcept {
  std::string_view left(list), pattern, module_pattern, name_pattern;
  while (next_pattern(left, pattern)) {
    if (split(pattern, module_pattern, name_pattern) && fits(module_pattern, module)) return true;
  }
  return false;
}

}  // namespace grape::python
