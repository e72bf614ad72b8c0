// Checks a replay against the call itself (GRAPE_VALIDATE): the call runs as always, and its program in the shadow.
#pragma once

#include <cstdint>

#include "python_hooks/replay/run.h"

namespace grape::python::proof {

enum class Checked : std::uint8_t {
  kNotPossible,   // nothing ran: a guard does not hold, or there is no memory for copies
  kEqual,         // what the call returned and left is what a replay would have
  kOtherValue,    // the host read another value than in the proof: a replay would have stopped there
  kInconclusive,  // the call ran, but could not be compared (it raised, the driver is in trouble, ...)
  kDiffers,       // `difference` says where
};

// Is the region's next replay to be checked? Counts it.
bool validation_due(replay::Region& region) noexcept;

// Except for kNotPossible the call ran and `result` is what it returned; null with the program's exception.
Checked validate(replay::Region& region, replay::Proven& proven, const replay::Call& call, Object*& result,
                 refusal::Refusal& difference);

}  // namespace grape::python::proof
