#include "compressor/store/difference.h"

#include <algorithm>
#include <cstring>

#include "compressor/trace/byte_stream.h"
#include "compressor/trace/event.h"

namespace grape::store {
namespace {

using trace::ByteCursor;
using trace::half_move;
using trace::high;
using trace::low;
using trace::pack;
using trace::put_fixed;
using trace::put_varint;
using trace::unzigzag;
using trace::zigzag;

enum CellClass : std::uint8_t { kSameMove, kLearntMove, kRecall, kSmall, kHighSmall, kBothSmall, kWhole };

// Predictions of changed cells, learnt along the way by both sides alike.
class Predictor {
 public:
  std::uint64_t last_move() const { return last_move_; }
  std::uint64_t learnt(std::uint64_t from) const { return moves_[slot(from)]; }
  std::uint64_t recent(std::uint8_t age) const { return recent_[static_cast<std::uint8_t>(next_ - 1 - age)]; }

  void learn(std::uint64_t from, std::uint64_t to, std::uint8_t how) {
    last_move_ = to - from;
    moves_[slot(from)] = last_move_;
    if (how >= kSmall) recent_[next_++] = to;
  }

 private:
  static std::size_t slot(std::uint64_t from) { return (from * 0x9E3779B97F4A7C15u) >> 53; }
  std::uint64_t moves_[2048] = {};
  std::uint64_t recent_[256] = {};
  std::uint64_t last_move_ = 0;
  std::uint8_t next_ = 0;
};

// Where the encoder finds a value among the recent ones.
class RecentIndex {
 public:
  void add(std::uint64_t value) { places_[slot(value)] = ++count_; }
  // The age at which it may lie; 256 or more: nowhere.
  std::uint64_t age(std::uint64_t value) const {
    const std::uint64_t place = places_[slot(value)];
    return place == 0 ? 256 : count_ - place;
  }

 private:
  static std::size_t slot(std::uint64_t value) { return (value * 0x9E3779B97F4A7C15u) >> 54; }
  std::uint64_t places_[1024] = {};
  std::uint64_t count_ = 0;
};

struct Streams {
  Bytes gaps, classes, deltas, ages, wholes;
};

class CellEncoder {
 public:
  explicit CellEncoder(Streams& to) : to_(to) {}

  // Both rows have `count` cells.
  void row(const std::uint64_t* from, const std::uint64_t* cells, std::size_t count) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < count; ++i) {
      // Most cells are the same: blocks of them are passed over at the speed of memory.
      while (i + 32 <= count && std::memcmp(from + i, cells + i, 256) == 0) i += 32;
      if (i == count || from[i] == cells[i]) continue;
      put_varint(to_.gaps, gap_ + (i - last));
      gap_ = 0;
      last = i + 1;
      cell(from[i], cells[i]);
    }
    gap_ += count - last;
  }

 private:
  void cell(std::uint64_t from, std::uint64_t to) {
    const CellClass how = choose(from, to);
    to_.classes.push_back(how);
    switch (how) {
      case kSameMove:
      case kLearntMove:
        break;
      case kRecall:
        to_.ages.push_back(static_cast<std::uint8_t>(index_.age(to)));
        break;
      case kSmall:
        put_varint(to_.deltas, zigzag(to - from));
        break;
      case kHighSmall:
        put_varint(to_.deltas, zigzag(half_move(high(from), high(to))));
        break;
      case kBothSmall:
        put_varint(to_.deltas, zigzag(half_move(low(from), low(to))));
        put_varint(to_.deltas, zigzag(half_move(high(from), high(to))));
        break;
      case kWhole:
        put_fixed(to_.wholes, to);
        break;
    }
    if (how >= kSmall) index_.add(to);
    predictor_.learn(from, to, how);
  }

  CellClass choose(std::uint64_t from, std::uint64_t to) const {
    if (from + predictor_.learnt(from) == to) return kLearntMove;
    if (from + predictor_.last_move() == to) return kSameMove;
    const std::uint64_t age = index_.age(to);
    if (age < 256 && predictor_.recent(static_cast<std::uint8_t>(age)) == to) return kRecall;
    if (low(from) == low(to)) return kHighSmall;
    constexpr std::uint64_t kNear = 1u << 20;
    if (zigzag(to - from) < kNear) return kSmall;
    const bool halves =
        zigzag(half_move(low(from), low(to))) < kNear && zigzag(half_move(high(from), high(to))) < kNear;
    if (halves) return kBothSmall;
    return zigzag(to - from) >> 49 == 0 ? kSmall : kWhole;
  }

  Streams& to_;
  std::uint64_t gap_ = 0;
  Predictor predictor_;
  RecentIndex index_;
};

// A base's section under an image's: copied to `to`, which has `cells` zeros.
void splice(const std::uint64_t* base, std::uint64_t base_cells, std::uint64_t head, std::uint64_t* to,
            std::uint64_t cells) {
  const std::uint64_t tail = std::min(base_cells, cells) - head;
  std::copy(base, base + head, to);
  std::copy(base + base_cells - tail, base + base_cells, to + cells - tail);
}

// The base as it is laid under an image: into memory that is used again. Counts are within the limits.
void lay(const Image& base, const Fitting& fitting, std::vector<std::uint64_t>& structure,
         std::vector<std::uint64_t>& words) {
  if (fitting.counts == base.counts) {
    structure = base.structure;
    words = base.words;
    return;
  }
  std::uint64_t cells = 0;
  structure_cells(fitting.counts, cells);
  structure.assign(cells, 0);
  words.assign(fitting.counts[kWords], 0);
  const std::uint64_t* from = base.structure.data();
  std::uint64_t* to = structure.data();
  for (std::size_t i = 0; i < kWords; ++i) {
    const auto section = static_cast<Section>(i);
    const std::uint64_t old_cells = cells_of(section, base.counts[i]), new_cells = cells_of(section, fitting.counts[i]);
    splice(from, old_cells, fitting.heads[i], to, new_cells);
    from += old_cells;
    to += new_cells;
  }
  splice(base.words.data(), base.words.size(), fitting.heads[kWords], words.data(), words.size());
}

std::size_t unequal(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return count;
}

// Nobody can make a reader allocate much with few bytes: an image has at most twice its base's cells, and 64 for each
// byte of the difference.
bool may_grow(const Image& base, std::uint64_t cells, std::size_t difference_bytes) {
  return cells <= 2 * std::uint64_t{base.cells()} + 64 * std::uint64_t{difference_bytes};
}

bool take_fitting(ByteCursor& cursor, const Image& base, Fitting& fitting) {
  fitting.counts = base.counts;
  const std::uint64_t changed = cursor.varint();
  if (changed > kSections) return false;
  for (std::uint64_t i = 0; i < changed; ++i) {
    const std::uint64_t section = cursor.varint(), count = cursor.varint(), head = cursor.varint();
    if (section >= kSections || count > kMaxElements) return false;
    const auto which = static_cast<Section>(section);
    if (head > std::min(cells_of(which, count), cells_of(which, base.counts[section]))) return false;
    fitting.counts[section] = count;
    fitting.heads[section] = head;
  }
  return !cursor.failed();
}

// Takes cells of the streams one after the other.
class CellDecoder {
 public:
  bool open(ByteCursor& cursor) {
    left_ = cursor.varint();
    std::uint64_t sizes[4] = {};  // gaps, deltas, ages, wholes; classes have one byte a cell
    for (std::uint64_t& size : sizes) size = cursor.varint();
    if (left_ > kMaxCells) return false;
    const bool good = part(cursor, sizes[0], gaps_) && part(cursor, left_, classes_) &&
                      part(cursor, sizes[1], deltas_) && part(cursor, sizes[2], ages_) &&
                      part(cursor, sizes[3], wholes_);
    return good && !cursor.failed() && cursor.left() == 0;
  }

  // Changes the cells at [*place, end) of the whole image, of which `row` is the part that begins at `begin`.
  bool row(std::uint64_t* row, std::uint64_t begin, std::uint64_t end) {
    while (left_ > 0) {
      if (!pending_) {
        const std::uint64_t gap = gaps_.varint();
        if (gap > kMaxCells) return false;
        place_ += gap;
        pending_ = true;
      }
      if (place_ >= end) return true;
      if (!cell(row[place_ - begin])) return false;
      ++place_;
      pending_ = false;
      --left_;
    }
    return true;
  }

  bool done() const {
    return left_ == 0 && gaps_.left() + classes_.left() + deltas_.left() + ages_.left() + wholes_.left() == 0 &&
           !gaps_.failed() && !deltas_.failed() && !ages_.failed() && !wholes_.failed();
  }

 private:
  static bool part(ByteCursor& cursor, std::uint64_t size, ByteCursor& to) {
    const std::uint8_t* data = size <= cursor.left() ? cursor.take(size) : nullptr;
    if (data != nullptr) to = ByteCursor(data, size);
    return data != nullptr;
  }

  bool cell(std::uint64_t& cell) {
    const std::uint64_t from = cell;
    const std::uint8_t how = classes_.byte();
    switch (how) {
      case kSameMove:
        cell = from + predictor_.last_move();
        break;
      case kLearntMove:
        cell = from + predictor_.learnt(from);
        break;
      case kRecall:
        cell = predictor_.recent(ages_.byte());
        break;
      case kSmall:
        cell = from + unzigzag(deltas_.varint());
        break;
      case kHighSmall:
        cell = from + (unzigzag(deltas_.varint()) << 32);
        break;
      case kBothSmall: {
        const auto lower = static_cast<std::uint32_t>(unzigzag(deltas_.varint()));
        const auto upper = static_cast<std::uint32_t>(unzigzag(deltas_.varint()));
        cell = pack(low(from) + lower, high(from) + upper);
        break;
      }
      case kWhole:
        cell = wholes_.fixed<std::uint64_t>();
        break;
      default:
        return false;
    }
    predictor_.learn(from, cell, how);
    return true;
  }

  ByteCursor gaps_, classes_, deltas_, ages_, wholes_;
  std::uint64_t left_ = 0, place_ = 0;
  bool pending_ = false;
  Predictor predictor_;
};

}  // namespace

Fitting fit(const Image& base, const Image& image) {
  Fitting fitting;
  fitting.counts = image.counts;
  if (image.counts == base.counts) return fitting;
  std::uint64_t from = 0, to = 0;
  for (std::size_t i = 0; i < kSections; ++i) {
    const auto section = static_cast<Section>(i);
    const std::uint64_t old_cells = cells_of(section, base.counts[i]), new_cells = cells_of(section, image.counts[i]);
    const std::uint64_t* a = i == kWords ? base.words.data() : base.structure.data() + from;
    const std::uint64_t* b = i == kWords ? image.words.data() : image.structure.data() + to;
    const std::uint64_t least = std::min(old_cells, new_cells);
    if (base.counts[i] != image.counts[i]) {
      fitting.heads[i] = static_cast<std::uint64_t>(std::mismatch(a, a + least, b).first - a);
    }
    from += old_cells;
    to += new_cells;
  }
  return fitting;
}

std::size_t distance(const Image& base, const Fitting& fitting, const Image& image) {
  if (base.counts == image.counts) return unequal(base.structure, image.structure) + unequal(base.words, image.words);
  std::vector<std::uint64_t> structure, words;
  lay(base, fitting, structure, words);
  return unequal(structure, image.structure) + unequal(words, image.words);
}

bool encode_difference(const Image& base, const Fitting& fitting, const Image& image, Bytes& to) {
  Bytes sections;
  std::uint64_t changed = 0;
  for (std::size_t i = 0; i < kSections; ++i) {
    if (base.counts[i] == image.counts[i]) continue;
    ++changed;
    put_varint(sections, i);
    put_varint(sections, image.counts[i]);
    put_varint(sections, fitting.heads[i]);
  }
  Streams streams;
  CellEncoder encoder(streams);
  if (changed == 0) {
    encoder.row(base.structure.data(), image.structure.data(), image.structure.size());
    encoder.row(base.words.data(), image.words.data(), image.words.size());
  } else {
    std::vector<std::uint64_t> structure, words;
    lay(base, fitting, structure, words);
    encoder.row(structure.data(), image.structure.data(), image.structure.size());
    encoder.row(words.data(), image.words.data(), image.words.size());
  }
  put_varint(to, changed);
  to.insert(to.end(), sections.begin(), sections.end());
  put_varint(to, streams.classes.size());
  for (const Bytes* part : {&streams.gaps, &streams.deltas, &streams.ages, &streams.wholes}) {
    put_varint(to, part->size());
  }
  for (const Bytes* part : {&streams.gaps, &streams.classes, &streams.deltas, &streams.ages, &streams.wholes}) {
    to.insert(to.end(), part->begin(), part->end());
  }
  return may_grow(base, image.cells(), to.size());
}

bool apply_difference(const Image& base, const Bytes& bytes, Counts& counts, std::vector<std::uint64_t>& structure,
                      std::vector<std::uint64_t>& words) {
  ByteCursor cursor(bytes.data(), bytes.size());
  Fitting fitting;
  std::uint64_t cells = 0;
  CellDecoder decoder;
  if (!take_fitting(cursor, base, fitting) || !structure_cells(fitting.counts, cells) || !decoder.open(cursor) ||
      !may_grow(base, cells + fitting.counts[kWords], bytes.size())) {
    return false;
  }
  counts = fitting.counts;
  lay(base, fitting, structure, words);
  return decoder.row(structure.data(), 0, cells) && decoder.row(words.data(), cells, cells + words.size()) &&
         decoder.done();
}

}  // namespace grape::store
