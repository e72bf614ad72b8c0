#include "shim/replay/shadow.h"

#include <utility>

#include "shim/interpose/real_driver.h"

namespace grape::replay {
namespace {

namespace real = interpose::real;

constexpr std::uint64_t kAlignment = 256;  // of the copies: whole words, and the driver copies fast

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool failed(CUresult result, const char* what, std::string& error) {
  if (result == CUDA_SUCCESS) return false;
  error = std::string(what) + " failed with error " + std::to_string(static_cast<int>(result));
  return true;
}

}  // namespace

Shadow::~Shadow() { release(); }

void Shadow::release() noexcept {
  auto* free_memory = real::get_cuMemFree_v2();
  for (std::uint64_t* copy : {&before_copy_, &after_copy_}) {
    if (*copy != 0 && free_memory != nullptr) free_memory(*copy);
    *copy = 0;
  }
}

bool Shadow::allocate(std::uint64_t bytes, std::uint64_t& address, std::string& error) noexcept {
  auto* allocate_memory = real::get_cuMemAlloc_v2();
  auto* memory_info = real::get_cuMemGetInfo_v2();
  std::size_t free_bytes = 0, total = 0;
  if (allocate_memory == nullptr || memory_info == nullptr ||
      failed(memory_info(&free_bytes, &total), "cuMemGetInfo", error)) {
    return false;
  }
  // The application's own next allocation must not suffer: half of what is free stays free.
  if (bytes > kMostBytes || bytes * 2 > free_bytes) {
    error = "not enough free device memory for copies of " + std::to_string(bytes >> 20) + " MiB";
    return false;
  }
  CUdeviceptr made = 0;
  if (failed(allocate_memory(&made, bytes), "cuMemAlloc", error)) return false;
  address = made;
  return true;
}

bool Shadow::copy_all(CUstream stream, std::uint64_t copy, bool restore, std::string& error) noexcept {
  auto* copy_memory = real::get_cuMemcpyDtoDAsync_v2();
  if (copy_memory == nullptr) {
    error = "the driver has no cuMemcpyDtoDAsync";
    return false;
  }
  for (const Range& range : watched_) {
    const CUresult result = restore ? copy_memory(range.address, copy, range.bytes, stream)
                                    : copy_memory(copy, range.address, range.bytes, stream);
    if (failed(result, "cuMemcpyDtoDAsync", error)) return false;
    copy += aligned(range.bytes);
  }
  return true;
}

bool Shadow::before(CUstream stream, std::vector<Range> watched, std::string& error) noexcept {
  watched_ = std::move(watched);
  DeviceHash* hash = DeviceHash::of_current_context(error);
  if (hash == nullptr) return false;
  std::uint64_t bytes = kAlignment;
  for (const Range& range : watched_) bytes += aligned(range.bytes);
  return allocate(bytes, before_copy_, error) && allocate(bytes, after_copy_, error) &&
         copy_all(stream, before_copy_, false, error) &&
         !failed(hash->hash(stream, watched_, before_hashes_), "hashing", error);
}

bool Shadow::after(CUstream stream, std::vector<Range> outputs, std::string& error) noexcept {
  outputs_ = std::move(outputs);
  DeviceHash* hash = DeviceHash::of_current_context(error);
  return hash != nullptr && copy_all(stream, after_copy_, false, error) &&
         !failed(hash->hash(stream, watched_, after_hashes_), "hashing", error) &&
         !failed(hash->hash(stream, outputs_, output_hashes_), "hashing", error);
}

bool Shadow::compare(CUstream stream, const std::vector<CUstream>& others, Steps& steps,
                     const std::vector<Range>& outputs, std::string& difference, std::string& error) noexcept {
  DeviceHash* hash = DeviceHash::of_current_context(error);
  if (hash == nullptr || !copy_all(stream, before_copy_, true, error)) return false;
  const Steps::Ran ran = steps.run(stream, others);
  std::vector<std::uint64_t> watched_hashes, hashes;
  CUresult hashed = CUDA_SUCCESS;
  if (ran == Steps::Ran::kDone) {
    hashed = hash->hash(stream, watched_, watched_hashes);
    if (hashed == CUDA_SUCCESS) hashed = hash->hash(stream, outputs, hashes);
  }
  // In every case: what eager left is what the program sees.
  if (!copy_all(stream, after_copy_, true, error)) return false;
  if (ran == Steps::Ran::kFailed) error = "launching the graph failed";
  if (ran == Steps::Ran::kFailed || failed(hashed, "hashing", error)) return false;
  difference = ran == Steps::Ran::kOtherValue ? "a value that the host reads differs" : "";
  for (std::size_t i = 0; i < hashes.size() && difference.empty(); ++i) {
    if (hashes[i] != output_hashes_[i]) difference = "output " + std::to_string(i) + " differs from eager's";
  }
  for (std::size_t i = 0; i < watched_hashes.size() && difference.empty(); ++i) {
    if (watched_hashes[i] != after_hashes_[i]) {
      difference = "memory alive before the call (block " + std::to_string(i) + ") differs from what eager left";
    }
  }
  return true;
}

}  // namespace grape::replay
