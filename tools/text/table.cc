#include "tools/text/table.h"

#include <algorithm>

#include "tools/text/escape.h"

namespace grape::tools {
namespace {

std::string show(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get_ref<const std::string&>();
  if (value.is_array()) {
    std::string out;
    for (const Json& item : value) out += (out.empty() ? "" : " ") + show(item);
    return out;
  }
  return dump_json(value);
}

std::string cell_text(const Cell& cell) { return escape_text(cell.text.empty() ? show(cell.value) : cell.text); }

constexpr std::size_t kLeastFlexible = 24;

}  // namespace

void Table::text(Output& out, std::size_t limit, const std::string& indent) const {
  std::vector<std::size_t> widths(columns_.size());
  std::size_t total = indent.size(), flexible = columns_.size();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].title.empty()) continue;
    widths[c] = width(columns_[c].title);
    for (std::size_t r = 0; r < shown(limit); ++r) widths[c] = std::max(widths[c], width(cell_text(rows_[r][c])));
    total += widths[c] + 2;
    if (columns_[c].flexible && (flexible == columns_.size() || widths[c] > widths[flexible])) flexible = c;
  }
  if (out.columns() > 0 && total > out.columns() + 2 && flexible < columns_.size()) {
    const std::size_t excess = total - out.columns() - 2;
    widths[flexible] =
        std::max(widths[flexible] > excess ? widths[flexible] - excess : 0, std::min(widths[flexible], kLeastFlexible));
  }
  const auto line = [&](const auto& text_of) {
    std::string row = indent;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].title.empty()) continue;
      const std::string text = shorten_middle(text_of(c), widths[c]);
      const std::string pad(widths[c] - std::min(widths[c], width(text)), ' ');
      row += columns_[c].right ? pad + text : text + pad;
      row += "  ";
    }
    row.erase(row.find_last_not_of(' ') + 1);
    out.print("{}\n", row);
  };
  line([&](std::size_t c) { return columns_[c].title; });
  for (std::size_t r = 0; r < shown(limit); ++r) line([&](std::size_t c) { return cell_text(rows_[r][c]); });
  if (shown(limit) < rows_.size()) out.print("{}… and {} more\n", indent, rows_.size() - shown(limit));
}

void Table::csv(Output& out, std::size_t limit) const {
  for (std::size_t c = 0; c < columns_.size(); ++c) out.print("{}{}", c == 0 ? "" : ",", columns_[c].key);
  out.write("\n");
  for (std::size_t r = 0; r < shown(limit); ++r) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const Json& value = rows_[r][c].value;
      // A number is no formula, whatever its sign.
      out.print("{}{}", c == 0 ? "" : ",", value.is_number() ? dump_json(value) : escape_csv(show(value)));
    }
    out.write("\n");
  }
}

Json Table::json(std::size_t limit) const {
  Json list = Json::array();
  for (std::size_t r = 0; r < shown(limit); ++r) {
    Json object = Json::object();
    for (std::size_t c = 0; c < columns_.size(); ++c) object[columns_[c].key] = rows_[r][c].value;
    list.push_back(std::move(object));
  }
  return list;
}

Json text_value(std::string_view text) { return valid_utf8(text); }

Json text_list(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(text_value(text));
  return list;
}

Json hex_value(std::uint64_t value) { return fmt::format("{:#x}", value); }

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace grape::tools
