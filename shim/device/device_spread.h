// How far two runs of work that differs from itself are from each other: numbers in device memory, compared there.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "compressor/refusal/refusal.h"

namespace grape::device {

// What memory holds. kOther: no floating-point numbers, and never compared.
enum class Element : std::uint8_t { kFloat, kDouble, kHalf, kBfloat16, kOther };

// 0 for kOther.
constexpr std::uint64_t bytes_of(Element element) noexcept {
  constexpr std::uint64_t kBytes[] = {4, 8, 2, 2, 0};
  return kBytes[static_cast<std::size_t>(element)];
}

// Of the differences between `count` pairs of numbers. Two NaN are equal; a NaN and a number are infinitely far apart.
struct Distance {
  std::uint64_t count = 0;  // pairs that differ
  double most = 0;          // the greatest difference
  double squares = 0;       // sum of their squares, rounded to float
  double all = 0;           // sum of the squares of the first memory's numbers, rounded to float
};

// Two memories of `bytes`, which hold whole elements at their natural alignment.
struct Pair {
  Element element = Element::kOther;
  std::uint64_t one = 0, other = 0;  // addresses
  std::uint64_t bytes = 0;
};

// The distance of each pair, in their order. Enqueues on `stream` and waits, once for some hundred pairs. The context
// is current, and `stream` not under capture. False: `error` is one line, and `out` empty. Any thread.
bool measure(CUstream stream, const std::vector<Pair>& pairs, std::vector<Distance>& out,
             refusal::Refusal& error) noexcept;

}  // namespace grape::device
