// Reads the events of one events chunk back, one after the other (docs/FORMAT.md, Events chunks).
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/trace/byte_stream.h"
#include "compressor/trace/chunk.h"
#include "compressor/trace/event.h"
#include "compressor/trace/history.h"

namespace grape::trace {

class EventDecoder {
 public:
  enum class Result { kEvent, kEnd, kDamage };

  // `columns`: kColumns of them, as unpacked from the chunk; taken over.
  void start(const ChunkHeader& chunk, std::vector<Bytes> columns);

  // kEvent: `header` and `words` (valid until the next call) are the event. kDamage: see message(); final.
  Result next(EventHeader& header, const std::uint64_t*& words);
  const char* message() const { return message_; }

 private:
  bool take_literal(Entry& entry, std::uint64_t*& payload);
  bool take_changes(unsigned op, std::uint64_t& reference, Entry& entry, std::uint64_t*& payload);
  std::uint64_t take_word(std::uint64_t reference, std::uint64_t older);
  void take_timing(EventHeader& header, Entry& entry, std::uint64_t reference);
  std::int64_t take_residual(ColumnNumber column);
  bool columns_failed() const;
  bool columns_empty() const;
  Result damage(const char* message);

  ChunkHeader chunk_;
  std::vector<Bytes> columns_;
  ByteCursor cursors_[kColumns];
  History history_;
  WordTables tables_;
  std::uint64_t next_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t event_bytes_ = 0;
  std::uint64_t sequence_ = 0;
  unsigned shift_ = 0;
  std::uint64_t time_ = 0;  // of the last timed event, in quanta
  const char* message_ = "";
};

}  // namespace grape::trace
