#include "compressor/trace/event_encoder.h"

#include <algorithm>

namespace grape::trace {
namespace {

constexpr std::size_t kSmallTable = 1u << 10;  // slots per context; grows with the chunk, to
constexpr std::size_t kLargeTable = 1u << 16;
constexpr std::uint64_t kTrackSearch = 16;  // events of a track that may have been left out
constexpr std::size_t kRecallHints = 4096;
constexpr std::size_t kKeptMemory = 1u << 20;  // from chunk to chunk

std::uint64_t mixed(std::uint64_t value) {
  value *= 0x9E3779B97F4A7C15u;
  return value ^ (value >> 29);
}

std::uint64_t signature_of(const Entry& event) {
  const std::uint64_t shape =
      event.words | (std::uint64_t{static_cast<std::uint16_t>(event.kind)} << 32) | (std::uint64_t{event.flags} << 48);
  return mixed(mixed(shape) + event.key);
}

std::size_t recall_slot(std::uint64_t value) { return mixed(value) >> 52; }

unsigned tick_shift(std::uint64_t ticks_per_second) {
  unsigned shift = 0;
  // 2^shift ticks are at most 90 ns.
  while (shift < 32 && (std::uint64_t{2} << shift) <= ticks_per_second / 1000 * 90 / 1000000) ++shift;
  return shift;
}

void put_residual(Bytes& column, Bytes& overflow, std::int64_t value, std::int64_t guess) {
  // Unsigned, since ticks that step back far may wrap.
  const std::uint64_t number = zigzag(static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(guess));
  column.push_back(static_cast<std::uint8_t>(std::min<std::uint64_t>(number, 255)));
  if (number >= 255) put_varint(overflow, number - 255);
}

void put_words(Bytes& out, const std::uint64_t* words, std::size_t count) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(words);
  out.insert(out.end(), bytes, bytes + count * 8);
}

}  // namespace

void EventEncoder::add(const EventHeader& event) {
  const auto* payload = reinterpret_cast<const std::uint64_t*>(&event + 1);
  Entry entry;
  entry.words = (event.bytes - static_cast<std::uint32_t>(sizeof event)) / 8;
  entry.kind = event.kind;
  entry.flags = event.flags;
  entry.key = event.key;

  const std::uint64_t index = history_.size();
  if (index == 0) {
    first_sequence_ = std::max<std::uint64_t>(event.sequence, 1);
    last_sequence_ = first_sequence_ - 1;
  }
  // A caller that breaks the order gets its events in the order of adding, not a chunk that no reader takes.
  const std::uint64_t sequence = std::max(event.sequence, last_sequence_ + 1);
  put_varint(columns_[kSequences], sequence - last_sequence_ - 1);
  last_sequence_ = sequence;
  event_bytes_ += event.bytes;

  const Contexts contexts = contexts_of(entry);
  const std::uint64_t reference = find_reference(entry, payload, contexts);
  if (reference != kNoEvent) entry.distance = static_cast<std::uint32_t>(index - reference);
  const unsigned mode = reference == kNoEvent ? kLiteral
                        : reference == next_  ? kFollow
                        : reference == held_  ? kResume
                                              : kJump;
  std::uint64_t* copy = history_.append(entry);
  std::copy(payload, payload + entry.words, copy);
  if (mode == kLiteral) {
    put_literal(entry, copy);
  } else {
    if (mode == kJump) put_varint(columns_[kJumps], entry.distance);
    put_changes(reference, mode, copy);
    if (mode != kFollow) held_ = next_;
    next_ = reference + 1;
  }
  put_timing(event, reference);
  remember(index, contexts);
}

EventEncoder::Contexts EventEncoder::contexts_of(const Entry& event) const {
  Contexts contexts;
  contexts.signature = signature_of(event);
  const std::uint64_t two = mixed(contexts.signature + mixed(signatures_[0]));
  contexts.hash[0] = mixed(two + mixed(signatures_[1] + mixed(signatures_[2])));
  contexts.hash[1] = two;
  contexts.hash[2] = contexts.signature;
  return contexts;
}

bool EventEncoder::usable(const Entry& event, std::uint64_t reference) const {
  return history_.in_window(reference) && history_.entry(reference).alike(event);
}

std::uint64_t EventEncoder::seen_with(const Entry& event, const Contexts& contexts, std::size_t which) const {
  if (last_seen_.empty()) return kNoEvent;
  const std::size_t slots = last_seen_.size() / kContexts;
  const std::uint32_t seen = last_seen_[which * slots + ((contexts.hash[which] >> 24) & (slots - 1))];
  return seen != 0 && usable(event, seen - 1) ? seen - 1 : kNoEvent;
}

std::uint64_t EventEncoder::find_in_track(const Entry& event, std::uint64_t begin) const {
  for (std::uint64_t i = begin; i < begin + kTrackSearch; ++i) {
    if (usable(event, i)) return i;
  }
  return kNoEvent;
}

std::size_t EventEncoder::differences(std::uint64_t reference, const std::uint64_t* payload) const {
  const Entry& entry = history_.entry(reference);
  const std::uint64_t* words = history_.words(entry);
  std::size_t count = 0;
  for (std::size_t i = 0; i < entry.words; ++i) count += words[i] != payload[i];
  return count;
}

std::uint64_t EventEncoder::find_reference(const Entry& event, const std::uint64_t* payload,
                                           const Contexts& contexts) const {
  const std::uint64_t same_run = seen_with(event, contexts, 0);
  if (usable(event, next_)) {
    if (same_run == kNoEvent || same_run == next_) return next_;
    const std::size_t changed = differences(next_, payload);
    if (changed <= 2 + event.words / 8) return next_;
    return differences(same_run, payload) * 2 < changed ? same_run : next_;
  }
  if (same_run != kNoEvent) return same_run;
  if (usable(event, held_)) return held_;
  for (const std::uint64_t track : {next_, held_}) {
    const std::uint64_t later = find_in_track(event, track + 1);
    if (later != kNoEvent) return later;
  }
  const std::uint64_t same_pair = seen_with(event, contexts, 1);
  return same_pair != kNoEvent ? same_pair : seen_with(event, contexts, 2);
}

void EventEncoder::remember(std::uint64_t index, const Contexts& contexts) {
  signatures_[2] = signatures_[1];
  signatures_[1] = signatures_[0];
  signatures_[0] = contexts.signature;
  std::size_t slots = last_seen_.size() / kContexts;
  if (index >= slots && slots < kLargeTable) {
    // What was remembered is lost here; tracks and later events make up for it.
    slots = slots == 0 ? kSmallTable : kLargeTable;
    last_seen_.assign(slots * kContexts, 0);
  }
  for (std::size_t i = 0; i < kContexts; ++i) {
    last_seen_[i * slots + ((contexts.hash[i] >> 24) & (slots - 1))] = static_cast<std::uint32_t>(index + 1);
  }
}

void EventEncoder::put_literal(const Entry& event, const std::uint64_t* payload) {
  columns_[kOps].push_back(kLiteral);
  Bytes& shapes = columns_[kShapes];
  put_varint(shapes, static_cast<std::uint16_t>(event.kind));
  put_varint(shapes, event.flags);
  put_fixed(shapes, event.key);
  put_varint(shapes, event.words);
  put_words(columns_[kLiterals], payload, event.words);
}

void EventEncoder::put_changes(std::uint64_t reference, unsigned mode, const std::uint64_t* payload) {
  const std::uint64_t* words = history_.words(history_.entry(reference));
  const std::uint64_t* older = history_.older(reference);
  if (older == nullptr) older = words;
  const std::size_t count = history_.entry(reference).words;
  const std::size_t gaps_begin = columns_[kGaps].size();
  std::size_t changed = 0, last = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (words[i] == payload[i]) continue;
    put_varint(columns_[kGaps], i - last);
    put_word(words[i], older[i], payload[i]);
    last = i + 1;
    ++changed;
  }
  const std::size_t in_op = std::min<std::size_t>(changed, kCountEscape);
  columns_[kOps].push_back(static_cast<std::uint8_t>(mode | (in_op << 2)));
  if (in_op == kCountEscape) {
    Bytes more;  // stands before the gaps, since the decoder must know the count first
    put_varint(more, changed - kCountEscape);
    columns_[kGaps].insert(columns_[kGaps].begin() + static_cast<std::ptrdiff_t>(gaps_begin), more.begin(), more.end());
  }
}

void EventEncoder::put_word(std::uint64_t reference, std::uint64_t older, std::uint64_t current) {
  const std::uint64_t move = current - reference;
  const std::uint64_t small = zigzag(move);
  const std::uint64_t low_move = zigzag(half_move(low(reference), low(current)));
  const std::uint64_t high_move = zigzag(half_move(high(reference), high(current)));
  const std::uint8_t hint = recall_hint_.empty() ? 0 : recall_hint_[recall_slot(current)];
  WordClass how = kWhole;
  if (current == older) {
    how = kBack;
  } else if (move == reference - older) {
    how = kLinear;
  } else if (move == tables_.last_move()) {
    how = kSameMove;
  } else if (move == tables_.move(reference)) {
    how = kLearntMove;
  } else if (small < 128) {  // NOLINT(bugprone-branch-clone): the order of the cases is what chooses the shortest
    how = kSmall;
    put_varint(columns_[kDeltas], small);
  } else if (low_move == 0 && high_move < 1u << 21) {
    how = kHighSmall;
    put_varint(columns_[kDeltas], high_move);
  } else if (low_move < 128 && high_move < 128) {
    how = kBothSmall;
    put_varint(columns_[kDeltas], low_move);
    put_varint(columns_[kDeltas], high_move);
  } else if (tables_.recent(hint) == current) {
    how = kRecall;
    columns_[kRecalls].push_back(hint);
  } else if (small < std::uint64_t{1} << 42) {
    how = kSmall;
    put_varint(columns_[kDeltas], small);
  } else {
    put_words(columns_[kWords], &current, 1);
  }
  columns_[kClasses].push_back(how);
  if (how == kSmall || how == kWhole) {
    if (recall_hint_.empty()) recall_hint_.assign(kRecallHints, 0);
    recall_hint_[recall_slot(current)] = tables_.next_recent();
  }
  tables_.learn(reference, current, how);
}

void EventEncoder::put_timing(const EventHeader& event, std::uint64_t reference) {
  if (!is_timed(event.kind)) {
    timing_of_.push_back(0);
    return;
  }
  timings_.push_back({event.ticks, event.duration, reference == kNoEvent ? 0 : timing_of_[reference]});
  timing_of_.push_back(static_cast<std::uint32_t>(timings_.size()));
}

void EventEncoder::finish(std::uint64_t ticks_per_second) {
  const unsigned shift = tick_shift(ticks_per_second);
  std::uint64_t last = timings_.empty() ? 0 : timings_[0].ticks >> shift;
  Bytes shapes;
  put_varint(shapes, shift);
  put_varint(shapes, last);
  shapes.insert(shapes.end(), columns_[kShapes].begin(), columns_[kShapes].end());
  columns_[kShapes].swap(shapes);

  std::vector<Clock> clocks(timings_.size());
  for (std::size_t i = 0; i < timings_.size(); ++i) {
    const Timing& timing = timings_[i];
    const std::uint64_t now = timing.ticks >> shift;
    const auto interval = static_cast<std::int64_t>(now - last);
    const auto duration = static_cast<std::int64_t>((timing.duration + ((std::uint64_t{1} << shift) >> 1)) >> shift);
    last = now;
    const bool known = timing.reference != 0;
    const Clock clock = known ? clocks[timing.reference - 1] : Clock{};
    put_residual(columns_[kIntervals], columns_[kOverflow], interval, expected(clock.interval));
    put_residual(columns_[kDurations], columns_[kOverflow], duration, expected(clock.duration));
    clocks[i] = {updated(known, clock.interval, interval), updated(known, clock.duration, duration)};
  }
}

std::size_t EventEncoder::memory() const {
  std::size_t bytes = sizeof *this + history_.memory() + timings_.capacity() * sizeof timings_[0];
  bytes += (timing_of_.capacity() + last_seen_.capacity()) * sizeof(std::uint32_t) + recall_hint_.capacity();
  for (const Bytes& column : columns_) bytes += column.capacity();
  return bytes;
}

void EventEncoder::clear() {
  // A program may have many threads: what a large chunk took goes back, so that memory is what unwritten events need.
  if (memory() > kKeptMemory) {
    *this = EventEncoder();
    return;
  }
  for (Bytes& column : columns_) column.clear();
  history_.clear();
  tables_.clear();
  next_ = held_ = 0;
  event_bytes_ = first_sequence_ = last_sequence_ = 0;
  timings_.clear();
  timing_of_.clear();
  std::fill(std::begin(signatures_), std::end(signatures_), 0);
  std::fill(last_seen_.begin(), last_seen_.end(), 0);
}

}  // namespace grape::trace
