#include "compressor/trace/definitions.h"

#include <utility>

namespace grape::trace {
namespace {

constexpr std::uint32_t kMaxId = 1u << 22;

void set_low(std::uint64_t& word, std::uint32_t value) { word = pack(value, high(word)); }
void set_high(std::uint64_t& word, std::uint32_t value) { word = pack(low(word), value); }

std::string text_at(const std::uint64_t* words, std::size_t bytes) {
  return std::string(reinterpret_cast<const char*>(words), bytes);
}

}  // namespace

Definitions::Definitions(const ReaderLimits& limits) : limits_(limits) {
  depth_[kFrameIds].assign(1, 0);
  depth_[kNativeFrameIds].assign(1, 0);
}

bool Definitions::map_event(EventKind kind, std::uint64_t* words, std::size_t count, ThreadIds& ids,
                            const char*& message) {
  switch (kind) {
    case EventKind::kDefFunction:
      return define(kind, kFunctionIds, words, count, ids, message);
    case EventKind::kDefCode:
      return define(kind, kCodeIds, words, count, ids, message);
    case EventKind::kDefFrame:
      set_high(words[0], ids.file_id(kFrameIds, high(words[0])));
      set_low(words[1], ids.file_id(kCodeIds, low(words[1])));
      return define(kind, kFrameIds, words, count, ids, message);
    case EventKind::kDefNativeFrame:
      set_high(words[0], ids.file_id(kNativeFrameIds, high(words[0])));
      return define(kind, kNativeFrameIds, words, count, ids, message);
    case EventKind::kDefScope:
      return define(kind, kScopeIds, words, count, ids, message);
    case EventKind::kLaunch:
      set_low(words[kLaunchFunction], ids.file_id(kFunctionIds, low(words[kLaunchFunction])));
      [[fallthrough]];
    case EventKind::kCall:
      words[1] = pack(ids.file_id(kFrameIds, low(words[1])), ids.file_id(kNativeFrameIds, high(words[1])));
      break;
    case EventKind::kBlockAlloc:
      set_low(words[2], ids.file_id(kFrameIds, low(words[2])));
      break;
    case EventKind::kScopeBegin:
      words[0] = pack(ids.file_id(kScopeIds, low(words[0])), ids.file_id(kFrameIds, high(words[0])));
      break;
    case EventKind::kScopeEnd:
      set_low(words[0], ids.file_id(kScopeIds, low(words[0])));
      break;
    case EventKind::kExecNode:
      set_low(words[2], ids.file_id(kFunctionIds, low(words[2])));
      break;
    default:
      break;
  }
  return true;
}

bool Definitions::define(EventKind kind, IdSpace space, std::uint64_t* words, std::size_t count, ThreadIds& ids,
                         const char*& message) {
  const std::uint32_t id = low(words[0]);
  if (id == 0 || id > kMaxId) {
    message = "a definition has an id outside the limits";
    return false;
  }
  if (space == kFrameIds || space == kNativeFrameIds) {
    // The outermost part of a stack that is too deep is left out.
    if (depth_[space][high(words[0])] >= limits_.max_stack_depth) set_high(words[0], 0);
  }
  set_low(words[0], 0);
  std::string content(reinterpret_cast<const char*>(words), count * 8);
  std::vector<std::uint32_t>& map = ids.maps[space];
  const std::uint64_t growth = id < map.size() ? 0 : (std::uint64_t{id} + 1 - map.size()) * sizeof map[0];
  auto found = known_[space].find(content);
  used_ += growth + (found == known_[space].end() ? content.size() : 0);
  if (used_ > limits_.max_definitions) {
    message = "the trace has more definitions than the limit allows";
    return false;
  }
  if (found == known_[space].end()) {
    found = known_[space].emplace(std::move(content), static_cast<std::uint32_t>(known_[space].size() + 1)).first;
    if (!depth_[space].empty()) depth_[space].push_back(depth_[space][high(words[0])] + 1);
    enter(kind, words);
  }
  if (growth > 0) map.resize(id + 1, 0);
  map[id] = found->second;
  set_low(words[0], found->second);
  return true;
}

void Definitions::enter(EventKind kind, const std::uint64_t* words) {
  if (kind == EventKind::kDefFunction) {
    Function function;
    function.kind = high(words[0]);
    function.handle = words[1];
    function.module = words[2];
    const std::size_t parameters = low(words[3]);
    for (std::size_t i = 0; i < parameters; ++i) function.parameters.push_back({low(words[4 + i]), high(words[4 + i])});
    function.name = text_at(words + 4 + parameters, high(words[3]));
    tables_.functions.push_back(std::move(function));
  } else if (kind == EventKind::kDefFrame) {
    tables_.frames.push_back({high(words[0]), low(words[1]), high(words[1]), low(words[2])});
  } else {
    const std::uint64_t* first = words + 3;
    const std::uint64_t* second = first + words_for(low(words[2]));
    std::string first_text = text_at(first, low(words[2]));
    std::string second_text = text_at(second, high(words[2]));
    if (kind == EventKind::kDefCode) {
      tables_.codes.push_back({std::move(first_text), std::move(second_text), high(words[0]), words[1]});
    } else if (kind == EventKind::kDefNativeFrame) {
      tables_.native_frames.push_back({high(words[0]), words[1], std::move(first_text), std::move(second_text)});
    } else {
      tables_.scopes.push_back(
          {static_cast<ScopeKind>(high(words[0])), words[1], std::move(first_text), std::move(second_text)});
    }
  }
}

}  // namespace grape::trace
