// Escaping, names, alignment, and other small parts of the tool.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tools/commands.h"
#include "tools/inputs/filter.h"
#include "tools/text/align.h"
#include "tools/text/demangle.h"
#include "tools/text/escape.h"

namespace grape::tools {
namespace {

TEST(Escape, TextHasNoControlCharacters) {
  EXPECT_EQ(escape_text("plain <b> \\ \"x\""), "plain <b> \\ \"x\"");
  EXPECT_EQ(escape_text("a\x1b[31mb\n\t\x7f"), "a\\x1b[31mb\\n\\t\\x7f");
  EXPECT_EQ(escape_text("\xff\xc0\xaf"), "\\xff\\xc0\\xaf") << "invalid and overlong UTF-8";
  EXPECT_EQ(escape_text("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(escape_text("a\xe2\x80\xae"), "a\\u{202e}") << "right-to-left override";
  EXPECT_EQ(escape_text("\xc2\x9b"), "\\u{9b}") << "a C1 control";
}

TEST(Escape, CsvQuotesAndDisarmsFormulas) {
  EXPECT_EQ(escape_csv("plain"), "plain");
  EXPECT_EQ(escape_csv("a,b"), "\"a,b\"");
  EXPECT_EQ(escape_csv("a\"b"), "\"a\"\"b\"");
  for (const char first : {'=', '+', '-', '@'}) {
    EXPECT_EQ(escape_csv(std::string(1, first) + "1"), "\"'" + std::string(1, first) + "1\"");
  }
  EXPECT_EQ(escape_csv("a\r\nb"), "a\\x0d\\nb");
}

TEST(Escape, Dot) { EXPECT_EQ(escape_dot("a\"b\\c\n"), "a\\\"b\\\\c\\\\n"); }

TEST(Escape, ShortenCountsCodePoints) {
  EXPECT_EQ(shorten_middle("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(width(shorten_middle("abcdefgh", 5)), 5u);
  EXPECT_EQ(width(shorten_middle("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 3)), 3u);
}

TEST(Escape, HumanBytes) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1500), "1.5 kB");
  EXPECT_EQ(human_bytes(999'960), "1.0 MB");
}

TEST(Demangle, Names) {
  EXPECT_EQ(demangle("_Z4axpyifPKfPf"), "axpy(int, float, float const*, float*)");
  EXPECT_EQ(demangle("triton_kernel_0d1"), "triton_kernel_0d1");
  EXPECT_EQ(demangle("_Zgarbage"), "_Zgarbage");
  EXPECT_EQ(demangle(""), "");
}

TEST(Demangle, ShortNames) {
  EXPECT_EQ(short_name("axpy(int, float, float const*, float*)"), "axpy");
  EXPECT_EQ(short_name("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::Half>, "
                       "std::array<char*, 1ul> >(int, at::native::FillFunctor<c10::Half>, std::array<char*, 1ul>)"),
            "at::native::vectorized_elementwise_kernel<4, FillFunctor<Half>, array<char*, 1ul>>");
  EXPECT_EQ(short_name("void at::native::(anonymous namespace)::softmax<float>(float*)"), "at::native::softmax<float>");
  EXPECT_EQ(short_name("triton_kernel_0d1"), "triton_kernel_0d1");
  EXPECT_EQ(short_name("Functor::operator()(int) const"), "Functor::operator()");
  EXPECT_LE(short_name("void f<" + std::string(3000, 'x') + ">(int)").size(), 200u);
}

TEST(Nearest, Suggests) {
  const std::vector<std::string> words = {"summary", "regions", "graphs"};
  EXPECT_EQ(nearest("sumary", words), "summary");
  EXPECT_EQ(nearest("zebra", words), "");
}

TEST(Filter, Patterns) {
  EXPECT_TRUE(matches("Net", "model:Net"));
  EXPECT_TRUE(matches("model:*", "model:Net"));
  EXPECT_FALSE(matches("model:N", "other:Net"));
  std::uint64_t number = 0;
  EXPECT_TRUE(parse_number("0x1f", number));
  EXPECT_EQ(number, 31u);
  EXPECT_FALSE(parse_number("12x", number));
  EXPECT_FALSE(parse_number("-1", number));
  EXPECT_FALSE(parse_number("99999999999999999999999", number));
}

std::vector<std::pair<std::size_t, std::size_t>> paired(const std::vector<std::uint32_t>& a,
                                                        const std::vector<std::uint32_t>& b, std::size_t most = 2000) {
  auto pairs = align(a, b, most);
  std::size_t i = 0, j = 0;
  for (const auto& [x, y] : pairs) {  // each element once, in order
    if (x != kNoPartner) {
      EXPECT_EQ(x, i++);
    }
    if (y != kNoPartner) {
      EXPECT_EQ(y, j++);
    }
    if (x != kNoPartner && y != kNoPartner) {
      EXPECT_EQ(a[x], b[y]);
    }
  }
  EXPECT_EQ(i, a.size());
  EXPECT_EQ(j, b.size());
  pairs.erase(std::remove_if(pairs.begin(), pairs.end(),
                             [](const auto& p) { return p.first == kNoPartner || p.second == kNoPartner; }),
              pairs.end());
  return pairs;
}

TEST(Align, FindsWhatIsInBoth) {
  EXPECT_EQ(paired({1, 2, 3}, {1, 2, 3}).size(), 3u);
  EXPECT_EQ(paired({1, 2, 3}, {1, 3}).size(), 2u);
  EXPECT_EQ(paired({1, 2, 3}, {4, 1, 2, 5, 3}).size(), 3u);
  EXPECT_EQ(paired({}, {1}).size(), 0u);
  EXPECT_EQ(paired({1}, {}).size(), 0u);
  EXPECT_EQ(paired({}, {}).size(), 0u);
}

// Against the textbook's table.
TEST(Align, IsAsLongAsTheLongestCommonSubsequence) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint32_t> a(random() % 30), b(random() % 30);
    for (auto& x : a) x = random() % 4;
    for (auto& x : b) x = random() % 4;
    std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1, 0));
    for (std::size_t i = 1; i <= a.size(); ++i) {
      for (std::size_t j = 1; j <= b.size(); ++j) {
        table[i][j] = a[i - 1] == b[j - 1] ? table[i - 1][j - 1] + 1 : std::max(table[i - 1][j], table[i][j - 1]);
      }
    }
    EXPECT_EQ(paired(a, b).size(), table[a.size()][b.size()]);
  }
}

TEST(Align, GivesUpGracefully) {
  std::vector<std::uint32_t> a(100, 1), b(100, 2);
  a[0] = b[0] = 9;
  EXPECT_EQ(paired(a, b, 10).size(), 1u);
}

TEST(Run, SplitsTheProgramFromTheOptions) {
  const std::vector<std::string> with_value = {"-o"};
  std::vector<std::string> arguments = {"-o", "x", "-q", "--", "python", "-c", "--", "-v"};
  EXPECT_EQ(split_program(arguments, with_value), (std::vector<std::string>{"python", "-c", "--", "-v"}));
  EXPECT_EQ(arguments, (std::vector<std::string>{"-o", "x", "-q"}));
  arguments = {"-o", "x", "python", "-q"};
  EXPECT_EQ(split_program(arguments, with_value), (std::vector<std::string>{"python", "-q"}));
  arguments = {"-o"};
  EXPECT_TRUE(split_program(arguments, with_value).empty());
}

TEST(Environment, ComplaintsHaveSuggestions) {
  const char* const good[] = {"PATH=/bin", "GRAPE_MODE=observe", nullptr};
  EXPECT_TRUE(environment_complaints(good).empty());
  const char* const bad[] = {"GRAPE_MODE=obsrve", "GRAPE_MOED=off", nullptr};
  const auto complaints = environment_complaints(bad);
  ASSERT_EQ(complaints.size(), 2u);
  EXPECT_NE(complaints[0].find("did you mean observe?"), std::string::npos) << complaints[0];
  EXPECT_EQ(complaints[0].find("; using"), std::string::npos) << complaints[0];
  EXPECT_NE(complaints[1].find("did you mean GRAPE_MODE?"), std::string::npos) << complaints[1];
}

}  // namespace
}  // namespace grape::tools
