#include "python_hooks/report/reasons.h"

#include <new>
#include <string_view>

namespace grape::python::replay {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hexadecimal(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }

// Behind the number that begins at `at`.
std::size_t number_end(std::string_view text, std::size_t at) {
  const bool address = text.substr(at, 2) == "0x";
  if (address) at += 2;
  while (at < text.size() && (address ? is_hexadecimal(text[at]) : is_digit(text[at]))) ++at;
  return at;
}

// Are they equal but for their numbers?
bool alike(std::string_view a, std::string_view b) {
  std::size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (is_digit(a[i]) && is_digit(b[k])) {
      i = number_end(a, i);
      k = number_end(b, k);
    } else if (a[i++] != b[k++]) {
      return false;
    }
  }
  return i == a.size() && k == b.size();
}

// "calls print() at net.py:12" -> 13; npos: no place at its end.
std::size_t place_in(std::string_view text) {
  const std::size_t at = text.rfind(" at "), colon = text.rfind(':');
  if (at == std::string_view::npos || colon == std::string_view::npos || colon < at + 5) return std::string_view::npos;
  const bool number = colon + 1 < text.size() && number_end(text, colon + 1) == text.size();
  return number ? at : std::string_view::npos;
}

// Whole characters only.
std::string_view shortened(std::string_view text) {
  std::size_t bytes = text.size() < Reasons::kMostBytes ? text.size() : Reasons::kMostBytes;
  while (bytes > 0 && bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

void Reasons::add(const std::string& text, const std::string& place) noexcept {
  std::string_view said = text, where = place;
  const std::size_t at = where.empty() ? place_in(said) : std::string_view::npos;
  if (at != std::string_view::npos) {
    where = said.substr(at + 4);
    said = said.substr(0, at);
  }
  said = shortened(said);
  where = shortened(where);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].place != where || !alike(all_[i].text, said)) continue;
    ++all_[i].count;
    last_ = i;
    return;
  }
  if (all_.size() < kMost) {
    try {
      all_.push_back({std::string(said), std::string(where), 1});
      last_ = all_.size() - 1;
      return;
    } catch (const std::bad_alloc&) {  // counted, then
    }
  }
  ++others_;
}

void Reasons::add_last() noexcept {
  if (last_ < all_.size()) ++all_[last_].count;
}

const Reason* Reasons::last() const noexcept { return last_ < all_.size() ? &all_[last_] : nullptr; }

std::string in_words(const Reason& reason) {
  return reason.place.empty() ? reason.text : reason.text + ", at " + reason.place;
}

}  // namespace grape::python::replay
