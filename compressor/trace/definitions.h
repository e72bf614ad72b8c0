// From the id spaces of threads to the file's tables: takes definitions in, and rewrites ids in events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "compressor/trace/event.h"
#include "compressor/trace/reader.h"

namespace grape::trace {

enum IdSpace : std::size_t { kFunctionIds, kCodeIds, kFrameIds, kNativeFrameIds, kScopeIds, kIdSpaces };

// What a thread's own ids mean in the file's tables.
struct ThreadIds {
  std::vector<std::uint32_t> maps[kIdSpaces];

  // 0 where nothing defined the id.
  std::uint32_t file_id(IdSpace space, std::uint32_t id) const { return id < maps[space].size() ? maps[space][id] : 0; }
};

class Definitions {
 public:
  explicit Definitions(const ReaderLimits& limits);

  const Tables& tables() const { return tables_; }

  // Rewrites the ids of an event whose layout was checked; definitions enter the tables. False, with the reason:
  // a limit is exceeded.
  bool map_event(EventKind kind, std::uint64_t* words, std::size_t count, ThreadIds& ids, const char*& message);

 private:
  bool define(EventKind kind, IdSpace space, std::uint64_t* words, std::size_t count, ThreadIds& ids,
              const char*& message);
  void enter(EventKind kind, const std::uint64_t* words);

  ReaderLimits limits_;
  Tables tables_;
  std::uint64_t used_ = 0;  // bytes, against limits_.max_definitions
  // The payload as it stands in the file, but with file-wide ids and without its own → file-wide id.
  std::unordered_map<std::string, std::uint32_t> known_[kIdSpaces];
  std::vector<std::uint32_t> depth_[kIdSpaces];  // of frames and native frames, outermost 1
};

}  // namespace grape::trace
