// What a call's arguments become in the trace, decided at compile time from their types and the row's argument string:
// one word each, and a blob for the structs, arrays and text that pointers lead to.
//
// Nothing behind a pointer is read unless the real call succeeded: what the driver refused may be no pointer at all.
#pragma once

#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

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

// Where the bytes of a blob entry come from.
struct BlobEntry {
  const void* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint16_t argument = 0;
  bool cut = false;
  driver::KernelNode kernel;  // that a node's struct names: its parameters are a second entry for the same argument
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

  // Has the argument an entry in the blob, if its call succeeds?
  template <std::size_t I>
  static constexpr bool kHasEntry = argument_kind(Row::kArguments, I).kind == 't' ||
                                    argument_kind(Row::kArguments, I).kind == 'b';

  // Fills in the entries, in order; returns their end. `out`: room for as many as there are arguments.
  template <std::size_t... I>
  static BlobEntry* entries(const Tuple& arguments, BlobEntry* out, std::index_sequence<I...>) noexcept {
    ((out = entry<I>(arguments, out)), ...);
    return out;
  }

 private:
  template <std::size_t I>
  static BlobEntry* entry(const Tuple& arguments, BlobEntry* out) noexcept {
    if constexpr (kHasEntry<I>) {
      const auto& value = std::get<I>(arguments);
      out->argument = I;
      if constexpr (!std::is_pointer_v<std::tuple_element_t<I, Tuple>>) {
        out->data = &value;
        out->bytes = sizeof(value);
      } else {
        if (value == nullptr) return out;
        out->data = value;
        measure<I>(arguments, *out);
      }
      return out + 1;
    }
    return out;
  }

  template <std::size_t I>
  static void measure(const Tuple& arguments, BlobEntry& entry) noexcept {
    constexpr ArgumentKind kKind = argument_kind(Row::kArguments, I);
    const auto& value = std::get<I>(arguments);
    if constexpr (kKind.kind == 't') {
      entry.bytes = static_cast<std::uint32_t>(strnlen(value, kMaxTextBytes));
    } else if constexpr (kKind.count_argument < 0) {
      static_assert(sizeof(*value) <= kMaxArgumentBytes, "a struct is kept whole");
      entry.bytes = sizeof(*value);
      entry.kernel = driver::kernel_node(*value);
    } else {
      constexpr std::uint64_t kLess = static_cast<std::uint64_t>(-kKind.count_adjustment);
      constexpr std::uint64_t kMost = kMaxArgumentBytes / sizeof(*value);
      const std::uint64_t given = value_word(std::get<static_cast<std::size_t>(kKind.count_argument)>(arguments));
      const std::uint64_t count = given > kLess ? given - kLess : 0;
      entry.cut = count > kMost;
      entry.bytes = static_cast<std::uint32_t>((entry.cut ? kMost : count) * sizeof(*value));
    }
  }
};
// NOLINTEND(bugprone-sizeof-expression)

}  // namespace grape::interpose
