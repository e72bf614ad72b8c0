// The line decoders on hand-made tables: edges that no compiler writes, and damaged input.
#include "python_hooks/scopes/line_table.h"

#include <gtest/gtest.h>

#include <vector>

#include "python_hooks/interpreter/patterns.h"

namespace grape::python::scopes {
namespace {

int line(LineFormat format, const std::vector<std::uint8_t>& table, std::int64_t offset) {
  return line_of(format, table.data(), table.size(), 10, offset);
}

TEST(LineTable, RangesMayHaveNoLine) {
  const std::vector<std::uint8_t> table = {4, 1, 4, 0x80, 4, 2};
  EXPECT_EQ(line(LineFormat::kRanges, table, 0), 11);
  EXPECT_EQ(line(LineFormat::kRanges, table, 4), -1);
  EXPECT_EQ(line(LineFormat::kRanges, table, 8), 13);
  EXPECT_EQ(line(LineFormat::kRanges, table, 12), -1);
}

TEST(LineTable, LocationsOfEveryKind) {
  const std::vector<std::uint8_t> table = {
      0x80 | (0 << 3) | 0,  0x12,                   // short form, one unit
      0x80 | (11 << 3) | 1, 1,    2,                // one line on, two units
      0x80 | (13 << 3) | 0, 0x44, 0x01,             // no columns, a line step of +34 in two groups
      0x80 | (15 << 3) | 0,                         // no location
      0x80 | (14 << 3) | 7, 0x07, 0x00, 0x01, 0x01  // long form, a line step of -3, eight units
  };
  EXPECT_EQ(line(LineFormat::kLocations, table, 0), 10);
  EXPECT_EQ(line(LineFormat::kLocations, table, 2), 11);
  EXPECT_EQ(line(LineFormat::kLocations, table, 4), 11);
  EXPECT_EQ(line(LineFormat::kLocations, table, 6), 45);
  EXPECT_EQ(line(LineFormat::kLocations, table, 8), -1);
  EXPECT_EQ(line(LineFormat::kLocations, table, 10), 42);
  EXPECT_EQ(line(LineFormat::kLocations, table, 24), 42);
  EXPECT_EQ(line(LineFormat::kLocations, table, 26), -1);
}

TEST(LineTable, NothingExecutedYetIsTheFirstLine) {
  for (const auto format : {LineFormat::kRanges, LineFormat::kLocations}) {
    EXPECT_EQ(line(format, {}, -1), 10);
  }
}

TEST(LineTable, StaysInsideDamagedTables) {
  // Exactly sized heap blocks: a read past the end is a sanitizer's finding.
  std::uint32_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::uint8_t> table(state % 9);
    for (auto& byte : table) byte = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    state = state * 1664525 + 1013904223;
    table.shrink_to_fit();
    for (const auto format : {LineFormat::kRanges, LineFormat::kLocations}) {
      line(format, table, state % 64);
    }
  }
}

TEST(Patterns, MatchModuleAndName) {
  EXPECT_TRUE(matches("a.b:C.d", "a.b:C.d"));
  EXPECT_FALSE(matches("a.b:C.d", "a.b:C.e"));
  EXPECT_TRUE(matches("x:y, a.*:*.d ,", "a.b.c:C.d"));
  EXPECT_FALSE(matches("a.*:d", "b:a.x:d"));
  EXPECT_TRUE(matches("*:[fg]?", "m:g1"));
  EXPECT_FALSE(matches("", "m:f"));
  EXPECT_FALSE(matches("nocolon,,:", "m:f"));
  EXPECT_TRUE(may_match_module("x:y,a.*:f", "a.b"));
  EXPECT_FALSE(may_match_module("x:y,a.*:f", "b"));
}

TEST(Patterns, OverlongNamesMatchNothing) {
  const std::string name = "m:" + std::string(5000, 'f');
  EXPECT_FALSE(matches("*:*", name.c_str()));
  EXPECT_TRUE(matches((std::string(5000, 'x') + ",*:g").c_str(), "m:g"));
}

}  // namespace
}  // namespace grape::python::scopes
