#include "python_hooks/report/reasons.h"

#include <new>
#include <string_view>

namespace grape::python::report {
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

}  // namespace

std::string_view shortened(std::string_view text, std::size_t most) noexcept {
  std::size_t bytes = text.size() < most ? text.size() : most;
  while (bytes > 0 && bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

void Reasons::add(const refusal::Refusal& refusal) noexcept {
  if (!refusal) return add(refusal::out_of_memory());
  const std::string_view text = shortened(refusal.text, kMostBytes), place = shortened(refusal.place, kMostBytes);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].id != refusal.id || all_[i].place != place || !alike(all_[i].text, text)) continue;
    ++all_[i].count;
    last_ = i;
    return;
  }
  if (all_.size() < kMost) {
    try {
      all_.push_back({{refusal.id, std::string(text), std::string(place)}, 1});
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

refusal::Refusal Reasons::last_refusal() const noexcept {
  try {
    return last_ < all_.size() ? static_cast<const refusal::Refusal&>(all_[last_]) : refusal::Refusal();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace grape::python::report
