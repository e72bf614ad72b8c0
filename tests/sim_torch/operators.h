// The simulated PyTorch's operators: each computes on the host, or launches a kernel of the simulated driver on the
// current stream. They throw std::exception.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/sim_torch/c10.h"

namespace simtorch {

using c10::Device;
using c10::ScalarType;
using c10::Tensor;
using c10::TensorImpl;
using simcuda::PointwiseOp;
using Sizes = std::vector<std::int64_t>;

constexpr Device kCpu{0, -1}, kCuda{1, 0};
inline bool is_inference(const TensorImpl* tensor) { return (tensor->keys & c10::Keys::kInplaceOrView) == 0; }
inline bool on_cuda(const TensorImpl* tensor) { return tensor->device.type == kCuda.type; }

// How many operators have run in this process: tells a test whether a call ran eagerly.
SIM_EXPORT std::uint64_t operators_run();
SIM_EXPORT void count_operator();

// Switches that operators look at.
struct Switches {
  bool tf32 = false, deterministic = false;
};
SIM_EXPORT Switches& switches();

SIM_EXPORT Sizes contiguous_strides(const Sizes& sizes);
SIM_EXPORT Tensor empty_strided(const Sizes& sizes, const Sizes& strides, ScalarType type, Device device);
SIM_EXPORT Tensor empty(const Sizes& sizes, ScalarType type, Device device);
// Other shape, same memory, a version of its own.
SIM_EXPORT Tensor as_strided(TensorImpl* tensor, const Sizes& sizes, const Sizes& strides, std::int64_t offset);

// out = op(a, b, scalar), broadcast to out's sizes; a and b may be null.
SIM_EXPORT void pointwise(PointwiseOp op, TensorImpl* out, TensorImpl* a, TensorImpl* b, double scalar);
// The same into a new tensor of the broadcast shape and a's type.
SIM_EXPORT Tensor pointwise(PointwiseOp op, TensorImpl* a, TensorImpl* b, double scalar);
SIM_EXPORT Tensor full(const Sizes& sizes, double value, ScalarType type, Device device);
SIM_EXPORT Tensor contiguous(TensorImpl* tensor);  // itself where it is
SIM_EXPORT Tensor convert(TensorImpl* tensor, ScalarType type, Device device);
SIM_EXPORT void copy_into(TensorImpl* to, TensorImpl* from);  // also between devices

SIM_EXPORT Tensor matmul(TensorImpl* a, TensorImpl* b);
SIM_EXPORT Tensor sum(TensorImpl* a);
SIM_EXPORT Tensor uniform(const Sizes& sizes, Device device, std::uint64_t seed, std::uint64_t offset);
// Kernels with a struct by value: with padding that differs each time, with pointers inside.
SIM_EXPORT Tensor affine(TensorImpl* x, double scale, double bias, int steps);
SIM_EXPORT Tensor take(TensorImpl* x, TensorImpl* index);
SIM_EXPORT void jitter_(TensorImpl* x);
SIM_EXPORT void delay(std::uint32_t microseconds);
// A copy by way of a library's workspace. What the library makes in its first call: the workspace (a block of the
// framework's), pinned memory, a stream, and memory of the driver that it gives back.
enum class LibraryMakes { kAllOnce, kWorkspaceEachTime, kPinnedEachTime };
SIM_EXPORT Tensor library_copy(TensorImpl* x, LibraryMakes makes);
// The word of the host's memory that this library (library_word.cc) keeps, in so many bytes; and x plus it.
SIM_EXPORT float* word_of(const char* library, std::size_t bytes);
SIM_EXPORT Tensor plus_word(TensorImpl* x, const char* library, std::size_t bytes);

SIM_EXPORT void read(TensorImpl* tensor, void* bytes);  // contiguous; waits
SIM_EXPORT void write(TensorImpl* tensor, const void* bytes);
SIM_EXPORT double item(TensorImpl* tensor);

// Streams of the driver; none is ever destroyed.
SIM_EXPORT std::uint64_t make_stream();
SIM_EXPORT void wait_stream(std::uint64_t waiter, std::uint64_t waited_for);
SIM_EXPORT void synchronize();

}  // namespace simtorch
