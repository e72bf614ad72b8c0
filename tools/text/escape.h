// Escapes text for each kind of output. Text from a trace is not trusted: anybody may have chosen its names.
#pragma once

#include <string>
#include <string_view>

namespace grape::tools {

// For terminals and plain text: control characters, invalid UTF-8, and characters that are invisible or turn the
// direction of writing become \xNN or \u{...}. A backslash stays as it is.
std::string escape_text(std::string_view text);

// One CSV field (RFC 4180), quoted where needed. A field that a spreadsheet would take for a formula gets a leading
// apostrophe. Control characters as in escape_text.
std::string escape_csv(std::string_view text);

// Inside a quoted DOT string.
std::string escape_dot(std::string_view text);

// As it was, if it is valid UTF-8; otherwise each bad byte becomes U+FFFD. For JSON, whose writer escapes the rest.
std::string valid_utf8(std::string_view text);

// Columns that escaped text takes on a terminal (one per code point: wide characters are rare in code).
std::size_t width(std::string_view text);

// At most `columns` wide, cut in the middle with "…".
std::string shorten_middle(const std::string& text, std::size_t columns);

// 12.3 kB and the like, powers of 1000 as in file sizes: "0 B", "999 B", "1.5 kB".
std::string human_bytes(unsigned long long bytes);

// The one of `known` that differs from `word` by the fewest edits, "" if none is near.
template <class List>
std::string nearest(std::string_view word, const List& known);
std::size_t edit_distance(std::string_view a, std::string_view b);

template <class List>
std::string nearest(std::string_view word, const List& known) {
  std::string best;
  std::size_t least = word.size() < 4 ? 2 : word.size() / 3 + 2;
  for (const auto& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace grape::tools
