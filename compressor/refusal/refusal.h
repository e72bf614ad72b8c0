// Why a call is not replayed: one of the rows of refusals.def, with what a user reads. Pure; includes no other room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace grape::refusal {

enum class RefusalId : std::uint16_t {
  none,
#define GRAPE_REFUSAL(id, kind, advice, lasts, text) id,
#include "compressor/refusal/refusals.def"
#undef GRAPE_REFUSAL
  kCount
};

constexpr std::size_t kRefusals = static_cast<std::size_t>(RefusalId::kCount);

// True where something was refused. Nothing refused is no id, whatever the text.
struct Refusal {
  RefusalId id = RefusalId::none;
  std::string text;   // one line, in words for the user
  std::string place;  // "net.py:12 in Net.forward"; empty: not known

  Refusal() noexcept = default;
  Refusal(RefusalId of, std::string words, std::string where = {}) noexcept
      : id(of), text(std::move(words)), place(std::move(where)) {}
  // Out of line: hundreds of places have them, and few run.
  Refusal(const Refusal& other);
  Refusal(Refusal&& other) noexcept;
  Refusal& operator=(const Refusal& other);
  Refusal& operator=(Refusal&& other) noexcept;
  ~Refusal() = default;
  explicit operator bool() const noexcept { return id != RefusalId::none; }
};

// A row whose text takes so many parts; the default is no row.
template <std::size_t parts>
struct Form {
  RefusalId id = RefusalId::none;
  explicit operator bool() const noexcept { return id != RefusalId::none; }
};

constexpr std::size_t parts_of(std::string_view text) {
  std::size_t parts = 0;
  for (std::size_t at = text.find("{}"); at != std::string_view::npos; at = text.find("{}", at + 2)) ++parts;
  return parts;
}

// The rows by name: refusal::requires_grad, ...
#define GRAPE_REFUSAL(id, kind, advice, lasts, text) inline constexpr Form<parts_of(text)> id{RefusalId::id};
#include "compressor/refusal/refusals.def"
#undef GRAPE_REFUSAL

std::string text_of(RefusalId id, const std::string_view* parts, std::size_t count);

// Each part is put in its place in the row's text. May throw std::bad_alloc.
template <std::size_t count, typename... Parts>
[[gnu::cold, gnu::noinline]] Refusal make(Form<count> form, const Parts&... parts) {
  static_assert(sizeof...(parts) == count, "the row's text takes another number of parts");
  const std::string_view all[count + 1] = {std::string_view(parts)...};
  return {form.id, text_of(form.id, all, count)};
}

// What a function returns that refuses: false, or null.
struct Nothing {
  // NOLINTBEGIN(google-explicit-constructor): to be returned
  operator bool() const noexcept { return false; }
  template <typename T>
  operator std::unique_ptr<T>() const noexcept {
    return nullptr;
  }
  // NOLINTEND(google-explicit-constructor)
};

// `out` becomes that refusal. May throw std::bad_alloc.
template <std::size_t count, typename... Parts>
[[gnu::cold, gnu::noinline]] Nothing refuse(Refusal& out, Form<count> form, const Parts&... parts) {
  out = make(form, parts...);
  return {};
}

// "no memory": short enough to need none.
Refusal out_of_memory() noexcept;

// What the report says of a row. `none` is of kind "other".
const char* name_of(RefusalId id) noexcept;
const char* kind_of(RefusalId id) noexcept;
const char* advice_of(RefusalId id) noexcept;  // "": on purpose none
bool is_passing(RefusalId id) noexcept;        // the next call may be without it

// "reads device memory to the host, at net.py:12 in Net.forward": for one line. May throw std::bad_alloc.
std::string in_words(const Refusal& refusal);

}  // namespace grape::refusal
