#include "kernels.h"

#include <time.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "memory.h"
#include "pointwise.h"
#include "simcuda.h"

namespace simcuda {

namespace {

// A device pointer parameter. at(n) is the host's view of n elements, or null if they are not the device's.
template <typename T>
struct Pointer {
  CUdeviceptr address;
  T* at(std::int64_t count) const {
    if (count <= 0 || address % alignof(T) != 0) return nullptr;
    return static_cast<T*>(Memory::instance().translate(address, static_cast<std::size_t>(count) * sizeof(T)));
  }
};
using Floats = Pointer<float>;
using Ints = Pointer<std::int32_t>;
using Longs = Pointer<std::uint64_t>;

constexpr CUresult kFault = CUDA_ERROR_ILLEGAL_ADDRESS;

CUresult copy(Floats to, Floats from, int n) {
  if (n <= 0) return CUDA_SUCCESS;
  float* y = to.at(n);
  const float* x = from.at(n);
  if (y == nullptr || x == nullptr) return kFault;
  std::memmove(y, x, static_cast<std::size_t>(n) * sizeof(float));
  return CUDA_SUCCESS;
}

CUresult fill(Floats to, float value, int n) {
  if (n <= 0) return CUDA_SUCCESS;
  float* y = to.at(n);
  if (y == nullptr) return kFault;
  for (int i = 0; i < n; ++i) y[i] = value;
  return CUDA_SUCCESS;
}

// y += a x
CUresult axpy(Floats to, Floats from, float a, int n) {
  if (n <= 0) return CUDA_SUCCESS;
  float* y = to.at(n);
  const float* x = from.at(n);
  if (y == nullptr || x == nullptr) return kFault;
  for (int i = 0; i < n; ++i) y[i] += a * x[i];
  return CUDA_SUCCESS;
}

// c[m, n] = a[m, k] b[k, n], row by row
CUresult matmul(Floats c_pointer, Floats a_pointer, Floats b_pointer, int m, int n, int k) {
  if (m <= 0 || n <= 0 || k <= 0) return CUDA_SUCCESS;
  float* c = c_pointer.at(std::int64_t{m} * n);
  const float* a = a_pointer.at(std::int64_t{m} * k);
  const float* b = b_pointer.at(std::int64_t{k} * n);
  if (c == nullptr || a == nullptr || b == nullptr) return kFault;
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      float sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
      c[row * n + column] = sum;
    }
  }
  return CUDA_SUCCESS;
}

CUresult reduce_sum(Floats to, Floats from, int n) {
  float* y = to.at(1);
  const float* x = n > 0 ? from.at(n) : nullptr;
  if (y == nullptr || (n > 0 && x == nullptr)) return kFault;
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i];
  *y = sum;
  return CUDA_SUCCESS;
}

// x[row, column] = max(0, x[row, column] + bias[column])
CUresult bias_relu(Floats x_pointer, Floats bias_pointer, int rows, int columns) {
  if (rows <= 0 || columns <= 0) return CUDA_SUCCESS;
  float* x = x_pointer.at(std::int64_t{rows} * columns);
  const float* bias = bias_pointer.at(columns);
  if (x == nullptr || bias == nullptr) return kFault;
  for (std::int64_t i = 0; i < std::int64_t{rows} * columns; ++i) x[i] = std::fmax(0.0F, x[i] + bias[i % columns]);
  return CUDA_SUCCESS;
}

// By value, with three holes: after mode, after steps, and at the end.
struct AffineParams {
  char mode;  // 'r': relu after
  double scale;
  short steps;
  float bias;
  char last;
};
static_assert(sizeof(AffineParams) == 32, "as the tests and the README have it");

CUresult affine(Floats to, Floats from, AffineParams p, int n) {
  if (n <= 0) return CUDA_SUCCESS;
  float* y = to.at(n);
  const float* x = from.at(n);
  if (y == nullptr || x == nullptr) return kFault;
  for (int i = 0; i < n; ++i) {
    float value = x[i];
    for (int step = 0; step < p.steps; ++step) value = static_cast<float>(p.scale * value + p.bias);
    y[i] = p.mode == 'r' ? std::fmax(0.0F, value) : value;
  }
  return CUDA_SUCCESS;
}

struct GatherDesc {
  Floats source;
  Ints index;
  int source_count;
  int count;
};

// y[i] = source[index[i]]
CUresult gather(Floats to, GatherDesc d) {
  if (d.count <= 0) return CUDA_SUCCESS;
  float* y = to.at(d.count);
  const float* x = d.source.at(d.source_count);
  const std::int32_t* index = d.index.at(d.count);
  if (y == nullptr || x == nullptr || index == nullptr) return kFault;
  for (int i = 0; i < d.count; ++i) {
    if (index[i] < 0 || index[i] >= d.source_count) return kFault;
    y[i] = x[index[i]];
  }
  return CUDA_SUCCESS;
}

CUresult delay(unsigned microseconds) {
  timespec left = {static_cast<time_t>(microseconds / 1000000), static_cast<long>(microseconds % 1000000) * 1000};
  while (nanosleep(&left, &left) != 0) {
  }
  return CUDA_SUCCESS;
}

// *p = *p a + b: what comes out tells the order in which several ran.
CUresult mix(Longs to, std::uint64_t a, std::uint64_t b) {
  std::uint64_t* p = to.at(1);
  if (p == nullptr) return kFault;
  *p = *p * a + b;
  return CUDA_SUCCESS;
}

CUresult atomic_add(Longs to, std::uint64_t b) {
  std::uint64_t* p = to.at(1);
  if (p == nullptr) return kFault;
  __atomic_fetch_add(p, b, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

// Each counts itself and waits for all `n`: CUDA_ERROR_ASSERT if they do not run side by side within ten seconds.
CUresult meet(Longs count, std::uint64_t n) {
  std::uint64_t* p = count.at(1);
  if (p == nullptr) return kFault;
  __atomic_fetch_add(p, 1, __ATOMIC_ACQ_REL);
  for (int i = 0; i < 100000; ++i) {
    if (__atomic_load_n(p, __ATOMIC_ACQUIRE) >= n) return CUDA_SUCCESS;
    delay(100);
  }
  return CUDA_ERROR_ASSERT;
}

// Copies from where a tensor map (cuTensorMapEncode*) points to.
CUresult tile_copy(Floats to, CUtensorMap map, int n) { return copy(to, Floats{map.opaque[0]}, n); }

// An integer in global memory is raised to one and lowered again around a sleep: CUDA_ERROR_ASSERT if another kernel
// is inside. It shows that kernels which must not overlap do not.
CUresult exclusive(Ints flag, unsigned microseconds) {
  std::int32_t* p = flag.at(1);
  if (p == nullptr) return kFault;
  if (__atomic_exchange_n(p, 1, __ATOMIC_ACQ_REL) != 0) return CUDA_ERROR_ASSERT;
  delay(microseconds);
  __atomic_store_n(p, 0, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult run_pointwise(PointwiseParams p) {
  unsigned char* operands[3] = {};
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t bytes = pointwise_span(p, i);
    if (bytes == 0) return CUDA_SUCCESS;
    if (p.address[i] == 0) continue;
    operands[i] = Pointer<unsigned char>{p.address[i]}.at(static_cast<std::int64_t>(bytes));
    if (operands[i] == nullptr) return kFault;
  }
  if (operands[0] == nullptr) return kFault;
  pointwise(p, operands);
  return CUDA_SUCCESS;
}

// at::PhiloxCudaState as far as kernels of a program without graphs of its own use it.
struct PhiloxState {
  std::uint64_t seed, offset;
  std::uint32_t offset_in_graph;
  bool captured;
};
static_assert(sizeof(PhiloxState) == 24, "as PyTorch has it");

std::uint64_t scrambled(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
  return word ^ (word >> 31);
}

// y[i] in [0, 1), by seed, offset and i.
CUresult uniform(Floats to, int n, PhiloxState state) {
  if (n <= 0) return CUDA_SUCCESS;
  float* y = to.at(n);
  if (y == nullptr) return kFault;
  for (int i = 0; i < n; ++i) {
    const std::uint64_t at = state.offset * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(i);
    y[i] = static_cast<float>(scrambled(scrambled(state.seed + 1) ^ at) >> 40) * 0x1p-24F;
  }
  return CUDA_SUCCESS;
}

// What no two launches agree on, as kernels that add up in the order in which their blocks come by.
CUresult jitter(Floats to, int n) {
  static std::uint64_t launches = 0;
  const std::uint64_t launch = __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
  if (n <= 0) return CUDA_SUCCESS;
  float* y = to.at(n);
  if (y == nullptr) return kFault;
  for (int i = 0; i < n; ++i) y[i] += static_cast<float>(launch % 1024) * 0x1p-20F;
  return CUDA_SUCCESS;
}

// Kernels that a test brings along: what its function, of this process, makes of the rest.
template <std::size_t bytes>
struct HostCall {
  HostFunction function;
  unsigned char data[bytes];
};

template <std::size_t bytes>
CUresult host_call(HostCall<bytes> call) {
  const auto translate = [](CUdeviceptr address, std::size_t size) {
    return Memory::instance().translate(address, size);
  };
  return static_cast<CUresult>(call.function(call.data, translate));
}

// Those of shim/device/own_kernels_ptx.cc.
CUresult grape_copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes) {
  if (bytes == 0) return CUDA_SUCCESS;
  auto* y = Pointer<unsigned char>{to}.at(static_cast<std::int64_t>(bytes));
  const auto* x = Pointer<unsigned char>{from}.at(static_cast<std::int64_t>(bytes));
  if (y == nullptr || x == nullptr) return kFault;
  std::memmove(y, x, bytes);
  return CUDA_SUCCESS;
}

CUresult grape_fill(CUdeviceptr to, std::uint64_t value, std::uint64_t element, std::uint64_t width,
                    std::uint64_t height, std::uint64_t pitch) {
  if (width == 0) return CUDA_SUCCESS;
  for (std::uint64_t row = 0; row < height; ++row) {
    auto* y = Pointer<unsigned char>{to + row * pitch}.at(static_cast<std::int64_t>(width * element));
    if (y == nullptr) return kFault;
    for (std::uint64_t i = 0; i < width; ++i) std::memcpy(y + i * element, &value, element);
  }
  return CUDA_SUCCESS;
}

struct HashChunk {
  CUdeviceptr at;
  std::uint64_t bytes, first_word;
  Longs sum;
  CUdeviceptr copy;
};

CUresult grape_hash(const HashChunk& chunk) {
  std::uint64_t* result = chunk.sum.at(1);
  const auto* x = Pointer<unsigned char>{chunk.at}.at(static_cast<std::int64_t>(chunk.bytes));
  if (result == nullptr || x == nullptr) return kFault;
  for (std::uint64_t i = 0; i * 8 < chunk.bytes; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, x + i * 8, chunk.bytes - i * 8 < 8 ? chunk.bytes - i * 8 : 8);
    word ^= (chunk.first_word + i + 1) * 0x9E3779B97F4A7C15;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    __atomic_fetch_add(result, word ^ (word >> 31), __ATOMIC_RELAXED);
  }
  return chunk.copy == 0 ? CUDA_SUCCESS : grape_copy(chunk.copy, chunk.at, chunk.bytes);
}

// A chunk for each block.
CUresult grape_hash_chunks(const KernelArguments& arguments) {
  CUdeviceptr table = 0;
  std::memcpy(&table, arguments.parameters, sizeof table);
  const HashChunk* chunks = Pointer<HashChunk>{table}.at(arguments.grid[0]);
  if (chunks == nullptr) return kFault;
  for (unsigned i = 0; i < arguments.grid[0]; ++i) {
    const CUresult result = grape_hash(chunks[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// Numbers by the values of device::Element: float, double, half, bfloat16.
double from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double size = std::ldexp(exponent == 0 ? fraction : 1024 + fraction, (exponent == 0 ? 1 : exponent) - 25);
  if (exponent == 31) size = fraction != 0 ? std::nan("") : HUGE_VAL;
  return (bits & 0x8000) != 0 ? -size : size;
}

double from_bfloat16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

struct SpreadSums {
  std::uint64_t count;
  float most, squares, all;
};

template <typename T, typename Widen>
CUresult spread(CUdeviceptr one, CUdeviceptr other, std::int64_t count, SpreadSums& out, Widen widen) {
  if (count == 0) return CUDA_SUCCESS;
  const T* x = Pointer<T>{one}.at(count);
  const T* y = Pointer<T>{other}.at(count);
  if (x == nullptr || y == nullptr) return kFault;
  double most = 0, squares = 0, all = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double a = widen(x[i]), b = widen(y[i]);
    if (!std::isnan(a)) all += a * a;
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double difference = std::isnan(a) || std::isnan(b) ? HUGE_VAL : std::fabs(a - b);
    ++out.count;
    most = std::fmax(most, difference);
    squares += difference * difference;
  }
  auto rounded = static_cast<float>(most);
  if (static_cast<double>(rounded) < most) rounded = std::nextafter(rounded, HUGE_VALF);
  out.most = std::fmax(out.most, rounded);
  out.squares += static_cast<float>(squares);
  out.all += static_cast<float>(all);
  return CUDA_SUCCESS;
}

CUresult grape_spread(CUdeviceptr one, CUdeviceptr other, std::uint64_t numbers, std::uint64_t element,
                      Pointer<SpreadSums> out) {
  SpreadSums* sums = out.at(1);
  if (sums == nullptr) return kFault;
  const auto count = static_cast<std::int64_t>(numbers);
  if (element == 0) return spread<float>(one, other, count, *sums, [](float value) { return double{value}; });
  if (element == 1) return spread<double>(one, other, count, *sums, [](double value) { return value; });
  if (element == 2) return spread<std::uint16_t>(one, other, count, *sums, from_half);
  return spread<std::uint16_t>(one, other, count, *sums, from_bfloat16);
}

CUresult trap() { return CUDA_ERROR_LAUNCH_FAILED; }
CUresult nothing() { return CUDA_SUCCESS; }

// Lays out the parameters of a C++ function as the ABI of kernels does, and reads them from there.
template <typename... P>
constexpr std::array<ParameterLayout, sizeof...(P)> layout_of() {
  std::array<ParameterLayout, sizeof...(P)> layout{};
  [[maybe_unused]] std::size_t offset = 0;
  [[maybe_unused]] std::size_t index = 0;
  [[maybe_unused]] const auto add = [&](std::size_t size, std::size_t alignment) {
    offset = (offset + alignment - 1) / alignment * alignment;
    layout[index].offset = offset;
    layout[index].size = size;
    ++index;
    offset += size;
  };
  (add(sizeof(P), alignof(P)), ...);
  return layout;
}

template <auto F>
struct Kernelized;
template <typename... P, CUresult (*F)(P...)>
struct Kernelized<F> {
  template <std::size_t... I>
  static CUresult apply(const unsigned char* bytes, std::index_sequence<I...>) {
    [[maybe_unused]] constexpr auto layout = layout_of<P...>();
    std::tuple<P...> values;
    (std::memcpy(static_cast<void*>(&std::get<I>(values)), bytes + layout[I].offset, sizeof(P)), ...);
    (void)bytes;
    return std::apply(F, values);
  }
  static CUresult run(const KernelArguments& arguments) {
    return apply(arguments.parameters, std::index_sequence_for<P...>{});
  }
  static BuiltinKernel make(const char* name) {
    constexpr auto layout = layout_of<P...>();
    return {name, std::vector<ParameterLayout>(layout.begin(), layout.end()), &run};
  }
};

}  // namespace

const std::vector<BuiltinKernel>& builtin_kernels() {
  static const std::vector<BuiltinKernel>& kernels = *new std::vector<BuiltinKernel>{
      Kernelized<copy>::make("_Z4copyPfPKfi"),
      Kernelized<fill>::make("_Z4fillPffi"),
      Kernelized<axpy>::make("_Z4axpyPfPKffi"),
      Kernelized<matmul>::make("_Z6matmulPfPKfS1_iii"),
      Kernelized<reduce_sum>::make("_Z10reduce_sumPfPKfi"),
      Kernelized<bias_relu>::make("_Z9bias_reluPfPKfii"),
      Kernelized<affine>::make("_Z6affinePfPKf12AffineParamsi"),
      Kernelized<gather>::make("_Z6gatherPf10GatherDesc"),
      Kernelized<delay>::make("_Z5delayj"),
      Kernelized<mix>::make("_Z3mixPmmm"),
      Kernelized<atomic_add>::make("_Z10atomic_addPmm"),
      Kernelized<meet>::make("_Z4meetPmm"),
      Kernelized<tile_copy>::make("_Z9tile_copyPf14CUtensorMap_sti"),
      Kernelized<exclusive>::make("_Z9exclusivePij"),
      Kernelized<run_pointwise>::make("_Z9pointwise15PointwiseParams"),
      Kernelized<uniform>::make("_Z7uniformPfiN2at15PhiloxCudaStateE"),
      Kernelized<jitter>::make("_Z6jitterPfi"),
      Kernelized<grape_copy>::make("grape_copy"),
      Kernelized<grape_fill>::make("grape_fill"),
      BuiltinKernel{"grape_hash", {{0, sizeof(CUdeviceptr)}}, &grape_hash_chunks},
      Kernelized<grape_spread>::make("grape_spread"),
      Kernelized<host_call<504>>::make("_Z9host_call8HostCallILm504EE"),
      Kernelized<host_call<4088>>::make("_Z9host_call8HostCallILm4088EE"),
      Kernelized<host_call<16376>>::make("_Z9host_call8HostCallILm16376EE"),
      Kernelized<trap>::make("_Z4trapv"),
      Kernelized<nothing>::make("_Z7nothingv"),
  };
  return kernels;
}

const BuiltinKernel* find_builtin(const std::string& name) {
  for (const BuiltinKernel& kernel : builtin_kernels()) {
    if (name == kernel.name) return &kernel;
  }
  return nullptr;
}

}  // namespace simcuda
