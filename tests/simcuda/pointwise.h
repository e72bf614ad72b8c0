// What the kernel `pointwise` computes, element by element. The simulated PyTorch (tests/programs) fills its
// parameters, and computes the same on the host for tensors of the CPU.
#pragma once

#include <cstdint>
#include <cstring>

namespace simcuda {

enum class PointwiseOp : std::int32_t {
  kCopy,
  kFill,            // scalar
  kAdd,             // a + scalar b
  kAddScalar,       // a + scalar
  kMultiply,        // a b
  kMultiplyScalar,  // scalar a
  kRelu,
  kGreater,  // a > scalar
  kDropout,  // b > scalar ? a / (1 - scalar) : 0
  kRound,    // a with as much precision as bfloat16 has
};

// c10::ScalarType. Shorts, complex numbers and bfloat16 have a size; nothing is computed in them.
enum class PointwiseType : std::int32_t {
  kByte = 0,
  kShort = 2,
  kInt = 3,
  kLong = 4,
  kFloat = 6,
  kDouble = 7,
  kComplexFloat = 9,
  kBool = 11,
  kBFloat16 = 15,
};

constexpr std::uint64_t pointwise_item_bytes(PointwiseType type) {
  switch (type) {
    case PointwiseType::kByte:
    case PointwiseType::kBool:
      return 1;
    case PointwiseType::kShort:
    case PointwiseType::kBFloat16:
      return 2;
    case PointwiseType::kInt:
    case PointwiseType::kFloat:
      return 4;
    case PointwiseType::kLong:
    case PointwiseType::kDouble:
    case PointwiseType::kComplexFloat:
      return 8;
  }
  return 0;
}

constexpr int kPointwiseDimensions = 4;

// By value. Operand 0 is the output; an operand that is not used has no address. Strides in elements, at least 0.
struct PointwiseParams {
  std::uint64_t address[3];
  std::int64_t sizes[kPointwiseDimensions];
  std::int64_t strides[3][kPointwiseDimensions];
  double scalar;
  PointwiseType type[3];
  PointwiseOp op;
};
static_assert(sizeof(PointwiseParams) == 176, "no holes");

// Bytes from an operand's address to behind its last element; 0: no elements.
inline std::uint64_t pointwise_span(const PointwiseParams& p, int operand) {
  std::int64_t last = 0;
  for (int i = 0; i < kPointwiseDimensions; ++i) {
    if (p.sizes[i] <= 0) return 0;
    last += (p.sizes[i] - 1) * p.strides[operand][i];
  }
  return (static_cast<std::uint64_t>(last) + 1) * pointwise_item_bytes(p.type[operand]);
}

inline double pointwise_load(const unsigned char* data, PointwiseType type, std::int64_t index) {
  const auto read = [&](auto value) {
    std::memcpy(&value, data + static_cast<std::uint64_t>(index) * sizeof value, sizeof value);
    return static_cast<double>(value);
  };
  switch (type) {
    case PointwiseType::kInt:
      return read(std::int32_t{});
    case PointwiseType::kLong:
      return read(std::int64_t{});
    case PointwiseType::kFloat:
      return read(float{});
    case PointwiseType::kDouble:
      return read(double{});
    default:
      return read(std::uint8_t{});
  }
}

inline void pointwise_store(unsigned char* data, PointwiseType type, std::int64_t index, double value) {
  const auto write = [&](auto typed) {
    std::memcpy(data + static_cast<std::uint64_t>(index) * sizeof typed, &typed, sizeof typed);
  };
  switch (type) {
    case PointwiseType::kInt:
      return write(static_cast<std::int32_t>(value));
    case PointwiseType::kLong:
      return write(static_cast<std::int64_t>(value));
    case PointwiseType::kFloat:
      return write(static_cast<float>(value));
    case PointwiseType::kDouble:
      return write(value);
    case PointwiseType::kBool:
      return write(static_cast<std::uint8_t>(value != 0));
    default:
      return write(static_cast<std::uint8_t>(value));
  }
}

inline double pointwise_compute(PointwiseOp op, double a, double b, double scalar) {
  switch (op) {
    case PointwiseOp::kCopy:
      return a;
    case PointwiseOp::kFill:
      return scalar;
    case PointwiseOp::kAdd:
      return a + scalar * b;
    case PointwiseOp::kAddScalar:
      return a + scalar;
    case PointwiseOp::kMultiply:
      return a * b;
    case PointwiseOp::kMultiplyScalar:
      return scalar * a;
    case PointwiseOp::kRelu:
      return a > 0 ? a : 0;
    case PointwiseOp::kGreater:
      return a > scalar ? 1 : 0;
    case PointwiseOp::kDropout:
      return b > scalar ? a / (1 - scalar) : 0;
    case PointwiseOp::kRound: {
      auto single = static_cast<float>(a);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &single, sizeof bits);
      bits &= 0xFFFF0000U;
      std::memcpy(&single, &bits, sizeof single);
      return static_cast<double>(single);
    }
  }
  return 0;
}

// `operands`: where the host sees them; null for one that is not used.
inline void pointwise(const PointwiseParams& p, unsigned char* const (&operands)[3]) {
  const std::int64_t* n = p.sizes;
  const auto index = [&p](int operand, std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) {
    const std::int64_t* s = p.strides[operand];
    return i * s[0] + j * s[1] + k * s[2] + l * s[3];
  };
  const auto load = [&](int operand, std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) {
    return operands[operand] == nullptr
               ? 0
               : pointwise_load(operands[operand], p.type[operand], index(operand, i, j, k, l));
  };
  for (std::int64_t i = 0; i < n[0]; ++i) {
    for (std::int64_t j = 0; j < n[1]; ++j) {
      for (std::int64_t k = 0; k < n[2]; ++k) {
        for (std::int64_t l = 0; l < n[3]; ++l) {
          const double value = pointwise_compute(p.op, load(1, i, j, k, l), load(2, i, j, k, l), p.scalar);
          pointwise_store(operands[0], p.type[0], index(0, i, j, k, l), value);
        }
      }
    }
  }
}

}  // namespace simcuda
