// Codes a run of one thread's events into the columns of an events chunk (docs/FORMAT.md, Events chunks).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compressor/trace/byte_stream.h"
#include "compressor/trace/event.h"
#include "compressor/trace/history.h"

namespace grape::trace {

// Each event becomes the difference to an earlier event of the same chunk that it resembles. May throw std::bad_alloc.
class EventEncoder {
 public:
  // Copies the event. Precondition: a well-formed event of at most kMaxEventBytes; sequence and ticks ascend. A chunk
  // holds at most 128 MiB of events, all in all.
  void add(const EventHeader& event);

  // Completes the columns. `ticks_per_second` decides how far ticks are rounded.
  void finish(std::uint64_t ticks_per_second);
  const std::vector<Bytes>& columns() const { return columns_; }
  void clear();

  std::uint64_t events() const { return history_.size(); }
  std::uint64_t event_bytes() const { return event_bytes_; }
  std::size_t memory() const;  // bytes held, about: 2 to 4 times event_bytes() for a small chunk
  std::uint64_t first_sequence() const { return first_sequence_; }
  std::uint64_t last_sequence() const { return last_sequence_; }

 private:
  // Timed events wait for the tick shift, which the writer knows.
  struct Timing {
    std::uint64_t ticks;
    std::uint32_t duration;
    std::uint32_t reference;  // index in timings_ plus 1; 0: none
  };

  // Events are found again by how the run that they end looks: its last 4, 2 or 1 events.
  static constexpr std::size_t kContexts = 3;
  struct Contexts {
    std::uint64_t signature;
    std::uint64_t hash[kContexts];
  };

  Contexts contexts_of(const Entry& event) const;
  std::uint64_t find_reference(const Entry& event, const std::uint64_t* payload, const Contexts& contexts) const;
  std::uint64_t find_in_track(const Entry& event, std::uint64_t begin) const;
  std::uint64_t seen_with(const Entry& event, const Contexts& contexts, std::size_t which) const;
  std::size_t differences(std::uint64_t reference, const std::uint64_t* payload) const;
  bool usable(const Entry& event, std::uint64_t reference) const;
  void remember(std::uint64_t index, const Contexts& contexts);
  void put_literal(const Entry& event, const std::uint64_t* payload);
  void put_changes(std::uint64_t reference, unsigned mode, const std::uint64_t* payload);
  void put_word(std::uint64_t reference, std::uint64_t older, std::uint64_t current);
  void put_timing(const EventHeader& event, std::uint64_t reference);

  std::vector<Bytes> columns_ = std::vector<Bytes>(kColumns);
  History history_;
  WordTables tables_;
  std::uint64_t next_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t event_bytes_ = 0;
  std::uint64_t first_sequence_ = 0;
  std::uint64_t last_sequence_ = 0;
  std::vector<Timing> timings_;
  std::vector<std::uint32_t> timing_of_;  // event → index in timings_ plus 1, 0: not timed

  std::uint64_t signatures_[3] = {};       // of the last three events, latest first
  std::vector<std::uint32_t> last_seen_;   // context's hash → number of the event plus 1
  std::vector<std::uint8_t> recall_hint_;  // value's hash → where it stood in the ring of recent values
};

}  // namespace grape::trace
