#include "tools/text/escape.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace grape::tools {
namespace {

constexpr std::uint32_t kInvalid = 0xffffffff;

// The next code point and its length; kInvalid and 1 for a byte that starts none.
std::uint32_t decode(std::string_view text, std::size_t& length) {
  const auto byte = [&text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  length = 1;
  if (first < 0x80) return first;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || size > text.size()) return kInvalid;
  std::uint32_t code = first & (0xffu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return kInvalid;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return kInvalid;
  length = size;
  return code;
}

// Invisible, or able to change how other text is shown.
bool deceptive(std::uint32_t code) {
  return (code >= 0x80 && code < 0xa0) || code == 0xad || code == 0x61c || code == 0x180e ||
         (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2060 && code <= 0x206f) || code == 0xfeff || (code >= 0xfff0 && code <= 0xfffb) ||
         (code >= 0xe0000 && code <= 0xe0fff) || (code >= 0xe000 && code <= 0xf8ff);
}

bool plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

std::string escape_text(std::string_view text) {
  if (plain(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 16);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 1;
    const std::uint32_t code = decode(text.substr(at), length);
    if (code == '\n') {
      out += "\\n";
    } else if (code == '\t') {
      out += "\\t";
    } else if (code == kInvalid || code < 0x20 || code == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[at]));
    } else if (deceptive(code)) {
      out += fmt::format("\\u{{{:x}}}", code);
    } else {
      out.append(text.substr(at, length));
    }
    at += length;
  }
  return out;
}

std::string escape_csv(std::string_view text) {
  std::string field = escape_text(text);
  constexpr std::string_view kFormula = "=+-@";
  if (!field.empty() && kFormula.find(field[0]) != std::string_view::npos) field.insert(0, 1, '\'');
  if (field.find_first_of(",\"") == std::string::npos && (field.empty() || (field[0] != ' ' && field[0] != '\''))) {
    return field;
  }
  std::string out = "\"";
  for (const char c : field) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string escape_dot(std::string_view text) {
  std::string out;
  for (const char c : escape_text(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 1;
    const bool good = decode(text.substr(at), length) != kInvalid;
    out.append(good ? text.substr(at, length) : std::string_view("\xef\xbf\xbd"));
    at += length;
  }
  return out;
}

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<std::uint8_t>(c) & 0xc0) != 0x80; }));
}

std::string shorten_middle(const std::string& text, std::size_t columns) {
  if (width(text) <= columns) return text;
  if (columns < 2) return "…";
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<std::uint8_t>(text[i]) & 0xc0) != 0x80) starts.push_back(i);
  }
  const std::size_t head = columns / 2, tail = columns - 1 - head;
  return text.substr(0, starts[head]) + "…" + (tail == 0 ? "" : text.substr(starts[starts.size() - tail]));
}

std::string human_bytes(unsigned long long bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "kMGTPE";
  for (value /= 1000; value >= 999.95 && unit[1] != '\0'; ++unit) value /= 1000;
  return fmt::format("{:.1f} {}B", value, *unit);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr std::size_t kMost = 64;
  if (a.size() > kMost || b.size() > kMost) return kMost;
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t best = std::min({diagonal + (a[i - 1] == b[j - 1] ? 0 : 1), row[j] + 1, row[j - 1] + 1});
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[b.size()];
}

}  // namespace grape::tools
