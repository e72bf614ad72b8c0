// What became of a region's calls, and who launches outside of regions, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace grape::python::replay {

// Signatures by stage.
struct StageCounts {
  std::size_t seen = 0, observed = 0, proven = 0, given_up = 0;
};

struct Statistics {
  std::uint64_t observed = 0, replayed = 0;
  std::uint64_t validated = 0;    // replays that were checked, and found good
  std::uint64_t first_calls = 0;  // ran as always because their signature had not come often enough
  std::uint64_t put_off = 0;      // ran as always because looking at them would have cost too much
  StageCounts signatures;         // of a region: that are not there any more
};

// A function that launches outside of regions.
struct OutsideFunction {
  std::string region;  // as GRAPE_REGIONS names it
  std::string place;   // where it is defined
  double share = 0;    // of the launches outside of regions
};

}  // namespace grape::python::replay
