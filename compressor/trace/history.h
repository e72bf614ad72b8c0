// The events of a chunk that may serve as references, and what encoder and decoder must do alike: window, tables,
// clocks (docs/FORMAT.md, Events chunks). Memory is bounded by the window, not by the chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "compressor/trace/event.h"

namespace grape::trace {

constexpr std::uint64_t kWindowEvents = 1u << 17;
constexpr std::uint64_t kWindowWords = 1u << 20;
constexpr std::uint64_t kNoEvent = ~std::uint64_t{0};

enum ColumnNumber : std::size_t {
  kOps,
  kJumps,
  kShapes,
  kLiterals,
  kGaps,
  kClasses,
  kDeltas,
  kWords,
  kRecalls,
  kSequences,
  kIntervals,
  kDurations,
  kOverflow,
  kColumns,
};

enum OpMode : unsigned { kFollow = 0, kResume = 1, kJump = 2, kLiteral = 3 };
constexpr unsigned kCountEscape = 63;

enum WordClass : std::uint8_t {
  kBack,
  kLinear,
  kSameMove,
  kLearntMove,
  kSmall,
  kHighSmall,
  kBothSmall,
  kRecall,
  kWhole,
};

constexpr bool is_timed(EventKind kind) {
  return kind == EventKind::kLaunch || kind == EventKind::kCall || kind == EventKind::kScopeBegin ||
         kind == EventKind::kScopeEnd || kind == EventKind::kExecNode;
}

// What is expected of an event's interval and duration, in sixteenths of a quantum.
struct Clock {
  std::int32_t interval = 0;
  std::int32_t duration = 0;
};

inline std::int64_t expected(std::int32_t clock) { return (std::int64_t{clock} + 8) >> 4; }

// `known`: the clock is the reference's.
inline std::int32_t updated(bool known, std::int32_t clock, std::int64_t value) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 26;
  const std::int64_t scaled = 16 * std::clamp(value, -kLimit, kLimit);
  return static_cast<std::int32_t>(known ? clock + ((scaled - clock) >> 2) : scaled);
}

struct Entry {
  std::uint64_t position = 0;  // of its payload, in words since the chunk's begin
  std::uint32_t words = 0;     // payload
  EventKind kind = EventKind::kNone;
  std::uint16_t flags = 0;
  std::uint32_t key = 0;
  std::uint32_t distance = 0;  // to its own reference, 0: none
  Clock clock;

  bool alike(const Entry& other) const {
    return key == other.key && words == other.words && kind == other.kind && flags == other.flags;
  }
};

// A sequence that forgets its beginning: grows at the end, keeps at least the last `window` elements.
template <typename Element>
class SlidingBuffer {
 public:
  explicit SlidingBuffer(std::uint64_t window) : window_(window) {}

  std::uint64_t end() const { return base_ + used_; }
  std::size_t memory() const { return capacity_ * sizeof(Element); }
  // A pointer, not a reference: nothing may stand there yet.
  Element* at(std::uint64_t index) { return data_.get() + (index - base_); }
  const Element* at(std::uint64_t index) const { return data_.get() + (index - base_); }

  // Makes room for `count` elements at the end; moves what is kept.
  Element* extend(std::size_t count) {
    if (used_ + count > capacity_) make_room(count);
    Element* here = data_.get() + used_;
    used_ += count;
    return here;
  }

  void clear() { base_ = used_ = 0; }

 private:
  void make_room(std::size_t count) {
    const std::size_t kept = static_cast<std::size_t>(std::min<std::uint64_t>(used_, window_));
    // Twice the window, so that moving costs less than one copy per element.
    if (2 * kept + count <= capacity_) {
      std::memmove(data_.get(), data_.get() + (used_ - kept), kept * sizeof(Element));
    } else {
      const std::size_t capacity = std::max<std::size_t>(256, 2 * (kept + count));
      std::unique_ptr<Element[]> grown(new Element[capacity]);
      if (kept > 0) std::memcpy(static_cast<void*>(grown.get()), data_.get() + (used_ - kept), kept * sizeof(Element));
      data_ = std::move(grown);
      capacity_ = capacity;
    }
    base_ += used_ - kept;
    used_ = kept;
  }

  std::uint64_t window_;
  std::uint64_t base_ = 0;
  std::size_t used_ = 0;
  std::size_t capacity_ = 0;
  std::unique_ptr<Element[]> data_;
};

class History {
 public:
  std::uint64_t size() const { return entries_.end(); }
  std::size_t memory() const { return words_.memory() + entries_.memory(); }
  const Entry& entry(std::uint64_t index) const { return *entries_.at(index); }
  Entry& entry(std::uint64_t index) { return *entries_.at(index); }
  const std::uint64_t* words(const Entry& entry) const { return words_.at(entry.position); }

  // May `index` be the reference of the event that is next to be appended?
  bool in_window(std::uint64_t index) const { return in_window_at(index, size(), words_.end()); }

  // Appends an event; its payload is uninitialised. Pointers to older payloads are void.
  std::uint64_t* append(Entry entry) {
    entry.position = words_.end();
    std::uint64_t* payload = words_.extend(entry.words);
    *entries_.extend(1) = entry;
    return payload;
  }

  // The words of the reference's own reference, for the event that was appended last; null if there is none.
  const std::uint64_t* older(std::uint64_t reference) const {
    const Entry& middle = *entries_.at(reference);
    if (middle.distance == 0) return nullptr;
    const std::uint64_t index = reference - middle.distance;
    const Entry& last = *entries_.at(size() - 1);
    return in_window_at(index, size() - 1, last.position) ? words(*entries_.at(index)) : nullptr;
  }

  void clear() {
    entries_.clear();
    words_.clear();
  }

 private:
  bool in_window_at(std::uint64_t index, std::uint64_t number, std::uint64_t position) const {
    // The first test keeps the second from looking at an entry that is gone.
    return index < number && number - index <= kWindowEvents && position - entries_.at(index)->position <= kWindowWords;
  }

  // Slack: the appended event itself must not push its reference out.
  SlidingBuffer<Entry> entries_{kWindowEvents + 1};
  SlidingBuffer<std::uint64_t> words_{kWindowWords + kMaxEventBytes / 8};
};

// Predictions of changed words that are learnt along the way.
class WordTables {
 public:
  std::uint64_t move(std::uint64_t reference) const { return moves_[slot(reference)]; }
  std::uint64_t last_move() const { return last_move_; }
  std::uint64_t recent(std::uint8_t index) const { return recent_[index]; }
  std::uint8_t next_recent() const { return next_recent_; }

  void learn(std::uint64_t reference, std::uint64_t current, WordClass how) {
    last_move_ = current - reference;
    moves_[slot(reference)] = last_move_;
    if (how == kSmall || how == kWhole) recent_[next_recent_++] = current;
  }
  void clear() { *this = WordTables(); }

 private:
  static std::size_t slot(std::uint64_t reference) { return (reference * 0x9E3779B97F4A7C15u) >> 52; }
  std::uint64_t moves_[4096] = {};
  std::uint64_t recent_[256] = {};
  std::uint64_t last_move_ = 0;
  std::uint8_t next_recent_ = 0;
};

}  // namespace grape::trace
