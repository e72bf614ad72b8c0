#include "tests/sim_torch/c10.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/sim_torch/driver.h"

namespace c10 {

void reportMemoryUsageToProfiler(void*, std::int64_t, std::size_t, std::size_t, Device) {}

// What Grape asks for by name.
struct InferenceMode {
  SIM_EXPORT static bool is_enabled();
};
bool InferenceMode::is_enabled() { return thread_state().inference; }

namespace impl {
struct TorchDispatchModeTLS {
  SIM_EXPORT static bool any_modes_set(bool skip_infra_modes);
};
bool TorchDispatchModeTLS::any_modes_set(bool) { return thread_state().dispatch_modes; }

SIM_EXPORT extern __thread LocalKeys raw_local_dispatch_key_set;
__thread LocalKeys raw_local_dispatch_key_set;
}  // namespace impl

LocalKeys local_keys() {
  const LocalKeys& raw = impl::raw_local_dispatch_key_set;
  return {raw.included ^ kDefaultKeys.included, raw.excluded ^ kDefaultKeys.excluded};
}

void set_local_keys(LocalKeys keys) {
  impl::raw_local_dispatch_key_set = {keys.included ^ kDefaultKeys.included, keys.excluded ^ kDefaultKeys.excluded};
}

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

StorageImpl::StorageImpl(std::size_t size, Device where) : bytes(size), device(where) {
  if (size == 0) return;
  if (where.type == static_cast<std::int8_t>(DeviceType::CUDA)) {
    data = reinterpret_cast<void*>(allocate(size));
  } else {
    data = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (data == nullptr) throw OutOfMemory("no host memory");
  }
}

StorageImpl::StorageImpl(StorageImpl* whose, void* start, std::size_t size)
    : data(start), bytes(size), device(whose->device), owner(whose) {
  owner->references.fetch_add(1);
}

StorageImpl::~StorageImpl() {
  if (owner != nullptr) {
    if (owner->references.fetch_sub(1) == 1) delete owner;
    return;
  }
  if (data == nullptr) return;
  if (device.type == static_cast<std::int8_t>(DeviceType::CUDA)) {
    deallocate(reinterpret_cast<std::uint64_t>(data));
  } else {
    std::free(data);
  }
}

TensorImpl::~TensorImpl() {
  if (storage != nullptr && storage->references.fetch_sub(1) == 1) delete storage;
  Tensor::drop(base);
  Tensor::drop(autograd->grad);
  delete autograd->grad_fn;
  delete autograd;
}

ThreadState& AutogradState::get_tls_state() { return thread_state(); }

SavedHooks& saved_hooks() {
  static thread_local SavedHooks hooks;
  return hooks;
}

std::uint64_t& node_count() {
  static thread_local std::uint64_t count = 0;
  return count;
}

bool TensorImpl::requires_grad() const { return autograd->requires_grad || autograd->grad_fn != nullptr; }

void TensorImpl::set_requires_grad(bool requires) {
  delete std::exchange(autograd->grad_fn, nullptr);
  autograd->requires_grad = requires;
}

void TensorImpl::set_made_by_node() {
  set_requires_grad(false);
  autograd->grad_fn = new Node(node_count()++);
}

bool TensorImpl::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

namespace {

// Blocks as PyTorch's caching allocator has them: multiples of 512 bytes, cut out of segments or alone in one, kept for
// the next of the same size on the same stream.
class Allocator {
 public:
  std::uint64_t take(std::size_t bytes) {
    const simtorch::Driver& driver = simtorch::driver();
    const std::size_t rounded = (bytes + 511) / 512 * 512;
    const std::uint64_t stream = thread_state().stream ^ thread_state().pool << kPoolShift;
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint64_t address = 0;
    std::vector<std::uint64_t>& free_blocks = free_[{stream, rounded}];
    if (!free_blocks.empty()) {
      address = free_blocks.back();
      free_blocks.pop_back();
    } else if (rounded > kMostInSegment) {
      address = segment(driver, rounded);
    } else {
      Segment& open = open_[stream];
      if (open.left < rounded) open = small_segment(driver);
      address = open.next;
      open.next += rounded;
      open.left -= rounded;
    }
    used_[address] = {stream, rounded};
    report(address, static_cast<std::int64_t>(rounded));
    return address;
  }

  void give(std::uint64_t address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = used_.find(address);
    if (found == used_.end()) std::abort();
    report(address, -static_cast<std::int64_t>(found->second.second));
    free_[found->second].push_back(address);
    used_.erase(found);
  }

  std::uint64_t pool_of(std::uint64_t address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return used_.at(address).first >> kPoolShift;
  }

  std::uint64_t in_use() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint64_t bytes = 0;
    for (const auto& [address, key] : used_) bytes += key.second;
    return bytes;
  }

  void empty() {
    const std::lock_guard<std::mutex> lock(mutex_);
    release(simtorch::driver());
  }

 private:
  static constexpr unsigned kPoolShift = 48;  // streams' handles are smaller
  static constexpr std::size_t kMostInSegment = std::size_t{1} << 20;
  struct Segment {
    std::uint64_t next = 0;
    std::size_t left = 0;
  };

  static void report(std::uint64_t address, std::int64_t bytes) {
    reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), bytes, 0, 0, {1, 0});
  }

  std::uint64_t segment(const simtorch::Driver& driver, std::size_t bytes) {
    CUdeviceptr made = 0;
    CUresult result = driver.cuMemAlloc(&made, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      release(driver);
      result = driver.cuMemAlloc(&made, bytes);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory("CUDA out of memory");
    simtorch::check(result, "cuMemAlloc");
    return made;
  }

  // Large, so that few calls meet an allocation from the driver; a small one where there is little memory.
  Segment small_segment(const simtorch::Driver& driver) {
    constexpr std::size_t kBytes = std::size_t{64} << 20, kFewBytes = std::size_t{2} << 20;
    CUdeviceptr made = 0;
    if (driver.cuMemAlloc(&made, kBytes) == CUDA_SUCCESS) return {made, kBytes};
    return {segment(driver, kFewBytes), kFewBytes};
  }

  // Blocks that are alone in their segments go back to the driver.
  void release(const simtorch::Driver& driver) {
    driver.cuCtxSynchronize();
    for (auto& [key, blocks] : free_) {
      if (key.second <= kMostInSegment) continue;
      for (const std::uint64_t address : blocks) driver.cuMemFree(address);
      blocks.clear();
    }
  }

  using Key = std::pair<std::uint64_t, std::size_t>;  // stream and pool, bytes
  std::mutex mutex_;
  std::map<Key, std::vector<std::uint64_t>> free_;
  std::map<std::uint64_t, Key> used_;
  std::map<std::uint64_t, Segment> open_;
};

// Never destroyed: tensors may live until the very end.
Allocator& allocator() {
  static auto* made = new Allocator;
  return *made;
}

}  // namespace

std::uint64_t allocate(std::size_t bytes) { return allocator().take(bytes); }
void deallocate(std::uint64_t address) noexcept { allocator().give(address); }
void empty_cache() noexcept { allocator().empty(); }
std::uint64_t allocated() noexcept { return allocator().in_use(); }
std::uint64_t pool_of(std::uint64_t address) noexcept { return allocator().pool_of(address); }

}  // namespace c10
