// PyTorch's operators on the simulated device: each that has a kernel for CUDA becomes a kernel that computes the same
// with PyTorch's own operator for the CPU, when and where the device runs it. All else of PyTorch stays what it is.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/copy_native.h>
#include <torch/library.h>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tests/host_torch/driver.h"
#include "tests/host_torch/replacements.h"
#include "tests/host_torch/values.h"
#include "tests/simcuda/simcuda.h"

namespace host_torch {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

void check(CUresult result, const char* what) {
  TORCH_CHECK(result == CUDA_SUCCESS, "CUDA error: ", what, " failed with ", static_cast<int>(result));
}

// How many bytes of parameters there may be, behind the function; each operator has a kernel for each.
constexpr std::size_t kSmall = 504, kLarge = 4088, kHuge = 16376;
struct Kernels {
  CUkernel small = nullptr, large = nullptr, huge = nullptr;
};

struct Operator {
  std::optional<OperatorHandle> handle;
  const Replacement* replacement = nullptr;  // in place of the CPU's operator; null: none
  bool draws = false;                        // random numbers, from a generator that is no argument: it comes last
  bool on_host = false;                      // its results tell of numbers: the host waits for its arguments
};

// What comes out, for arguments of one kind.
struct Shapes {
  struct Result {
    bool is_argument = false, defined = true;
    std::size_t argument = 0;
    at::ScalarType type = at::kFloat;
    std::vector<std::int64_t> sizes, strides;
  };
  std::vector<std::vector<Result>> results;  // of each return value; lists have several
  std::vector<bool> is_list;
  std::vector<std::pair<std::size_t, std::vector<std::int64_t>>> resized;  // arguments
};

std::vector<Operator>& operators() {
  static auto* known = new std::vector<Operator>;
  return *known;
}
std::unordered_map<c10::OperatorName, std::size_t>& numbers() {
  static auto* known = new std::unordered_map<c10::OperatorName, std::size_t>;
  return *known;
}

// The host's operator.
void compute(const Operator& op, Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard autocast(c10::autocast_dispatch_keyset);
  TORCH_CHECK(op.replacement != nullptr || !op.draws, "host_torch: ", op.handle->schema().name(), " is not simulated");
  if (op.replacement != nullptr) {
    (*op.replacement)(stack);
  } else {
    op.handle->callBoxed(stack);
  }
}

// An operator's return values, lists as their items.
std::vector<std::vector<at::Tensor>> tensors_of(const Stack& stack) {
  std::vector<std::vector<at::Tensor>> all;
  for (const c10::IValue& value : stack) {
    if (value.isTensorList()) {
      all.push_back(value.toTensorVector());
    } else {
      all.push_back({value.toTensor()});
    }
  }
  return all;
}

Stack decode_arguments(Decoder& decoder, const Operator& op) {
  Stack stack;
  const std::size_t count = op.handle->schema().arguments().size() + (op.draws ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) stack.push_back(decoder.get());
  return stack;
}

// What a kernel's parameter is: operator, arguments, how many tensors come out, these as they are to be written.
int run(const unsigned char* data, void* (*translate)(unsigned long long, std::size_t)) {
  try {
    const Decoder::Memory memory = [translate](std::uint64_t address, std::size_t bytes) {
      return translate(address, bytes);
    };
    Decoder decoder(reinterpret_cast<const std::uint64_t*>(data), &memory);
    const Operator& op = operators().at(decoder.get_word());
    Stack stack = decode_arguments(decoder, op);
    compute(op, stack);
    std::vector<at::Tensor> made;
    for (const auto& list : tensors_of(stack)) made.insert(made.end(), list.begin(), list.end());
    for (const at::Tensor& tensor : made) {
      if (decoder.get_word() == 0) continue;
      at::Tensor to = decoder.get_tensor();
      const at::AutoDispatchBelowADInplaceOrView below;
      if (to.numel() != 0) to.copy_(tensor);
    }
    return CUDA_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "host_torch: a kernel failed: %s\n", error.what());
    return CUDA_ERROR_ASSERT;
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// The argument that a return value is. npos: it is none.
std::size_t argument_of(const c10::FunctionSchema& schema, std::size_t result) {
  const c10::AliasInfo* alias = schema.returns()[result].alias_info();
  for (std::size_t i = 0; alias != nullptr && i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* other = schema.arguments()[i].alias_info();
    if (other != nullptr && other->beforeSets() == alias->beforeSets()) return i;
  }
  return std::string::npos;
}

// `stand_in`: the number that tensors are full of.
Shapes find_shapes(const Operator& op, const Words& words, double stand_in) {
  const c10::FunctionSchema& schema = op.handle->schema();
  Decoder decoder(words.data(), nullptr, stand_in);
  Stack stack = decode_arguments(decoder, op);
  const Stack arguments = stack;
  std::vector<std::vector<std::int64_t>> before(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().defined()) before[i] = arguments[i].toTensor().sizes().vec();
  }
  compute(op, stack);
  Shapes shapes;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!arguments[i].isTensor() || !is_written(schema.arguments()[i]) || !arguments[i].toTensor().defined()) continue;
    if (arguments[i].toTensor().sizes().vec() != before[i]) {
      shapes.resized.emplace_back(i, arguments[i].toTensor().sizes().vec());
    }
  }
  const auto made = tensors_of(stack);
  for (std::size_t i = 0; i < made.size(); ++i) {
    std::vector<Shapes::Result> results;
    const std::size_t argument = argument_of(schema, i);
    for (const at::Tensor& tensor : made[i]) {
      Shapes::Result result;
      result.is_argument = argument != std::string::npos;
      result.argument = argument;
      result.defined = tensor.defined();
      if (tensor.defined()) {
        TORCH_CHECK(tensor.layout() == at::kStrided, "host_torch: a result of ", schema.name(), " is not simulated");
        result.type = tensor.scalar_type();
        result.sizes = tensor.sizes().vec();
        result.strides = tensor.strides().vec();
      }
      results.push_back(std::move(result));
    }
    shapes.results.push_back(std::move(results));
    shapes.is_list.push_back(stack[i].isTensorList());
  }
  return shapes;
}

// Some operators take no zeros (probabilities, pivots).
Shapes find_shapes(const Operator& op, const Words& words) {
  try {
    return find_shapes(op, words, 0);
  } catch (const c10::Error&) {
    return find_shapes(op, words, 1);
  }
}

// The generator that an operator draws from, as words; PyTorch's own kernels take it in the same way.
void put_generator(Encoder& encoder, const c10::IValue& argument) {
  const auto given = argument.isNone() ? std::nullopt : std::optional<at::Generator>(argument.toGenerator());
  auto* generator =
      at::get_generator_or_default<at::CUDAGeneratorImpl>(given, at::cuda::detail::getDefaultCUDAGenerator());
  const std::lock_guard<std::mutex> lock(generator->mutex_);
  constexpr std::uint64_t kStep = 4;
  const at::PhiloxCudaState state = generator->philox_cuda_state(kStep);
  if (state.captured_) {
    encoder.put_captured_generator(reinterpret_cast<std::uint64_t>(state.seed_.ptr),
                                   reinterpret_cast<std::uint64_t>(state.offset_.ptr), state.offset_intragraph_);
  } else {
    encoder.put_generator(state.seed_.val, state.offset_.val);
  }
}

bool is_generator(const c10::Argument& argument) {
  return argument.type()->str().find("Generator") != std::string::npos;
}

void encode(Encoder& encoder, const Operator& op, at::ArrayRef<c10::IValue> arguments) {
  const c10::FunctionSchema& schema = op.handle->schema();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (is_generator(schema.arguments()[i])) {
      put_generator(encoder, arguments[i]);
    } else {
      encoder.put(arguments[i]);
    }
  }
  if (op.draws) put_generator(encoder, c10::IValue());
}

// For arguments that differ in addresses (and values of random states) alone, asked once.
const Shapes& shapes_of(std::size_t number, const Words& words, const std::vector<std::size_t>& addresses) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<std::size_t, Words>, std::unique_ptr<Shapes>>;
  Words key = words;
  for (const std::size_t at : addresses) key[at] = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find({number, key});
    if (found != known.end()) return *found->second;
  }
  auto made = std::make_unique<Shapes>(find_shapes(operators()[number], words));
  const std::lock_guard<std::mutex> lock(mutex);
  constexpr std::size_t kMost = 20000;
  if (known.size() < kMost)
    return *known.emplace(std::make_pair(number, std::move(key)), std::move(made)).first->second;
  thread_local std::unique_ptr<Shapes> last;
  last = std::move(made);
  return *last;
}

template <std::size_t bytes>
struct Parameter {
  HostFunction function;
  unsigned char data[bytes];
};

template <std::size_t bytes>
void launch(CUkernel kernel, const Words& words) {
  Parameter<bytes> parameter{run, {}};
  std::memcpy(parameter.data, words.data(), words.size() * sizeof(std::uint64_t));
  void* parameters[] = {&parameter};
  const Driver* functions = driver();
  TORCH_CHECK(functions != nullptr, "no CUDA driver");
  check(functions->cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32, 1, 1, 0,
                                  at::cuda::getCurrentCUDAStream().stream(), parameters, nullptr),
        "cuLaunchKernel");
}

const Kernels& kernels_of(std::size_t number);

void launch(std::size_t number, const Words& words) {
  const std::size_t bytes = words.size() * sizeof(std::uint64_t);
  TORCH_CHECK(bytes <= kHuge, "host_torch: too many parameters of ", operators()[number].handle->schema().name());
  if (bytes <= kSmall) {
    launch<kSmall>(kernels_of(number).small, words);
  } else if (bytes <= kLarge) {
    launch<kLarge>(kernels_of(number).large, words);
  } else {
    launch<kHuge>(kernels_of(number).huge, words);
  }
}

// Tensors for what comes out, in place of the arguments.
void put_results(Stack& stack, std::size_t argument_count, const Shapes& shapes, Words& words, Encoder& encoder) {
  const std::vector<c10::IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(argument_count), stack.end());
  torch::jit::drop(stack, argument_count);
  for (std::size_t i = 0; i < shapes.results.size(); ++i) {
    c10::List<at::Tensor> list;
    for (const Shapes::Result& result : shapes.results[i]) {
      if (result.is_argument || !result.defined) {
        words.push_back(0);
        if (!result.is_argument) list.push_back(at::Tensor());
        continue;
      }
      words.push_back(1);
      list.push_back(at::empty_strided(result.sizes, result.strides, at::TensorOptions(at::kCUDA).dtype(result.type)));
      encoder.put_tensor(list.get(list.size() - 1));
    }
    const bool is_argument = !shapes.results[i].empty() && shapes.results[i][0].is_argument;
    if (is_argument) {
      stack.push_back(arguments[shapes.results[i][0].argument]);
    } else if (shapes.is_list[i]) {
      stack.push_back(list);
    } else {
      stack.push_back(list.get(0));
    }
  }
}

void launch_operator(std::size_t number, Stack* stack) {
  const Operator& op = operators()[number];
  const std::size_t count = op.handle->schema().arguments().size();
  Words words{number};
  Encoder encoder(words);
  encode(encoder, op, torch::jit::last(*stack, count));
  const Words arguments(words.begin() + 1, words.end());
  std::vector<std::size_t> addresses = encoder.addresses();
  for (std::size_t& at : addresses) --at;
  const Shapes& shapes = shapes_of(number, arguments, addresses);
  for (const auto& [argument, sizes] : shapes.resized) {
    torch::jit::peek(*stack, argument, count).toTensor().resize_(sizes);
  }
  if (!shapes.resized.empty()) return launch_operator(number, stack);  // they lie elsewhere now
  put_results(*stack, count, shapes, words, encoder);
  launch(number, words);
}

c10::IValue on(c10::Device device, const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? value.toTensor().to(device) : value;
  if (value.isDevice()) return device;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(tensor.to(device));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& item : value.toListRef()) {
      const bool is_there = !item.isNone() && item.toTensor().defined();
      list.push_back(is_there ? std::optional<at::Tensor>(item.toTensor().to(device)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// By copies to the host and back.
void run_on_host(const Operator& op, Stack* stack) {
  const std::size_t count = op.handle->schema().arguments().size();
  Stack values;
  for (const c10::IValue& value : torch::jit::last(*stack, count)) values.push_back(on(at::kCPU, value));
  torch::jit::drop(*stack, count);
  compute(op, values);
  for (const c10::IValue& value : values) stack->push_back(on(at::kCUDA, value));
}

// A tensor is indexed by numbers, not by a mask.
bool is_indexed_by_numbers(const OperatorHandle& handle, const Stack& stack) {
  if (handle.schema().name() != "aten::index") return false;
  for (const c10::IValue& index : stack.back().toListRef()) {
    if (index.isNone() || !index.toTensor().defined()) continue;
    const at::ScalarType type = index.toTensor().scalar_type();
    if (type == at::kBool || type == at::kByte) return false;
  }
  return true;
}

// Where an operator's arguments lie, the current device where none does.
std::optional<c10::Device> device_of(const Stack& stack) {
  const auto of = [](const c10::IValue& value) -> std::optional<c10::Device> {
    const bool there = value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda();
    return there ? std::optional<c10::Device>(value.toTensor().device()) : std::nullopt;
  };
  for (const c10::IValue& value : stack) {
    if (const auto device = of(value)) return device;
    if (!value.isTensorList() && !value.isOptionalTensorList()) continue;
    for (const c10::IValue& item : value.toListRef()) {
      if (const auto device = of(item)) return device;
    }
  }
  return std::nullopt;
}

void boxed(const OperatorHandle& handle, Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of(torch::jit::last(*stack, handle.schema().arguments().size()).vec()));
  const std::size_t number = numbers().at(handle.operator_name());
  const Operator& op = operators()[number];
  if (op.on_host && !is_indexed_by_numbers(handle, *stack)) {
    run_on_host(op, stack);
  } else {
    launch_operator(number, stack);
  }
}

// Which kernel of attention there is to be: PyTorch's number of the one that is made of other operators.
void choose_attention(const OperatorHandle& handle, Stack* stack) {
  torch::jit::drop(*stack, handle.schema().arguments().size());
  stack->push_back(std::int64_t{0});
}

// Copies that PyTorch leaves to the driver stay there.
at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const bool both = self.is_cuda() && source.is_cuda();
  const bool by_driver = self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() &&
                         self.strides() == source.strides() && self.is_non_overlapping_and_dense();
  if (!both || by_driver || self.numel() == 0) return at::native::copy_(self, source, non_blocking);
  const c10::DeviceGuard guard(self.device());
  static const std::size_t number = numbers().at({"aten::copy_", ""});
  Stack stack{self, source, non_blocking};
  launch_operator(number, &stack);
  return self;
}

bool tells_numbers(const OperatorHandle& op) {
  if (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output)) return true;
  for (const c10::Argument& result : op.schema().returns()) {
    const auto kind = result.type()->kind();
    const bool tensors = kind == c10::TypeKind::ListType &&
                         result.type()->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
    if (kind != c10::TypeKind::TensorType && !tensors) return true;
  }
  return false;
}

void add_operator(const OperatorHandle& handle) {
  Operator op;
  op.handle = handle;
  op.replacement = find_replacement(handle.schema().name());
  op.on_host = tells_numbers(handle);
  const auto& arguments = handle.schema().arguments();
  op.draws =
      handle.hasTag(at::Tag::nondeterministic_seeded) && std::none_of(arguments.begin(), arguments.end(), is_generator);
  numbers()[handle.operator_name()] = operators().size();
  operators().push_back(op);
}

std::string text_of(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// All of them, at the first launch.
std::vector<Kernels> load_kernels() {
  std::string image = "SIMCUDA MODULE 1\n";
  for (const Operator& op : operators()) {
    const std::string name = text_of(op.handle->operator_name());
    image += name + " = _Z9host_call8HostCallILm504EE\n" + name + "/large = _Z9host_call8HostCallILm4088EE\n" + name +
             "/huge = _Z9host_call8HostCallILm16376EE\n";
  }
  const Driver* functions = driver();
  TORCH_CHECK(functions != nullptr, "no CUDA driver");
  CUlibrary library = nullptr;
  check(functions->cuLibraryLoadData(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData");
  std::vector<Kernels> loaded;
  for (const Operator& op : operators()) {
    const std::string name = text_of(op.handle->operator_name());
    Kernels& kernels = loaded.emplace_back();
    check(functions->cuLibraryGetKernel(&kernels.small, library, name.c_str()), "cuLibraryGetKernel");
    check(functions->cuLibraryGetKernel(&kernels.large, library, (name + "/large").c_str()), "cuLibraryGetKernel");
    check(functions->cuLibraryGetKernel(&kernels.huge, library, (name + "/huge").c_str()), "cuLibraryGetKernel");
  }
  return loaded;
}

const Kernels& kernels_of(std::size_t number) {
  static const auto& loaded = *new std::vector<Kernels>(load_kernels());
  return loaded[number];
}

void install() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  constexpr char kSpace[] = "aten::";
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.compare(0, sizeof kSpace - 1, kSpace) != 0) continue;
    const std::string plain = name.name.substr(sizeof kSpace - 1);
    const auto handle = c10::Dispatcher::singleton().findOp(name);
    const bool has_kernel = handle->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
    if ((!has_kernel && plain != "copy_") || is_kept(plain)) continue;
    if (plain == "_fused_sdp_choice") {
      library->impl(plain.c_str(), torch::CppFunction::makeFromBoxedFunction<&choose_attention>());
      continue;
    }
    add_operator(*handle);
    if (plain == "copy_") continue;
    library->impl(text_of(name).c_str() + sizeof kSpace - 1, torch::CppFunction::makeFromBoxedFunction<&boxed>());
  }
  library->impl("copy_", TORCH_FN(copy));
}

}  // namespace
}  // namespace host_torch

// Once, with PyTorch imported. 0: done; else why not is on stderr.
extern "C" __attribute__((visibility("default"))) int host_torch_install() {
  try {
    host_torch::install();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "host_torch: %s\n", error.what());
    return 1;
  }
}
