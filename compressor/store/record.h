// A stored program's record, and a cache of decoded bases.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <tuple>
#include <unordered_map>

#include "compressor/store/codec.h"
#include "compressor/store/image.h"

namespace grape::store {

constexpr std::uint8_t kMaxDepth = 2;  // differences between a program and what is stored whole

// 128 bits of XXH3: equal digests are equal content.
struct Digest {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Digest& other) const { return low == other.low && high == other.high; }
  bool operator!=(const Digest& other) const { return !(*this == other); }
  bool operator<(const Digest& other) const { return std::tie(low, high) < std::tie(other.low, other.high); }
};

struct DigestHash {
  std::size_t operator()(const Digest& digest) const { return digest.low; }
};

// Of an image's content: equal ones are equal programs.
Digest content_key(const Counts& counts, const std::vector<std::uint64_t>& structure,
                   const std::vector<std::uint64_t>& words);

// Programs of one shape run the same functions, with as many words, in the same order: a family.
std::uint64_t shape_of(const Image& image);

// The smallest of so many hashes of what a program runs: the more that two programs have in common, the more of these
// agree, wherever it stands.
using Sketch = std::array<std::uint64_t, 16>;
Sketch sketch_of(const Image& image);
std::size_t agreement(const Sketch& a, const Sketch& b);

// An image or a difference, as it is stored.
struct Payload {
  Bytes bytes;
  std::size_t raw_size = 0;
  bool compressed = false;
  std::shared_ptr<const Dictionary> dictionary;  // null: none
};

struct Record {
  std::uint64_t number = 0;  // process-wide
  std::uint64_t shape = 0;
  Digest content;
  std::shared_ptr<Record> base;            // null: stored whole
  std::uint64_t image_bytes = 0;           // of its cells
  std::uint8_t depth = 0;                  // differences down to what is whole
  bool is_base = false;                    // new programs may become differences to it
  std::shared_ptr<const Payload> payload;  // replaced when it is compressed: under the store's lock

  const Record& root() const;
};

// Whether so many bytes may come out of so few, for whoever reads them (docs/STORE.md, Limits).
constexpr bool ratio_allowed(std::uint64_t raw, std::uint64_t stored) { return raw <= 65536 + 4096 * stored; }

// The number of a new record.
std::uint64_t next_number();

// An image as bytes, and back. The bytes are not trusted.
void put_image(const Image& image, Bytes& to);
bool take_image(const Bytes& from, Image& image);

// Decoded bases by record number; the least recently used ones go when they are over the budget. Not thread-safe.
class HotImages {
 public:
  explicit HotImages(std::size_t budget) : budget_(budget) {}
  std::shared_ptr<const Image> find(std::uint64_t number);  // null: not there
  void add(std::uint64_t number, std::shared_ptr<const Image> image);
  void remove(std::uint64_t number);
  std::size_t bytes() const { return bytes_; }

 private:
  struct Hot {
    std::uint64_t number = 0;
    std::shared_ptr<const Image> image;
  };
  std::size_t budget_, bytes_ = 0;
  std::list<Hot> used_;  // the last used first
  std::unordered_map<std::uint64_t, std::list<Hot>::iterator> place_;
};

}  // namespace grape::store
