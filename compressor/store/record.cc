#include "compressor/store/record.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "compressor/trace/byte_stream.h"

namespace grape::store {
namespace {

// What a node runs, without what differs between relatives: kind, function by name and layout, number of words.
std::uint64_t operation_of(const Image& image, std::uint64_t node) {
  const std::uint64_t* row = image.structure.data() + node * kNodeCells;
  const std::uint64_t functions_at = image.counts[kNodes] * kNodeCells;
  const std::uint64_t function = row[0] >> 32;
  const bool known = (row[0] & 0xFFu) == 0 && function < image.counts[kFunctions];
  const std::uint64_t parts[] = {row[0] & 0xFFFFFFu, known ? image.structure[functions_at + function * 2 + 1] : 0,
                                 row[6] >> 32};
  return XXH3_64bits(parts, sizeof parts);
}

std::uint64_t sizes_of(const Counts& counts, std::uint64_t& structure) {
  return structure_cells(counts, structure) ? structure + counts[kWords] : ~std::uint64_t{0};
}

}  // namespace

Digest content_key(const Counts& counts, const std::vector<std::uint64_t>& structure,
                   const std::vector<std::uint64_t>& words) {
  const XXH128_hash_t parts[] = {XXH3_128bits(counts.data(), sizeof counts),
                                 XXH3_128bits(structure.data(), structure.size() * sizeof structure[0]),
                                 XXH3_128bits(words.data(), words.size() * sizeof words[0])};
  const XXH128_hash_t whole = XXH3_128bits(parts, sizeof parts);
  return {whole.low64, whole.high64};
}

std::uint64_t shape_of(const Image& image) {
  std::uint64_t shape = image.counts[kNodes];
  for (std::uint64_t node = 0; node < image.counts[kNodes]; ++node) {
    shape = (shape ^ operation_of(image, node)) * 0x9E3779B97F4A7C15u;
    shape ^= shape >> 32;
  }
  return shape;
}

Sketch sketch_of(const Image& image) {
  Sketch sketch;
  sketch.fill(~std::uint64_t{0});
  for (std::uint64_t node = 0; node < image.counts[kNodes]; ++node) {
    const std::uint64_t operation = operation_of(image, node);
    for (std::size_t i = 0; i < sketch.size(); ++i) {
      sketch[i] = std::min(sketch[i], XXH3_64bits_withSeed(&operation, sizeof operation, i));
    }
  }
  return sketch;
}

std::size_t agreement(const Sketch& a, const Sketch& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 1 : 0;
  return count;
}

const Record& Record::root() const { return base == nullptr ? *this : base->root(); }

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void put_image(const Image& image, Bytes& to) {
  for (const std::uint64_t count : image.counts) trace::put_varint(to, count);
  const std::size_t at = to.size(), structure = image.structure.size() * 8, words = image.words.size() * 8;
  to.resize(at + structure + words);
  if (structure > 0) std::memcpy(to.data() + at, image.structure.data(), structure);
  if (words > 0) std::memcpy(to.data() + at + structure, image.words.data(), words);
}

bool take_image(const Bytes& from, Image& image) {
  trace::ByteCursor cursor(from.data(), from.size());
  for (std::uint64_t& count : image.counts) count = cursor.varint();
  std::uint64_t structure = 0;
  const std::uint64_t cells = sizes_of(image.counts, structure);
  if (cursor.failed() || cursor.left() % 8 != 0 || cursor.left() / 8 != cells) return false;
  image.structure.resize(structure);
  image.words.resize(image.counts[kWords]);
  cursor.copy(image.structure.data(), structure * 8);
  cursor.copy(image.words.data(), image.words.size() * 8);
  return !cursor.failed();
}

std::shared_ptr<const Image> HotImages::find(std::uint64_t number) {
  const auto found = place_.find(number);
  if (found == place_.end()) return nullptr;
  used_.splice(used_.begin(), used_, found->second);
  return found->second->image;
}

void HotImages::add(std::uint64_t number, std::shared_ptr<const Image> image) {
  const std::size_t bytes = image->bytes();
  if (bytes > budget_ || place_.count(number) != 0) return;
  while (bytes_ + bytes > budget_) remove(used_.back().number);
  used_.push_front({number, std::move(image)});
  place_.emplace(number, used_.begin());
  bytes_ += bytes;
}

void HotImages::remove(std::uint64_t number) {
  const auto found = place_.find(number);
  if (found == place_.end()) return;
  bytes_ -= found->second->image->bytes();
  used_.erase(found->second);
  place_.erase(found);
}

}  // namespace grape::store
