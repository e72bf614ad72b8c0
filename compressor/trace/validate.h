// Does an event's payload fit the layout of its kind (event.h)? Consumers may trust the counts of events that pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compressor/trace/event.h"

namespace grape::trace {

enum class Fit { kGood, kUnknownKind, kBad };

// `newer`: the file has a newer minor version, so that the payload may have more words than are known here.
Fit check_layout(EventKind kind, const std::uint64_t* words, std::size_t count, bool newer);

}  // namespace grape::trace
