// The one door to PyTorch: tensors through its stable C interface (the aoti_torch_* functions of libtorch_cpu), found
// at run time and checked against the Python attributes of a few tensors before first use. No other file knows a symbol
// or an offset of PyTorch's. All functions: with the GIL; none leaves an exception set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compressor/refusal/refusal.h"
#include "python_hooks/interpreter/cpython.h"

namespace grape::python::torch {

constexpr std::int32_t kCudaDevice = 1;  // c10::DeviceType

// A tensor's metadata, borrowed: valid as long as the tensor lives and is not changed.
struct TensorView {
  Object* object = nullptr;
  void* handle = nullptr;     // AtenTensorHandle
  std::uint64_t data = 0;     // address of the first element
  std::uint64_t storage = 0;  // address of the storage
  std::uint64_t storage_bytes = 0;
  std::int64_t dimensions = 0;
  const std::int64_t* sizes = nullptr;
  const std::int64_t* strides = nullptr;  // in elements
  std::int64_t offset = 0;                // in elements, from the storage
  std::int32_t type = 0;                  // c10::ScalarType
  std::int32_t device_type = 0;           // c10::DeviceType: 0 CPU, kCudaDevice
  std::int32_t device_index = 0;
  std::uint32_t item_bytes = 0;
  std::uint64_t keys = 0;  // its dispatch keys: inference tensors have others than the rest
};

// The bytes from the first to behind the last element.
std::uint64_t span_of(const TensorView& view) noexcept;

// False: torch is not there, or one that is not understood (`notice` says so once). Cheap after the first success.
bool load_torch_api() noexcept;
// Is its answer final? Not while torch is being imported, and not under a mode that makes other tensors.
bool torch_api_settled() noexcept;

// Exactly torch.Tensor or torch.nn.Parameter (or nn.Buffer's plain tensor); subclasses are not.
bool is_plain_tensor(Object* object) noexcept;
bool is_tensor_or_subclass(Object* object) noexcept;
bool is_parameter(Object* object) noexcept;
bool requires_grad(Object* tensor) noexcept;
// Of this thread, with or without the GIL. True where torch is not known.
bool gradients_enabled() noexcept;
// Does anything but its Python object keep the tensor (a view of it, a graph of autograd)? True where torch does not
// say.
bool held_by_native_code(Object* plain_tensor) noexcept;
// How many keep it, its Python object among them; -1: torch does not say.
long owners_of_tensor(Object* plain_tensor) noexcept;
// Does it share its memory until somebody writes to it, and gets a copy (torch._lazy_clone)?
bool cloned_lazily(Object* plain_tensor) noexcept;
// False: not strided (sparse, quantised, conjugate or negative view, functorch wrapper, symbolic sizes, no storage), or
// cloned lazily.
bool view_tensor(Object* plain_tensor, TensorView& out) noexcept;

// Where the data of tensors lies that count as being on a GPU: CUDA's. Tests say that the CPU's do, too.
bool is_on_device(const TensorView& view) noexcept;
// Is it one float, on the CPU, without dimensions, as optimizers count steps? Counts up to kMostSteps are told apart
// from the ones behind them.
bool is_step_count(const TensorView& view) noexcept;
constexpr float kMostSteps = 1 << 23;
void treat_cpu_as_device(bool treat) noexcept;  // tests only

// What a guard compares of a tensor that it knows, in few reads: which memory it uses, and how.
struct TensorMark {
  std::uint64_t data = 0, storage = 0, storage_bytes = 0, shape = 0, keys = 0;
  bool operator==(const TensorMark& other) const noexcept {
    return data == other.data && storage == other.storage && storage_bytes == other.storage_bytes &&
           shape == other.shape && keys == other.keys;
  }
};
// False: as for view_tensor.
bool mark_tensor(Object* plain_tensor, TensorMark& out) noexcept;

// Where the same facts but requires_grad stand, word by word: as long as none of these is another one, the tensor is as
// it was. Parents first: the tensor, then its storage. False: only mark_tensor() tells.
struct TensorWords {
  static constexpr std::size_t kMost = 20;
  const std::uint64_t* at[kMost];
  std::size_t count = 0;
  const void* grad = nullptr;  // where requires_grad may be noted; to have it fetched ahead, never followed
};
bool words_of_tensor(Object* plain_tensor, TensorWords& out) noexcept;

// How often autograd was told that the tensor was written to (`_version`); views share their base's. Lives as long as
// the tensor. Null: there is none, as of a tensor of inference mode.
using VersionCounter = std::atomic<std::uint32_t>;
VersionCounter* version_counter(Object* plain_tensor) noexcept;
// What tensors that share it have in common; never followed. Null: as above.
const void* version_identity(Object* plain_tensor) noexcept;
// From now on `tensor`, which nobody has seen yet, has `other`'s; nothing where one of them has none.
void share_version(Object* tensor, Object* other) noexcept;

// Where a tensor and its storage are described; to have it fetched ahead, never followed. Null: nowhere.
struct TensorPlaces {
  const void* at[7];
};
TensorPlaces places_of_tensor(const TensorView& view) noexcept;

// Which of PyTorch's own types this is; kOther before torch is loaded.
enum class TorchType : std::uint8_t {
  kOther,
  kTensor,    // torch.Tensor or torch.nn.Parameter, exactly
  kConstant,  // torch.dtype, layout, memory_format: their objects are never freed
  kDevice,    // torch.device: see device_value()
  kSize,      // torch.Size: a tuple
};
TorchType torch_type(Object* type) noexcept;
std::uint16_t device_value(Object* device) noexcept;  // type and, in the upper byte, index

// torch.__version__, borrowed; null: it has none.
Object* version_text() noexcept;

// torch.nn.Module; null: torch is not loaded.
Object* module_class() noexcept;

// A new tensor of uninitialised memory of the framework's allocator, on the current stream; null: no memory, or another
// failure (cleared; PyTorch reports it on stderr itself).
Object* new_tensor(std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides, std::int32_t type,
                   std::int32_t device_type, std::int32_t device_index) noexcept;
// A view of `base` as autograd knows them, made as torch.Tensor.as_strided() does in the mode that this thread is in.
// Null also where autograd knows none of that type of numbers: they are the base's, or parts or pairs of these
// (torch.view_as_real(), view_as_complex()).
Object* new_view(Object* base, std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                 std::int64_t offset, std::int32_t type) noexcept;
// A tensor, whatever object of Python's stands for it; never followed. And what autograd knows it as a view of, a new
// reference or an identity; null: of none. That asks Python: not for the way of a replay.
const void* identity_of_tensor(Object* plain_tensor) noexcept;
void* handle_of_tensor(Object* plain_tensor) noexcept;  // AtenTensorHandle, of no further meaning here
Object* new_reference_to_base(Object* plain_tensor) noexcept;
const void* base_of_tensor(Object* plain_tensor) noexcept;
// A tensor that shares `base`'s storage and is no view in autograd's eyes.
Object* new_alias(Object* base, std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                  std::int64_t offset, std::int32_t type) noexcept;

// Everything beside arguments and modules that decides which kernels run: grad and inference mode, autocast (enabled,
// dtype, cache), deterministic algorithms, TF32 and reduced-precision switches, cuDNN/MIOpen flags, SDPA backends,
// default dtype and device, current device and stream; whether a TorchFunctionMode, TorchDispatchMode, functorch
// transform, tracing or a profiler's record-function callback is active. Appends canonical bytes. False: something
// is active under which nothing may be replayed: `refusal`.
struct DispatchState {
  bool grad_enabled = false;
  bool inference_mode = false;
  std::int32_t device = 0;
  std::uint64_t stream = 0;  // CUstream
  static constexpr std::size_t kMostBytes = 256;
  std::uint8_t bytes[kMostBytes] = {};
  std::size_t byte_count = 0;

  bool same_as(const DispatchState& other) const noexcept {
    return byte_count == other.byte_count && std::memcmp(bytes, other.bytes, byte_count) == 0;
  }
};
bool take_dispatch_state(DispatchState& out, refusal::Form<0>& refusal) noexcept;
// The current stream of a device, which need not be the current one. CUDA is in use. False: not known.
bool current_stream_of(std::int32_t device, std::uint64_t& stream) noexcept;
// The same in terms that hold in other processes (portable.h): of the stream only whether it is the default one.
bool take_portable_dispatch_state(DispatchState& out) noexcept;

// The device's default generator. False: not known.
bool random_state(std::int32_t device, std::uint64_t& seed, std::uint64_t& offset) noexcept;
bool set_random_offset(std::int32_t device, std::uint64_t offset) noexcept;
// Python's and NumPy's global generators, borrowed; null: not imported. Functions like random.random are methods of
// theirs.
Object* python_generator() noexcept;
Object* numpy_generator() noexcept;
inline bool is_hashed_generator(Object* object) noexcept {
  return object == python_generator() || object == numpy_generator();
}

}  // namespace grape::python::torch
