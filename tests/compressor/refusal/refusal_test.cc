#include "compressor/refusal/refusal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

namespace grape::refusal {
namespace {

TEST(Refusal, PartsStandWhereTheTextHasRoom) {
  const Refusal refusal = make(other_node, "3", std::string("a copy"), std::string_view("a {}"));
  EXPECT_EQ(refusal.id, RefusalId::other_node);
  EXPECT_EQ(refusal.text, "operation 3 is a copy in one call and a {} in the other");
  EXPECT_EQ(make(no_memory).text, "no memory");
  EXPECT_EQ(make(calls, "").text, "calls ");
}

TEST(Refusal, NothingRefusedIsTold) {
  EXPECT_FALSE(Refusal());
  EXPECT_FALSE(Form<2>());
  EXPECT_TRUE(make(calls, ""));
  EXPECT_EQ(make(Form<0>()).text, "");
  EXPECT_STREQ(name_of(RefusalId::none), "none");
  EXPECT_STREQ(kind_of(RefusalId::none), "other");
  EXPECT_STREQ(advice_of(RefusalId::none), "");
}

TEST(Refusal, APlaceComesLast) {
  Refusal refusal = make(imports, "einops");
  EXPECT_EQ(in_words(refusal), "imports einops");
  refusal.place = "net.py:12 in f";
  EXPECT_EQ(in_words(refusal), "imports einops, at net.py:12 in f");
}

TEST(Refusal, OutOfMemoryNeedsNone) {
  EXPECT_EQ(out_of_memory().id, RefusalId::no_memory);
  EXPECT_LE(out_of_memory().text.size(), std::string().capacity());
}

TEST(Refusal, EveryRowHasAKindAndAdviceOrOnPurposeNone) {
  const std::set<std::string> without = {"other", "driver_call", "excluded", "graph"};
  std::set<std::string> names;
  for (std::size_t i = 0; i < kRefusals; ++i) {
    const auto id = static_cast<RefusalId>(i);
    EXPECT_TRUE(names.insert(name_of(id)).second) << name_of(id);
    EXPECT_STRNE(kind_of(id), "") << name_of(id);
    const bool advised = *advice_of(id) != '\0';
    EXPECT_EQ(advised, without.count(kind_of(id)) == 0) << name_of(id);
  }
}

TEST(Refusal, KindsThatProgramsReadStay) {
  EXPECT_STREQ(kind_of(RefusalId::reads_memory), "host_read");
  EXPECT_STREQ(kind_of(RefusalId::copies_too_much), "host_copy");
  EXPECT_STREQ(kind_of(RefusalId::calls), "effect");
  EXPECT_STREQ(kind_of(RefusalId::calls_backward), "autograd");
  EXPECT_STREQ(kind_of(RefusalId::imports), "import");
  EXPECT_STREQ(kind_of(RefusalId::profiler), "observer");
  EXPECT_STREQ(kind_of(RefusalId::other_parameter), "value_varies");
  EXPECT_STREQ(kind_of(RefusalId::allocates), "passing");
  EXPECT_TRUE(is_passing(RefusalId::allocates));
  EXPECT_FALSE(is_passing(RefusalId::calls));
}

}  // namespace
}  // namespace grape::refusal
