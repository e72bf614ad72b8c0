// Limits on looking: how many samples and calls it takes to act on them, and how much time may be spent on it at first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grape::python::replay {

// Seconds that no process lives to.
constexpr double kUnlimitedLooks = 1e9;

struct LookLimits {
  // Of launches outside of regions, one in so many is sampled, in the mean half as many; after `samples_at_once` ever
  // more seldom.
  std::uint32_t most_stride = 31;
  std::uint64_t samples_at_once = 10'000;
  std::uint64_t least_samples = 16;  // for anything to be named
  std::uint64_t least_part = 20;     // of all launches, one in so many
  // Samples until functions are looked for: some 4,000 launches. Later looks come twice as late each time that nothing
  // new was found.
  std::uint64_t first_look = 256, last_distance = ~std::uint64_t{0} >> 1;
  std::size_t most_found = 64;     // functions that become regions
  std::size_t most_chosen = 8;     // at a look
  std::uint64_t least_weight = 4;  // samples: less is chance
  std::uint64_t least_share = 50;  // of the launches outside, one in so many
  double looks_at_first = 0.025;   // seconds (LookBudget in look_budget.h)
  std::uint32_t first_rest = 64;   // calls (Rest in budget.h)
  // Launches, copies and memsets of a function's call: a replay costs the CPU as much as some of these do, and its
  // proof as much as hundreds.
  std::size_t least_work = 8;
  // The same of a module's call inside of another one, with gradients on: its nodes and its backward pass cost, too.
  std::size_t least_inner_pass = 8;
};

// Of this process. Changed at most once, with the GIL, before the first function is looked for.
inline LookLimits g_look_limits;

// For tests (GRAPE_EARLY_REGIONS=1): of short programs too all functions are found, at once, and all calls looked at.
inline constexpr LookLimits kEarlyLooks = [] {
  LookLimits early;
  early.most_stride = 1;
  early.samples_at_once = ~std::uint64_t{0};
  early.least_samples = 1;
  early.least_part = ~std::uint64_t{0} >> 24;
  early.first_look = 6;
  early.last_distance = 24;
  early.most_found = std::size_t{1} << 16;
  early.most_chosen = 256;
  early.least_weight = 1;
  early.least_share = ~std::uint64_t{0} >> 24;
  early.looks_at_first = kUnlimitedLooks;
  early.first_rest = 4;
  early.least_work = 0;
  early.least_inner_pass = 0;
  return early;
}();

}  // namespace grape::python::replay
