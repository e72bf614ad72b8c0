// A process without Python: nothing is found, nothing is read, nothing is written.
#include <gtest/gtest.h>

#include <cstdint>

extern "C" {
void probe_launch();
void probe_driver_call();
std::uint32_t probe_stack();
std::uint32_t probe_leaf();
std::uint64_t probe_words(std::uint64_t thread, std::uint64_t start, std::uint64_t* out, std::uint64_t room);
}

TEST(NoPython, GivesNoPositions) {
  for (int i = 0; i < 1000; ++i) probe_driver_call();
  EXPECT_EQ(probe_stack(), 0U);
  EXPECT_EQ(probe_leaf(), 0U);
  probe_launch();
  EXPECT_EQ(probe_words(0, 0, nullptr, 0), 7U);  // the one event of the launch
}
