#include "compressor/trace/validate.h"

namespace grape::trace {
namespace {

constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

// Words of the payload before its lists and texts.
std::uint64_t fixed_words(EventKind kind) {
  switch (kind) {
    case EventKind::kScopeAttach:
    case EventKind::kLost:
      return 1;
    case EventKind::kScopeBegin:
    case EventKind::kScopeEnd:
    case EventKind::kExecEdges:
      return 2;
    case EventKind::kDefCode:
    case EventKind::kDefFrame:
    case EventKind::kDefNativeFrame:
    case EventKind::kDefScope:
    case EventKind::kCall:
    case EventKind::kBlockAlloc:
    case EventKind::kBlockFree:
      return 3;
    case EventKind::kDefFunction:
      return 4;
    case EventKind::kExecNode:
      return 7;
    case EventKind::kLaunch:
      return kLaunchFixed;
    default:
      return kUnknown;
  }
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

// Words of the payload in all, by the counts in its fixed words.
std::uint64_t needed_words(EventKind kind, const std::uint64_t* w) {
  switch (kind) {
    case EventKind::kDefFunction:
      return 4 + std::uint64_t{low(w[3])} + words_for(high(w[3]));
    case EventKind::kDefCode:
    case EventKind::kDefNativeFrame:
    case EventKind::kDefScope:
      return 3 + words_for(low(w[2])) + words_for(high(w[2]));
    case EventKind::kLaunch:
      return kLaunchFixed + std::uint64_t{low(w[kLaunchSizes])} * (kAttributeBytes / 8) +
             words_for(high(w[kLaunchSizes]));
    case EventKind::kCall:
      return 3 + std::uint64_t{low(w[2])} + words_for(high(w[2]));
    case EventKind::kExecNode:
      return 7 + words_for(high(w[2]));
    case EventKind::kExecEdges:
      return 2 + std::uint64_t{low(w[1])};
    default:
      return fixed_words(kind);
  }
}

}  // namespace

Fit check_layout(EventKind kind, const std::uint64_t* words, std::size_t count, bool newer) {
  const std::uint64_t fixed = fixed_words(kind);
  if (fixed == kUnknown) return newer ? Fit::kUnknownKind : Fit::kBad;
  if (count < fixed) return Fit::kBad;
  const std::uint64_t needed = needed_words(kind, words);
  if (count < needed || (count > needed && !newer)) return Fit::kBad;
  if (kind == EventKind::kCall && !blob_fits(words + 3 + low(words[2]), high(words[2]), low(words[2]))) {
    return Fit::kBad;
  }
  return Fit::kGood;
}

}  // namespace grape::trace
