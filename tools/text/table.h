// A table that prints as aligned text, as CSV, or as a JSON array of objects.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tools/text/output.h"

namespace grape::tools {

using Json = nlohmann::ordered_json;

struct Column {
  std::string key;    // in JSON and CSV
  std::string title;  // in text; "": not shown there
  bool right = false;
  bool flexible = false;  // gives way where a terminal is too narrow
};

// A value, and how text shows it; "" shows the value itself.
struct Cell {
  template <class Value, class = std::enable_if_t<!std::is_same_v<std::decay_t<Value>, Cell>>>
  Cell(Value&& plain) : value(std::forward<Value>(plain)) {}  // NOLINT: a plain value is a cell
  Cell(Json json, std::string shown) : value(std::move(json)), text(std::move(shown)) {}
  Json value;
  std::string text;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // For CSV alone.
  static Table of_keys(std::initializer_list<const char*> keys) {
    Table table({});
    for (const char* key : keys) table.columns_.push_back({key, ""});
    return table;
  }
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  std::size_t size() const { return rows_.size(); }
  // Rows beyond `limit` (0: none) are left out; text says how many.
  void text(Output& out, std::size_t limit = 0, const std::string& indent = "") const;
  void csv(Output& out, std::size_t limit = 0) const;
  Json json(std::size_t limit = 0) const;

 private:
  std::size_t shown(std::size_t limit) const { return limit == 0 || limit > rows_.size() ? rows_.size() : limit; }
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Untrusted text as a JSON value.
Json text_value(std::string_view text);
Json text_list(const std::vector<std::string>& texts);
// "0x..." as JSON has no numbers that wide.
Json hex_value(std::uint64_t value);
// One line, invalid UTF-8 replaced.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace grape::tools
