// One image as the difference to another (docs/STORE.md, Differences). Core: no CUDA, no Python. Plain functions; any
// thread, each with its own data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compressor/store/image.h"

namespace grape::store {

using Bytes = std::vector<std::uint8_t>;

// How the base is laid under an image of other counts. Of each section `heads` cells are taken over from its begin,
// then come zeros, then as many from its end as still fit.
struct Fitting {
  Counts counts{};
  std::array<std::uint64_t, kSections> heads{};
};

// The fitting that keeps the most: each section's common head.
Fitting fit(const Image& base, const Image& image);

// Cells in which `image` differs from the fitted base.
std::size_t distance(const Image& base, const Fitting& fitting, const Image& image);

// Appends the difference. False: it would let more grow out of few bytes than readers allow; `to` is then in no
// particular state.
bool encode_difference(const Image& base, const Fitting& fitting, const Image& image, Bytes& to);

// The image that `bytes` says, into memory that is used again. The bytes are not trusted: false where they are not a
// difference to `base`, and `counts`, `structure` and `words` are then in no particular state.
bool apply_difference(const Image& base, const Bytes& bytes, Counts& counts, std::vector<std::uint64_t>& structure,
                      std::vector<std::uint64_t>& words);

}  // namespace grape::store
