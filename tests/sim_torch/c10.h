// The simulated PyTorch's core (libc10.so): tensors laid out as far as Grape reads them, the thread's state, and the
// caching allocator of device memory. Names, layout and exported symbols follow PyTorch's; nothing else does.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/simcuda/pointwise.h"

#define SIM_EXPORT __attribute__((visibility("default")))

namespace c10 {

enum class DeviceType : std::int8_t { CPU = 0, CUDA = 1 };

struct Device {
  std::int8_t type;
  std::int8_t index;
};

using ScalarType = simcuda::PointwiseType;
constexpr std::uint64_t item_bytes(ScalarType type) { return simcuda::pointwise_item_bytes(type); }

struct Keys {
  static constexpr std::uint64_t kCpu = 1 << 0, kCuda = 1 << 1, kDense = 1 << 16, kSparse = 1 << 17,
                                 kConjugate = 1 << 18, kInplaceOrView = 1 << 19, kAutograd = 1 << 20,
                                 kAutocastCpu = 1 << 21, kAutocastCuda = 1 << 22, kBackendSelect = 1 << 23,
                                 kFunctorch = 1 << 24;
};

class SIM_EXPORT StorageImpl {
 public:
  StorageImpl(std::size_t bytes, Device device);
  StorageImpl(StorageImpl* owner, void* data, std::size_t bytes);  // of another one's memory, which it keeps
  virtual ~StorageImpl();
  StorageImpl(const StorageImpl&) = delete;
  StorageImpl& operator=(const StorageImpl&) = delete;

  std::atomic<std::int64_t> references{1};
  void* data = nullptr;  // 16 bytes from the start, where Grape reads it
  std::size_t bytes;
  Device device;
  std::uint64_t stream = 0;
  StorageImpl* owner = nullptr;
};

// How often a tensor was written to, shared by its views. Tensors of inference mode have none.
class SIM_EXPORT VariableVersion {
 public:
  VariableVersion() = default;
  explicit VariableVersion(std::uint32_t version) : counter_(new Counter{1, 1, version}) {}
  VariableVersion(const VariableVersion& other) noexcept : counter_(other.counter_) {
    if (counter_ != nullptr) counter_->references.fetch_add(1);
  }
  VariableVersion& operator=(VariableVersion other) noexcept {
    std::swap(counter_, other.counter_);
    return *this;
  }
  ~VariableVersion() {
    if (counter_ != nullptr && counter_->references.fetch_sub(1) == 1) delete counter_;
  }
  bool enabled() const { return counter_ != nullptr; }
  std::uint32_t current_version() const { return counter_->version.load(); }
  void bump() {
    if (enabled()) counter_->version.fetch_add(1);
  }

 private:
  struct Counter {
    std::atomic<std::size_t> references, weak_references;
    std::atomic<std::uint32_t> version;
  };
  Counter* counter_ = nullptr;
};

// Of autograd's graph: who made a tensor. Laid out as a real one up to its number.
struct Node {
  explicit Node(std::uint64_t number) : sequence(number) {}
  const void* table = nullptr;
  const void* self[2] = {};
  std::uint64_t sequence;
};

// What autograd notes of a tensor, laid out as a real one's.
class TensorImpl;
struct AutogradMeta {
  const void* table = nullptr;
  std::uint64_t name[4] = {};
  TensorImpl* grad = nullptr;
  Node* grad_fn = nullptr;
  const void *grad_fn_owner = nullptr, *accumulator[2] = {}, *rest[8] = {};
  bool requires_grad = false;  // of a leaf
  bool retains_grad = false;
  bool is_view = false;
  std::uint32_t output_number = 0;
  std::uint32_t view_version = 0;  // of a view: the one that its grad_fn was made for
  std::uint8_t how_viewed = 0;     // of a view: its CreationMeta
  std::uint64_t unused[44] = {};
};

class SIM_EXPORT TensorImpl {
 public:
  TensorImpl() = default;
  virtual ~TensorImpl();
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;

  bool requires_grad() const;
  void set_requires_grad(bool requires);  // of a leaf; what it is now
  void set_made_by_node();                // it is no leaf any more, but the result of another node
  std::uint64_t address() const {
    const auto start = reinterpret_cast<std::uint64_t>(storage->data);
    return start == 0 ? 0 : start + static_cast<std::uint64_t>(offset) * item_bytes(type);
  }
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) product *= size;
    return product;
  }
  bool contiguous() const;

  std::atomic<std::int64_t> references{1};
  StorageImpl* storage = nullptr;  // 16 bytes from the start, as above
  AutogradMeta* autograd = new AutogradMeta;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  VariableVersion version;
  std::uint64_t keys = 0;
  ScalarType type = ScalarType::kFloat;
  Device device{0, -1};
  TensorImpl* base = nullptr;     // of a view that autograd knows
  std::uint64_t unused[24] = {};  // a real one is as large
};
static_assert(sizeof(TensorImpl) >= 256, "Grape looks for the keys in so much");

// An owned reference.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TensorImpl* owned) : impl_(owned) {}
  static Tensor share(TensorImpl* impl) {
    if (impl != nullptr) impl->references.fetch_add(1);
    return Tensor(impl);
  }
  Tensor(Tensor&& other) noexcept : impl_(other.release()) {}
  Tensor& operator=(Tensor&& other) noexcept {
    if (this != &other) {
      drop(impl_);
      impl_ = other.release();
    }
    return *this;
  }
  ~Tensor() { drop(impl_); }
  TensorImpl* get() const { return impl_; }
  TensorImpl* operator->() const { return impl_; }
  TensorImpl* release() { return std::exchange(impl_, nullptr); }
  static void drop(TensorImpl* impl) {
    if (impl != nullptr && impl->references.fetch_sub(1) == 1) delete impl;
  }

 private:
  TensorImpl* impl_ = nullptr;
};

class OutOfMemory : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The thread's dispatch keys; raw_local_dispatch_key_set holds their difference to what a thread begins with.
struct LocalKeys {
  std::uint64_t included, excluded;
};
constexpr LocalKeys kDefaultKeys{Keys::kBackendSelect | Keys::kInplaceOrView, Keys::kAutocastCpu | Keys::kAutocastCuda};

struct ThreadState {
  bool grad = true;  // first, as AutogradState::get_tls_state() has it
  bool inference = false;
  std::int64_t function_modes = 0;
  bool dispatch_modes = false;
  bool callbacks = false;
  bool autocast[2] = {false, false};
  std::uint64_t stream = 0;  // CUstream that is current
  bool tunable = false;      // operators are chosen by trying them
  std::uint64_t pool = 0;    // that memory comes from; 0: the one for all
};
SIM_EXPORT ThreadState& thread_state();

struct SIM_EXPORT AutogradState {
  static ThreadState& get_tls_state();
};

// Who sees what autograd saves, laid out as a std::deque.
struct SavedHooks {
  const void* map = nullptr;
  std::size_t size = 0;
  const char *begin = nullptr, *rest[3] = {}, *end = nullptr, *more[3] = {};
};
SIM_EXPORT SavedHooks& saved_hooks();
SIM_EXPORT std::uint64_t& node_count();  // of autograd, made by the thread

SIM_EXPORT LocalKeys local_keys();
SIM_EXPORT void set_local_keys(LocalKeys keys);

// Device memory of the current stream, and back; as large as said by `rounded`.
SIM_EXPORT std::uint64_t allocate(std::size_t bytes);  // throws OutOfMemory
SIM_EXPORT void deallocate(std::uint64_t address) noexcept;
SIM_EXPORT void empty_cache() noexcept;
SIM_EXPORT std::uint64_t allocated() noexcept;                     // bytes in use
SIM_EXPORT std::uint64_t pool_of(std::uint64_t address) noexcept;  // the pool of a block that is in use

void reportMemoryUsageToProfiler(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                                 Device device) SIM_EXPORT;

}  // namespace c10
