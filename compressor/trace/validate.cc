#include "compressor/trace/validate.h"

namespace grape::trace {
namespace {

// What half of a word counts that follows the fixed words: nothing, words, attributes, or bytes.
enum Unit : std::uint8_t { kNothing = 0, kWords = 1, kAttributes = kAttributeBytes / 8, kBytes = 255 };

// Words of a kind's payload: `fixed` ones, then as many as the two halves of the word `counts` say. No fixed ones: the
// kind is unknown.
struct Layout {
  std::uint8_t fixed = 0, counts = 0;
  Unit low = kNothing, high = kNothing;
};

constexpr Layout layout_of(EventKind kind) {
  switch (kind) {
    case EventKind::kScopeAttach:
    case EventKind::kLost:
      return {1};
    case EventKind::kScopeBegin:
    case EventKind::kScopeEnd:
      return {2};
    case EventKind::kDefFrame:
    case EventKind::kBlockAlloc:
    case EventKind::kBlockFree:
      return {3};
    case EventKind::kDefFunction:
      return {4, 3, kWords, kBytes};
    case EventKind::kDefCode:
    case EventKind::kDefNativeFrame:
    case EventKind::kDefScope:
      return {3, 2, kBytes, kBytes};
    case EventKind::kLaunch:
      return {kLaunchFixed, kLaunchSizes, kAttributes, kBytes};
    case EventKind::kCall:
      return {3, 2, kWords, kBytes};
    case EventKind::kExecNode:
      return {7, 2, kNothing, kBytes};
    case EventKind::kExecEdges:
      return {2, 1, kWords};
    default:
      return {};
  }
}

std::uint64_t words_of(Unit unit, std::uint32_t count) {
  return unit == kBytes ? words_for(count) : std::uint64_t{unit} * count;
}

// The blob of a call: per entry u32 argument index, u32 bytes, bytes padded to a word; exactly `bytes` long.
bool blob_fits(const std::uint64_t* words, std::uint64_t bytes, std::uint64_t arguments) {
  std::uint64_t at = 0;
  const std::uint64_t count = words_for(bytes);
  while (at < count) {
    const std::uint64_t entry = words_for(high(words[at]));
    if (low(words[at]) >= arguments || entry > count - at - 1) return false;
    at += 1 + entry;
  }
  return bytes % 8 == 0;
}

}  // namespace

Fit check_layout(EventKind kind, const std::uint64_t* words, std::size_t count, bool newer) {
  const Layout layout = layout_of(kind);
  if (layout.fixed == 0) return newer ? Fit::kUnknownKind : Fit::kBad;
  if (count < layout.fixed) return Fit::kBad;
  const std::uint64_t counts = words[layout.counts];
  const std::uint64_t needed = layout.fixed + words_of(layout.low, low(counts)) + words_of(layout.high, high(counts));
  if (count < needed || (count > needed && !newer)) return Fit::kBad;
  if (kind == EventKind::kCall && !blob_fits(words + 3 + low(words[2]), high(words[2]), low(words[2]))) {
    return Fit::kBad;
  }
  return Fit::kGood;
}

}  // namespace grape::trace
