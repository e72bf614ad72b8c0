// The kernels that Grape brings along: a copy, a fill, a hash and a spread. They are one small PTX text, which the
// driver compiles once for each context.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "compressor/refusal/refusal.h"

namespace grape::device {

extern const char kOwnKernels[];  // PTX, null-terminated

// Entries, and what their parameters are; each parameter is 8 bytes.
constexpr char kCopyKernel[] = "grape_copy";  // destination, source, bytes: any alignment; must not overlap
constexpr char kFillKernel[] = "grape_fill";  // destination, value, element bytes (1, 2, 4), width in elements, height,
                                              // pitch in bytes; a row per block in y
constexpr char kHashKernel[] = "grape_hash";  // address of as many HashChunks as there are blocks
// Adds to a SpreadSums how far two memories of numbers are from each other.
constexpr char kSpreadKernel[] = "grape_spread";  // one, other, count of numbers, device::Element, address of the sums
// Threads of a block, of all of them. Copies and fills do with any grid and block; hashes and spreads with blocks that
// are powers of two up to this.
constexpr std::uint32_t kOwnKernelBlock = 256;

// What one block hashes, and copies in passing, in device memory.
struct HashChunk {
  std::uint64_t address = 0, bytes = 0;  // any alignment, any length
  std::uint64_t first_word = 0;          // number of the word at `address` in its range
  std::uint64_t sum = 0;                 // address of the 8 bytes to add to
  std::uint64_t copy = 0;                // 0: no copy
};

// What a spread adds to, in device memory: a Distance (device_spread.h). Zero before the launch.
struct SpreadSums {
  std::uint64_t count = 0;
  float most = 0;  // rounded up
  float squares = 0, all = 0;
};

struct OwnKernels {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction copy = nullptr, fill = nullptr, hash = nullptr, spread = nullptr;
  // For hashes and spreads; one user at a time. Sums first, chunks behind them.
  static constexpr std::uint32_t kSums = 1024, kChunks = kSums + 4096;
  CUdeviceptr sums = 0;
  std::mutex mutex;
  OwnKernels* next = nullptr;
};

// Those of the context that is current on this thread, loaded at the first use; null, and one line in `error`, if the
// driver refuses. They stay until the context goes. Any thread.
OwnKernels* own_kernels(refusal::Refusal& error) noexcept;
// The context is gone, and its modules and memory with it. The object stays, for who may still have it.
void forget_own_kernels(CUcontext context) noexcept;

// Blocks of kOwnKernelBlock threads, of which each has `bytes_per_thread` to do: at least one, at most enough.
std::uint32_t own_kernel_blocks(std::uint64_t bytes, std::uint64_t bytes_per_thread) noexcept;

// "cuGraphCreate: CUDA_ERROR_OUT_OF_MEMORY"
refusal::Refusal driver_error(const char* call, CUresult result);
std::string name_of_error(CUresult result);
// Is it an error? Then `error` says so.
bool failed(CUresult result, const char* call, refusal::Refusal& error);

// While it lives, this thread's calls do not break a stream capture of another thread.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept;
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_ = false;
};

}  // namespace grape::device
