#include "compressor/trace/event_decoder.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace grape::trace {
namespace {

constexpr std::uint32_t kMaxWords = (kMaxEventBytes - sizeof(EventHeader)) / 8;
constexpr unsigned kMaxShift = 32;

}  // namespace

void EventDecoder::start(const ChunkHeader& chunk, std::vector<Bytes> columns) {
  chunk_ = chunk;
  columns_ = std::move(columns);
  for (std::size_t i = 0; i < kColumns; ++i) cursors_[i] = ByteCursor(columns_[i].data(), columns_[i].size());
  history_.clear();
  tables_.clear();
  next_ = held_ = 0;
  event_bytes_ = 0;
  sequence_ = chunk.first_sequence - 1;
  const std::uint64_t shift = cursors_[kShapes].varint();
  if (shift > kMaxShift) cursors_[kShapes].fail();
  shift_ = static_cast<unsigned>(shift & (kMaxShift - 1));
  if (shift == kMaxShift) shift_ = kMaxShift;
  time_ = cursors_[kShapes].varint();
  message_ = "";
}

EventDecoder::Result EventDecoder::damage(const char* message) {
  message_ = message;
  return Result::kDamage;
}

bool EventDecoder::columns_failed() const {
  return std::any_of(std::begin(cursors_), std::end(cursors_), [](const ByteCursor& c) { return c.failed(); });
}

bool EventDecoder::columns_empty() const {
  return std::all_of(std::begin(cursors_), std::end(cursors_), [](const ByteCursor& c) { return c.left() == 0; });
}

EventDecoder::Result EventDecoder::next(EventHeader& header, const std::uint64_t*& words) {
  if (*message_ != 0) return Result::kDamage;
  if (history_.size() == chunk_.events) {
    if (!columns_empty() || columns_failed() || event_bytes_ != chunk_.event_bytes ||
        sequence_ != chunk_.last_sequence) {
      return damage("the chunk holds more than its events");
    }
    return Result::kEnd;
  }
  const unsigned op = cursors_[kOps].byte();
  const std::uint64_t step = cursors_[kSequences].varint();
  if (sequence_ >= chunk_.last_sequence || step >= chunk_.last_sequence - sequence_)
    return damage("sequences of the chunk do not ascend");
  sequence_ += step + 1;

  Entry entry;
  std::uint64_t* payload = nullptr;
  std::uint64_t reference = kNoEvent;
  const bool taken = (op & 3) == kLiteral ? take_literal(entry, payload) : take_changes(op, reference, entry, payload);
  if (!taken || columns_failed()) return damage("an event of the chunk refers to what is not there");

  header.bytes = static_cast<std::uint32_t>(sizeof header + entry.words * 8);
  header.kind = entry.kind;
  header.flags = entry.flags;
  header.key = entry.key;
  header.sequence = sequence_;
  take_timing(header, history_.entry(history_.size() - 1), reference);
  if (columns_failed()) return damage("times of the chunk are cut short");
  event_bytes_ += header.bytes;
  if (event_bytes_ > chunk_.event_bytes) return damage("the chunk holds more than it claims");
  words = payload;
  return Result::kEvent;
}

bool EventDecoder::take_literal(Entry& entry, std::uint64_t*& payload) {
  ByteCursor& shapes = cursors_[kShapes];
  const std::uint64_t kind = shapes.varint();
  const std::uint64_t flags = shapes.varint();
  entry.key = shapes.fixed<std::uint32_t>();
  const std::uint64_t words = shapes.varint();
  if (kind > 0xFFFF || flags > 0xFFFF || words > kMaxWords) return false;
  entry.kind = static_cast<EventKind>(kind);
  entry.flags = static_cast<std::uint16_t>(flags);
  entry.words = static_cast<std::uint32_t>(words);
  if (cursors_[kLiterals].left() < words * 8) return false;
  payload = history_.append(entry);
  cursors_[kLiterals].copy(payload, words * 8);
  return true;
}

bool EventDecoder::take_changes(unsigned op, std::uint64_t& reference, Entry& entry, std::uint64_t*& payload) {
  const unsigned mode = op & 3;
  const std::uint64_t number = history_.size();
  if (mode == kJump) {
    const std::uint64_t distance = cursors_[kJumps].varint();
    if (distance == 0 || distance > number) return false;
    reference = number - distance;
  } else {
    reference = mode == kFollow ? next_ : held_;
  }
  if (!history_.in_window(reference)) return false;
  if (mode != kFollow) held_ = next_;
  next_ = reference + 1;

  const Entry& old = history_.entry(reference);
  entry.kind = old.kind;
  entry.flags = old.flags;
  entry.key = old.key;
  entry.words = old.words;
  entry.distance = static_cast<std::uint32_t>(number - reference);
  payload = history_.append(entry);
  const std::uint64_t* words = history_.words(history_.entry(reference));
  std::copy(words, words + entry.words, payload);
  const std::uint64_t* older = history_.older(reference);
  if (older == nullptr) older = words;

  std::uint64_t count = op >> 2;
  if (count == kCountEscape) count += cursors_[kGaps].varint();
  if (count > entry.words) return false;
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i, ++at) {
    const std::uint64_t gap = cursors_[kGaps].varint();
    if (gap >= entry.words - at) return false;
    at += gap;
    payload[at] = take_word(words[at], older[at]);
    if (at + 1 == entry.words && i + 1 < count) return false;
  }
  return true;
}

std::uint64_t EventDecoder::take_word(std::uint64_t reference, std::uint64_t older) {
  const std::uint8_t how = cursors_[kClasses].byte();
  std::uint64_t current = reference;
  switch (how) {
    case kBack:
      current = older;
      break;
    case kLinear:
      current = reference + (reference - older);
      break;
    case kSameMove:
      current = reference + tables_.last_move();
      break;
    case kLearntMove:
      current = reference + tables_.move(reference);
      break;
    case kSmall:
      current = reference + unzigzag(cursors_[kDeltas].varint());
      break;
    case kHighSmall:
      current = reference + (unzigzag(cursors_[kDeltas].varint()) << 32);
      break;
    case kBothSmall: {
      const auto low_move = static_cast<std::uint32_t>(unzigzag(cursors_[kDeltas].varint()));
      const auto high_move = static_cast<std::uint32_t>(unzigzag(cursors_[kDeltas].varint()));
      current = pack(low(reference) + low_move, high(reference) + high_move);
      break;
    }
    case kRecall:
      current = tables_.recent(cursors_[kRecalls].byte());
      break;
    case kWhole:
      current = cursors_[kWords].fixed<std::uint64_t>();
      break;
    default:
      cursors_[kClasses].fail();
  }
  tables_.learn(reference, current, static_cast<WordClass>(how));
  return current;
}

std::int64_t EventDecoder::take_residual(ColumnNumber column) {
  std::uint64_t number = cursors_[column].byte();
  if (number == 255) number += cursors_[kOverflow].varint();
  return static_cast<std::int64_t>(unzigzag(number));
}

void EventDecoder::take_timing(EventHeader& header, Entry& entry, std::uint64_t reference) {
  header.duration = 0;
  if (is_timed(header.kind)) {
    const bool known = reference != kNoEvent;
    const Clock clock = known ? history_.entry(reference).clock : Clock{};
    // Unsigned, since a hostile number may wrap.
    const auto interval = static_cast<std::int64_t>(static_cast<std::uint64_t>(take_residual(kIntervals)) +
                                                    static_cast<std::uint64_t>(expected(clock.interval)));
    const auto duration = static_cast<std::int64_t>(static_cast<std::uint64_t>(take_residual(kDurations)) +
                                                    static_cast<std::uint64_t>(expected(clock.duration)));
    entry.clock = {updated(known, clock.interval, interval), updated(known, clock.duration, duration)};
    time_ += static_cast<std::uint64_t>(interval);
    constexpr std::int64_t kMax = std::numeric_limits<std::uint32_t>::max();
    const auto quanta = static_cast<std::uint64_t>(std::clamp<std::int64_t>(duration, 0, kMax));
    header.duration = static_cast<std::uint32_t>(std::min<std::uint64_t>(quanta << shift_, kMax));
  }
  header.ticks = time_ << shift_;
}

}  // namespace grape::trace
