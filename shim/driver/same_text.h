// Names of driver functions, compared while a wrapper is compiled.
#pragma once

namespace grape::driver {

constexpr bool same_text(const char* a, const char* b) noexcept {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}

constexpr bool comes_before(const char* a, const char* b) noexcept {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a < *b;
}

}  // namespace grape::driver
