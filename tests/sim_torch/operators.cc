#include "tests/sim_torch/operators.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/sim_torch/driver.h"

namespace simtorch {
namespace {

using simcuda::PointwiseParams;
using std::runtime_error;

std::atomic<std::uint64_t> g_operators{0};

template <typename... P>
void launch(const char* name, std::int64_t elements, P... parameters) {
  void* pointers[] = {static_cast<void*>(&parameters)...};
  const auto blocks = static_cast<unsigned>(std::max<std::int64_t>(1, (elements + 127) / 128));
  auto* stream = reinterpret_cast<CUstream>(c10::thread_state().stream);
  check(driver().cuLaunchKernel(kernel(name), blocks, 1, 1, 128, 1, 1, 0, stream, pointers, nullptr), name);
}

void wait_for_current_stream() {
  auto* stream = reinterpret_cast<CUstream>(c10::thread_state().stream);
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes sizes(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t one = i < a.size() ? a[a.size() - 1 - i] : 1, other = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (one != other && one != 1 && other != 1) throw runtime_error("shapes do not broadcast");
    sizes[sizes.size() - 1 - i] = one == 1 ? other : one;
  }
  return sizes;
}

void set_operand(PointwiseParams& p, int operand, const TensorImpl* tensor, const Sizes& sizes) {
  p.address[operand] = tensor->address();
  p.type[operand] = tensor->type;
  const std::size_t ahead = sizes.size() - tensor->sizes.size();
  for (std::size_t i = 0; i < tensor->sizes.size(); ++i) {
    const std::size_t to = simcuda::kPointwiseDimensions - sizes.size() + ahead + i;
    p.strides[operand][to] = tensor->sizes[i] == 1 ? 0 : tensor->strides[i];
  }
}

// As padding is: whatever stood on the stack.
void fill_with_noise(void* bytes, std::size_t count) {
  static std::atomic<std::uint64_t> state{1};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = state.fetch_add(0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(word >> 56);
  }
}

Tensor as_floats(TensorImpl* tensor) {
  Tensor dense = contiguous(tensor);
  if (dense->type != ScalarType::kFloat) throw runtime_error("only of float32");
  return dense;
}

int count_of(const TensorImpl* tensor) { return static_cast<int>(tensor->elements()); }
CUdeviceptr address_of(const TensorImpl* tensor) { return tensor->address(); }

void matmul_on_host(const TensorImpl* c, const TensorImpl* a, const TensorImpl* b) {
  const auto* x = reinterpret_cast<const float*>(a->address());
  const auto* y = reinterpret_cast<const float*>(b->address());
  auto* z = reinterpret_cast<float*>(c->address());
  const std::int64_t m = a->sizes[0], k = a->sizes[1], n = b->sizes[1];
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      float total = 0;
      for (std::int64_t i = 0; i < k; ++i) total += x[row * k + i] * y[i * n + column];
      z[row * n + column] = total;
    }
  }
}

// A function of a library that lies beside this one.
template <typename Function>
Function of_library(const char* library, const char* name) {
  void* loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void* found = loaded != nullptr ? dlsym(loaded, name) : nullptr;
  if (found == nullptr) throw runtime_error(std::string("no ") + name + " in " + library);
  return reinterpret_cast<Function>(found);
}

std::uint64_t keys_of(Device device) {
  using K = c10::Keys;
  const bool cuda = device.type == kCuda.type;
  std::uint64_t keys = K::kDense | (cuda ? K::kCuda | K::kAutocastCuda : K::kCpu | K::kAutocastCpu);
  if (!c10::thread_state().inference) keys |= K::kInplaceOrView | K::kAutograd;
  return keys;
}

}  // namespace

std::uint64_t operators_run() { return g_operators.load(); }
void count_operator() { g_operators.fetch_add(1); }

Switches& switches() {
  static Switches made;
  return made;
}

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

Tensor empty_strided(const Sizes& sizes, const Sizes& strides, ScalarType type, Device device) {
  std::int64_t last = 0;
  bool none = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || strides[i] < 0) throw runtime_error("negative size or stride");
    none = none || sizes[i] == 0;
    last += (sizes[i] - 1) * strides[i];
  }
  Tensor made(new TensorImpl);
  made->sizes = sizes;
  made->strides = strides;
  made->type = type;
  made->device = device;
  made->keys = keys_of(device);
  if (!is_inference(made.get())) made->version = c10::VariableVersion(0);
  const std::uint64_t bytes = none ? 0 : static_cast<std::uint64_t>(last + 1) * c10::item_bytes(type);
  made->storage = new c10::StorageImpl(bytes, device);
  return made;
}

Tensor empty(const Sizes& sizes, ScalarType type, Device device) {
  return empty_strided(sizes, contiguous_strides(sizes), type, device);
}

Tensor as_strided(TensorImpl* tensor, const Sizes& sizes, const Sizes& strides, std::int64_t offset) {
  Tensor view(new TensorImpl);
  view->sizes = sizes;
  view->strides = strides;
  view->offset = offset;
  view->type = tensor->type;
  view->device = tensor->device;
  view->keys = tensor->keys;
  if (!is_inference(tensor)) view->version = c10::VariableVersion(0);
  if (tensor->requires_grad() && c10::thread_state().grad) view->set_made_by_node();
  tensor->storage->references.fetch_add(1);
  view->storage = tensor->storage;
  return view;
}

void pointwise(PointwiseOp op, TensorImpl* out, TensorImpl* a, TensorImpl* b, double scalar) {
  if (out->sizes.size() > simcuda::kPointwiseDimensions) throw runtime_error("more than four dimensions");
  PointwiseParams p{};
  std::fill(p.sizes, p.sizes + simcuda::kPointwiseDimensions, 1);
  std::copy(out->sizes.begin(), out->sizes.end(), p.sizes + simcuda::kPointwiseDimensions - out->sizes.size());
  p.op = op;
  p.scalar = scalar;
  TensorImpl* operands[] = {out, a, b};
  for (int i = 0; i < 3; ++i) {
    if (operands[i] == nullptr) continue;
    if (operands[i]->device.type != out->device.type) throw runtime_error("tensors on several devices");
    if (broadcast(operands[i]->sizes, out->sizes) != out->sizes) throw runtime_error("shapes do not broadcast");
    set_operand(p, i, operands[i], out->sizes);
  }
  if (out->elements() == 0) return;
  if (on_cuda(out)) return launch("_Z9pointwise15PointwiseParams", out->elements(), p);
  unsigned char* data[3];
  for (int i = 0; i < 3; ++i) data[i] = reinterpret_cast<unsigned char*>(p.address[i]);
  simcuda::pointwise(p, data);
}

Tensor pointwise(PointwiseOp op, TensorImpl* a, TensorImpl* b, double scalar) {
  const ScalarType type = op == PointwiseOp::kGreater ? ScalarType::kBool : a->type;
  Tensor out = empty(b == nullptr ? a->sizes : broadcast(a->sizes, b->sizes), type, a->device);
  pointwise(op, out.get(), a, b, scalar);
  return out;
}

Tensor full(const Sizes& sizes, double value, ScalarType type, Device device) {
  Tensor made = empty(sizes, type, device);
  pointwise(PointwiseOp::kFill, made.get(), nullptr, nullptr, value);
  return made;
}

Tensor contiguous(TensorImpl* tensor) {
  return tensor->contiguous() ? Tensor::share(tensor) : pointwise(PointwiseOp::kCopy, tensor, nullptr, 0);
}

void copy_into(TensorImpl* to, TensorImpl* from) {
  if (to->device.type == from->device.type) return pointwise(PointwiseOp::kCopy, to, from, nullptr, 0);
  const Tensor dense = contiguous(from);
  const Tensor moved = empty(dense->sizes, dense->type, to->device);
  if (on_cuda(to)) {
    write(moved.get(), reinterpret_cast<const void*>(dense->address()));
  } else {
    read(dense.get(), reinterpret_cast<void*>(moved->address()));
  }
  pointwise(PointwiseOp::kCopy, to, moved.get(), nullptr, 0);
}

Tensor convert(TensorImpl* tensor, ScalarType type, Device device) {
  if (tensor->type == type && tensor->device.type == device.type) return Tensor::share(tensor);
  Tensor made = empty(tensor->sizes, type, device);
  copy_into(made.get(), tensor);
  return made;
}

Tensor matmul(TensorImpl* a, TensorImpl* b) {
  if (a->sizes.size() != 2 || b->sizes.size() != 2 || a->sizes[1] != b->sizes[0]) throw runtime_error("bad matmul");
  // Modes in which a GPU would take another kernel round the operands first.
  const bool rounds = on_cuda(a) && (c10::thread_state().autocast[a->device.type] || switches().tf32);
  const Tensor x = rounds ? pointwise(PointwiseOp::kRound, a, nullptr, 0) : as_floats(a);
  const Tensor y = rounds ? pointwise(PointwiseOp::kRound, b, nullptr, 0) : as_floats(b);
  Tensor z = empty({a->sizes[0], b->sizes[1]}, ScalarType::kFloat, a->device);
  if (z->elements() == 0) return z;
  if (!on_cuda(a)) {
    matmul_on_host(z.get(), x.get(), y.get());
  } else {
    launch("_Z6matmulPfPKfS1_iii", z->elements(), address_of(z.get()), address_of(x.get()), address_of(y.get()),
           static_cast<int>(z->sizes[0]), static_cast<int>(z->sizes[1]), static_cast<int>(a->sizes[1]));
  }
  return z;
}

Tensor sum(TensorImpl* a) {
  const Tensor x = as_floats(a);
  Tensor total = empty({}, ScalarType::kFloat, a->device);
  if (on_cuda(a)) {
    launch("_Z10reduce_sumPfPKfi", x->elements(), address_of(total.get()), address_of(x.get()), count_of(x.get()));
    return total;
  }
  const auto* values = reinterpret_cast<const float*>(x->address());
  float result = 0;
  for (std::int64_t i = 0; i < x->elements(); ++i) result += values[i];
  std::memcpy(reinterpret_cast<void*>(total->address()), &result, sizeof result);
  return total;
}

Tensor uniform(const Sizes& sizes, Device device, std::uint64_t seed, std::uint64_t offset) {
  struct {
    std::uint64_t seed, offset;
    std::uint32_t offset_in_graph;
    bool captured;
  } state = {seed, offset, 0, false};
  Tensor made = empty(sizes, ScalarType::kFloat, device);
  launch("_Z7uniformPfiN2at15PhiloxCudaStateE", made->elements(), address_of(made.get()), count_of(made.get()), state);
  return made;
}

Tensor affine(TensorImpl* x, double scale, double bias, int steps) {
  struct {
    char mode;
    double scale;
    short steps;
    float bias;
    char last;
  } params;
  static_assert(sizeof params == 32, "as the driver's");
  fill_with_noise(&params, sizeof params);
  params.mode = 'l';
  params.scale = scale;
  params.steps = static_cast<short>(steps);
  params.bias = static_cast<float>(bias);
  params.last = 0;
  const Tensor dense = as_floats(x);
  Tensor made = empty(x->sizes, ScalarType::kFloat, x->device);
  // As bytes: a copy of the struct by its members would leave the holes out.
  std::array<unsigned char, sizeof params> bytes;
  std::memcpy(bytes.data(), &params, sizeof params);
  launch("_Z6affinePfPKf12AffineParamsi", made->elements(), address_of(made.get()), address_of(dense.get()), bytes,
         count_of(made.get()));
  return made;
}

Tensor take(TensorImpl* x, TensorImpl* index) {
  const Tensor dense = as_floats(x);
  if (index->type != ScalarType::kInt || !index->contiguous()) throw runtime_error("indices are int32");
  Tensor made = empty(index->sizes, ScalarType::kFloat, x->device);
  struct {
    CUdeviceptr source, index;
    int source_count, count;
  } params = {dense->address(), index->address(), count_of(dense.get()), count_of(index)};
  launch("_Z6gatherPf10GatherDesc", made->elements(), address_of(made.get()), params);
  return made;
}

void jitter_(TensorImpl* x) {
  if (!x->contiguous() || x->type != ScalarType::kFloat) throw runtime_error("only of contiguous float32");
  launch("_Z6jitterPfi", x->elements(), address_of(x), count_of(x));
}

Tensor library_copy(TensorImpl* x, LibraryMakes makes) {
  static auto& workspaces = *new std::vector<Tensor>;
  const bool first = workspaces.empty();
  {  // the workspace comes to lie where this was
    const Tensor scratch = empty({4096}, ScalarType::kFloat, kCuda);
    const Tensor part = as_strided(scratch.get(), x->sizes, contiguous_strides(x->sizes), 0);
    pointwise(PointwiseOp::kCopy, part.get(), x, nullptr, 0);
  }
  if (first) {
    CUstream stream = nullptr;
    CUdeviceptr scratch = 0;
    check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(driver().cuMemAlloc(&scratch, 1 << 16), "cuMemAlloc");
    check(driver().cuMemFree(scratch), "cuMemFree");
  }
  if (first || makes == LibraryMakes::kPinnedEachTime) {
    void* pinned = nullptr;
    check(driver().cuMemAllocHost(&pinned, 64), "cuMemAllocHost");
  }
  if (first || makes == LibraryMakes::kWorkspaceEachTime) {
    workspaces.push_back(empty({4096}, ScalarType::kFloat, kCuda));
  }
  const Tensor place = as_strided(workspaces.back().get(), x->sizes, contiguous_strides(x->sizes), 0);
  pointwise(PointwiseOp::kCopy, place.get(), x, nullptr, 0);
  return pointwise(PointwiseOp::kCopy, place.get(), nullptr, 0);
}

float* word_of(const char* library, std::size_t bytes) {
  return of_library<float* (*)(std::size_t)>(library, "library_word")(bytes);
}

Tensor plus_word(TensorImpl* x, const char* library, std::size_t bytes) {
  using Copy = void (*)(CUdeviceptr, std::size_t, CUstream);
  const Tensor word = empty({1}, ScalarType::kFloat, kCuda);
  auto* stream = reinterpret_cast<CUstream>(c10::thread_state().stream);
  of_library<Copy>(library, "library_copy_word")(word->address(), bytes, stream);
  return pointwise(PointwiseOp::kAdd, x, word.get(), 1);
}

void delay(std::uint32_t microseconds) { launch("_Z5delayj", 1, microseconds); }

void read(TensorImpl* tensor, void* bytes) {
  const std::uint64_t count = static_cast<std::uint64_t>(tensor->elements()) * c10::item_bytes(tensor->type);
  if (count == 0) return;
  if (!on_cuda(tensor)) {
    std::memcpy(bytes, reinterpret_cast<const void*>(tensor->address()), count);
    return;
  }
  auto* stream = reinterpret_cast<CUstream>(c10::thread_state().stream);
  check(driver().cuMemcpyDtoHAsync(bytes, tensor->address(), count, stream), "cuMemcpyDtoHAsync");
  wait_for_current_stream();
}

void write(TensorImpl* tensor, const void* bytes) {
  const std::uint64_t count = static_cast<std::uint64_t>(tensor->elements()) * c10::item_bytes(tensor->type);
  if (count == 0) return;
  if (!on_cuda(tensor)) {
    std::memcpy(reinterpret_cast<void*>(tensor->address()), bytes, count);
    return;
  }
  auto* stream = reinterpret_cast<CUstream>(c10::thread_state().stream);
  check(driver().cuMemcpyHtoDAsync(tensor->address(), bytes, count, stream), "cuMemcpyHtoDAsync");
  wait_for_current_stream();
}

double item(TensorImpl* tensor) {
  if (tensor->elements() != 1) throw runtime_error("item() of more than one value");
  unsigned char bytes[8] = {};
  read(tensor, bytes);
  return simcuda::pointwise_load(bytes, tensor->type, 0);
}

std::uint64_t make_stream() {
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return reinterpret_cast<std::uint64_t>(stream);
}

void wait_stream(std::uint64_t waiter, std::uint64_t waited_for) {
  const Driver& d = driver();
  CUevent event = nullptr;
  check(d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  check(d.cuEventRecord(event, reinterpret_cast<CUstream>(waited_for)), "cuEventRecord");
  check(d.cuStreamWaitEvent(reinterpret_cast<CUstream>(waiter), event, 0), "cuStreamWaitEvent");
  check(d.cuEventDestroy(event), "cuEventDestroy");
}

void synchronize() { check(driver().cuCtxSynchronize(), "cuCtxSynchronize"); }

}  // namespace simtorch
