#include <gtest/gtest.h>

#include "python_hooks/replay/budget.h"

namespace grape::python::replay {
namespace {

int looks_of(const void* type, int calls) {
  int looks = 0;
  for (int i = 0; i < calls; ++i) looks += Siblings::worth_a_look(type) ? 1 : 0;
  return looks;
}

TEST(SiblingsTest, AClassIsLookedAtUntilSomeWereRefused) {
  static const int type = 0;  // of no other test
  for (std::uint32_t i = 0; i < Siblings::kRefused; ++i) {
    EXPECT_TRUE(Siblings::worth_a_look(&type)) << i;
    Siblings::refused(&type);
  }
  EXPECT_FALSE(Siblings::worth_a_look(&type));
}

TEST(SiblingsTest, RefusalsInPassingSayLittle) {
  static const int type = 0;  // of no other test
  for (std::uint32_t i = 0; i < Siblings::kRefused * Siblings::kPassing; ++i) {
    EXPECT_TRUE(Siblings::worth_a_look(&type)) << i;
    Siblings::refused(&type, true);
  }
  EXPECT_FALSE(Siblings::worth_a_look(&type)) << "they do not pass";
}

TEST(SiblingsTest, TheOthersAreLookedAtEverMoreSeldom) {
  static const int type = 0;  // of no other test
  for (std::uint32_t i = 0; i < Siblings::kRefused; ++i) Siblings::refused(&type);
  constexpr int kFirst = static_cast<int>(Siblings::kFirstLeft);
  EXPECT_EQ(looks_of(&type, kFirst - 1), 0);
  EXPECT_EQ(looks_of(&type, 1), 1);
  EXPECT_EQ(looks_of(&type, 2 * kFirst - 1), 0);
  EXPECT_EQ(looks_of(&type, 1), 1);
  EXPECT_EQ(looks_of(&type, 1000 * kFirst), 7) << "4, 8, .. 256 times as many calls";
}

TEST(SiblingsTest, OneThatIsReplayedSpeaksForAll) {
  static const int type = 0;  // of no other test
  for (std::uint32_t i = 0; i < 100; ++i) Siblings::refused(&type);
  EXPECT_FALSE(Siblings::worth_a_look(&type));
  Siblings::proven(&type);
  EXPECT_EQ(looks_of(&type, 10), 10);
}

TEST(SiblingsTest, ClassesAreLookedAtForThemselves) {
  static const int one = 0, other = 0;
  for (std::uint32_t i = 0; i < 100; ++i) Siblings::refused(&one);
  EXPECT_FALSE(Siblings::worth_a_look(&one));
  EXPECT_TRUE(Siblings::worth_a_look(&other));
}

}  // namespace
}  // namespace grape::python::replay
