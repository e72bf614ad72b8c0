// How much of what is launched outside of regions is looked at before anything is said of it, or done; and what the
// functions that are found may cost at first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grape::python::replay {

#ifdef GRAPE_EARLY_REGIONS
// A build for tests (cmake -DGRAPE_EARLY_REGIONS=ON): of short programs too all functions are found, at once.
constexpr std::uint32_t kMostStride = 1;
constexpr std::uint64_t kSamplesAtOnce = ~std::uint64_t{0}, kLeastSamples = 1, kLeastPart = ~std::uint64_t{0} >> 24;
constexpr std::uint64_t kFirstLook = 6, kLastDistance = 24;
constexpr std::size_t kMostFound = 1u << 16, kMostChosen = 256;
constexpr std::uint64_t kLeastWeight = 1, kLeastShare = ~std::uint64_t{0} >> 24;
constexpr double kInnerAtFirst = 1e9;
constexpr std::size_t kLeastWork = 0;
#else
constexpr std::uint32_t kMostStride = 31;         // launches from one sample to the next: 16 in the mean
constexpr std::uint64_t kSamplesAtOnce = 10'000;  // then ever more seldom
constexpr std::uint64_t kLeastSamples = 16;       // for anything to be named
constexpr std::uint64_t kLeastPart = 20;          // of all launches, one in so many
constexpr std::uint64_t kFirstLook = 256;         // samples: some 4,000 launches. Later looks come twice as late each
                                                  // time that nothing new was found
constexpr std::uint64_t kLastDistance = ~std::uint64_t{0} >> 1;
constexpr std::size_t kMostFound = 64;     // functions that become regions
constexpr std::size_t kMostChosen = 8;     // at a look
constexpr std::uint64_t kLeastWeight = 4;  // samples: less is chance
constexpr std::uint64_t kLeastShare = 50;  // of the launches outside, one in so many
constexpr double kInnerAtFirst = 0.004;    // seconds (InnerBudget in payoff.h); again for each that was found
constexpr std::size_t kLeastWork = 8;      // launches, copies and memsets of a call: a replay costs the CPU as much as
                                           // some of these do, and its proof as much as hundreds
#endif

}  // namespace grape::python::replay
