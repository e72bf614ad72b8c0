// What a call's arguments become in the trace, decided at compile time from their types and the row's argument string:
// one word each, and a blob for the structs, arrays and text that pointers lead to.
//
// Nothing behind a pointer is read unless the real call succeeded: what the driver refused may be no pointer at all.
#pragma once

#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "shim/driver/kernel_node.h"

namespace grape::interpose {

constexpr std::uint32_t kMaxTextBytes = 1024;
constexpr std::uint32_t kMaxArgumentBytes = 16 * 1024;  // of one argument in the blob; longer arrays are cut

// The kind of one argument, out of the row's string.
struct ArgumentKind {
  char kind = 0;
  int count_argument = -1;   // array: the argument with its length
  int count_adjustment = 0;  // added to it
  bool written = false;      // by the driver
};

constexpr ArgumentKind argument_kind(const char* arguments, std::size_t index) {
  while (index > 0) {
    if (*arguments == '\0') return {};
    if (*arguments++ == ',') --index;
  }
  while (*arguments != '\0' && *arguments != ':') ++arguments;
  if (*arguments == '\0') return {};
  ArgumentKind kind;
  kind.kind = *++arguments;
  for (++arguments; *arguments != '\0' && *arguments != ','; ++arguments) {
    if (*arguments >= '0' && *arguments <= '9') kind.count_argument = *arguments - '0';
    if (*arguments == '-') kind.count_adjustment = -1;
    if (*arguments == '=') kind.count_adjustment = -2;
    if (*arguments == '!') kind.written = true;
  }
  return kind;
}

constexpr std::size_t argument_count(const char* arguments) {
  if (*arguments == '\0') return 0;
  std::size_t count = 1;
  for (; *arguments != '\0'; ++arguments) count += *arguments == ',' ? 1 : 0;
  return count;
}

template <class T>
std::uint64_t value_word(T value) noexcept {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<std::uint64_t>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(value));
    return word;
  } else if constexpr (std::is_class_v<T> || std::is_union_v<T>) {
    return 0;  // its bytes are in the blob
  } else {
    return static_cast<std::uint64_t>(value);
  }
}

// Where the bytes of a blob entry come from. `parameters`: those of the kernel that a node's struct names, a second
// entry for the same argument.
struct BlobEntry {
  const void* data = nullptr;
  std::uint32_t bytes = 0;
  bool cut = false;
  driver::KernelNode kernel;
};

// NOLINTBEGIN(bugprone-sizeof-expression): handles are pointers, and arrays of them arrays of pointers
template <class Row, class... A>
struct Arguments {
  static constexpr std::size_t kCount = sizeof...(A);
  static_assert(argument_count(Row::kArguments) == kCount, "hooks.def: as many names as the function has arguments");
  using Tuple = std::tuple<A...>;

  template <std::size_t I>
  static std::uint64_t word(const Tuple& arguments, bool succeeded) noexcept {
    constexpr ArgumentKind kKind = argument_kind(Row::kArguments, I);
    static_assert(kKind.kind != 0, "hooks.def: each argument has a name and a kind");
    const auto& value = std::get<I>(arguments);
    if constexpr (kKind.kind == 'o') {
      static_assert(std::is_pointer_v<std::tuple_element_t<I, Tuple>>, "an out handle is a pointer");
      static_assert(sizeof(*value) <= 8, "an out handle is a word");
      return succeeded && value != nullptr ? value_word(*value) : 0;
    } else {
      return value_word(value);
    }
  }

  template <std::size_t I>
  static BlobEntry entry(const Tuple& arguments) noexcept {
    constexpr ArgumentKind kKind = argument_kind(Row::kArguments, I);
    using Type = std::tuple_element_t<I, Tuple>;
    const auto& value = std::get<I>(arguments);
    BlobEntry result;
    if constexpr (kKind.kind == 't') {
      if (value != nullptr) {
        result.data = value;
        result.bytes = static_cast<std::uint32_t>(strnlen(value, kMaxTextBytes));
      }
    } else if constexpr (kKind.kind == 'b' && std::is_pointer_v<Type>) {
      if (value != nullptr) {
        std::uint64_t count = 1;
        if constexpr (kKind.count_argument >= 0) {
          count = value_word(std::get<static_cast<std::size_t>(kKind.count_argument)>(arguments));
          constexpr std::uint64_t kLess = static_cast<std::uint64_t>(-kKind.count_adjustment);
          count = count > kLess ? count - kLess : 0;
        }
        constexpr std::uint64_t kMost = kMaxArgumentBytes / sizeof(*value);
        result.cut = count > kMost;
        result.data = value;
        result.bytes = static_cast<std::uint32_t>((result.cut ? kMost : count) * sizeof(*value));
        if constexpr (kKind.count_argument < 0) result.kernel = driver::kernel_node(*value);
      }
    } else if constexpr (kKind.kind == 'b') {
      result.data = &value;
      result.bytes = sizeof(value);
    }
    return result;
  }
};
// NOLINTEND(bugprone-sizeof-expression)

}  // namespace grape::interpose
