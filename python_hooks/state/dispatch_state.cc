// The switches beside arguments and modules that decide which kernels run.
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>

#include "python_hooks/state/portable.h"
#include "python_hooks/state/torch_api.h"
#include "python_hooks/state/torch_symbols.h"
#include "shim/lifecycle/elf_lookup.h"

namespace grape::python::state {
namespace {

constexpr std::int8_t kCpu = 0, kCuda = 1;

// Switches that at::Context tells by a method of its own, each a byte: the function of torch._C, and the method that it
// asks. The methods are called where they answer the same; a version's that lacks one is asked by the function.
constexpr const char* kFlags[][2] = {
    {"_get_cudnn_enabled", "userEnabledCuDNN"},
    {"_get_cudnn_benchmark", "benchmarkCuDNN"},
    {"_get_cudnn_deterministic", "deterministicCuDNN"},
    {"_get_cublas_allow_fp16_accumulation", "allowFP16AccumulationCuBLAS"},
    {"_get_flash_sdp_enabled", "userEnabledFlashSDP"},
    {"_get_mem_efficient_sdp_enabled", "userEnabledMemEfficientSDP"},
    {"_get_math_sdp_enabled", "userEnabledMathSDP"},
    {"_get_cudnn_sdp_enabled", "userEnabledCuDNNSDP"},
    {"_get_overrideable_sdp_enabled", "userEnabledOverrideableSDP"},
    {"_get_fa3_sdp_enabled", "userEnabledFA3SDP"},
    {"_get_math_sdp_allow_fp16_bf16_reduction", "allowFP16BF16ReductionMathSDP"},
    {"_get_deterministic_algorithms", "deterministicAlgorithms"},
    {"_get_deterministic_algorithms_warn_only", "deterministicAlgorithmsWarnOnly"},
    {"_get_deterministic_fill_uninitialized_memory", "deterministicFillUninitializedMemory"},
    {"_get_mkldnn_enabled", "userEnabledMkldnn"},
    {"_get_nnpack_enabled", "userEnabledNNPACK"},
    {"_get_linalg_preferred_backend", "linalgPreferredBackend"},
    {"_get_blas_preferred_backend", "blasPreferredBackend"},
};
// Functions of torch._C without arguments that tell a switch; those that a version lacks are left out.
constexpr const char* kSwitches[] = {
    "_get_cudnn_allow_tf32",
    "_get_cublas_allow_tf32",
    "_get_float32_matmul_precision",
    "_get_cublas_allow_fp16_reduced_precision_reduction",
    "_get_cublas_allow_bf16_reduced_precision_reduction",
    "_get_sdp_priority_order",
    "_cuda_get_cudnn_benchmark_limit",
    "_get_sm_carveout_experimental",
};
// Arguments of torch._C._get_fp32_precision_getter.
constexpr const char* kPrecisions[][2] = {
    {"generic", "all"}, {"cuda", "all"}, {"cuda", "matmul"}, {"cuda", "conv"}, {"cuda", "rnn"}};

constexpr long kMonitoringTools = 6, kCoverageTool = 1;

constexpr std::size_t kMostSwitches = std::size(kFlags) + std::size(kSwitches) + std::size(kPrecisions) + 2;

struct Getter {
  Object* function = nullptr;
  Object* arguments = nullptr;  // null: none
};

using Flag = std::uint8_t (*)(const void* context);
using Precision = std::int32_t (*)(const void* context, std::int32_t backend, std::int32_t operation);

// What is called for each state, references held for good.
struct Getters {
  const void* context = nullptr;  // at::Context
  Flag flags[std::size(kFlags)];
  std::size_t flag_count = 0;
  Precision precision = nullptr;  // null: torch._C is asked
  std::int32_t precisions[std::size(kPrecisions)][2];
  Getter switches[kMostSwitches];
  std::size_t count = 0;
  Object* cuda_dict = nullptr;                               // torch.cuda's
  Object* initialized = nullptr;                             // "_initialized"
  Object *forward_dict = nullptr, *forward_level = nullptr;  // torch.autograd.forward_ad's, "_current_level"
  Object *device = nullptr, *stream = nullptr, *mode_at = nullptr, *device_mode = nullptr, *trace = nullptr,
         *profile = nullptr;
  Object* zero = nullptr;                                  // (0,)
  Object *monitor = nullptr, *monitored_events = nullptr;  // sys.monitoring's get_tool and get_events, from 3.12 on
  Object* tools[kMonitoringTools] = {};                    // their arguments
};

Object* held(Object* object) noexcept {
  if (object != nullptr) g_api.Py_IncRef(object);
  return object;
}

// A tuple of the items, which it takes over; null if one is null.
Object* tuple_of(Object* first, Object* second) noexcept {
  Object* tuple = first != nullptr ? g_api.PyTuple_New(second != nullptr ? 2 : 1) : nullptr;
  if (tuple == nullptr) return nullptr;
  g_api.PyTuple_SetItem(tuple, 0, first);
  if (second != nullptr) g_api.PyTuple_SetItem(tuple, 1, second);
  return tuple;
}

// The method of at::Context, if it answers as the function does.
Flag flag_of(const void* context, const char* method, Object* function) noexcept {
  Flag flag = nullptr;
  for (const char* constant : {"K", ""}) {
    char symbol[128];
    std::snprintf(symbol, sizeof symbol, "_ZN%s2at7Context%zu%sEv", constant, std::strlen(method), method);
    if (flag == nullptr) flag = reinterpret_cast<Flag>(lifecycle::symbol_in("libtorch_cpu.so", symbol));
  }
  if (flag == nullptr) return nullptr;
  const Reference answer(g_api.PyObject_CallObject(function, nullptr));
  if (!answer) return nullptr;
  const Reference number(g_api.PyNumber_Index(answer.get()));
  return number && g_api.PyLong_AsLong(number.get()) == flag(context) ? flag : nullptr;
}

// Reads the precisions as torch._C does, if that gives what it gives.
Precision find_precision(const void* context, Object* getter, std::int32_t (&numbers)[std::size(kPrecisions)][2]) {
  constexpr const char* kValues[] = {"none", "ieee", "tf32", "bf16"};
  using FromText = std::int32_t (*)(const std::string&);
  const auto find = [](const char* symbol) { return lifecycle::symbol_in("libtorch_cpu.so", symbol); };
  const auto precision =
      reinterpret_cast<Precision>(find("_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE"));
  const auto backend =
      reinterpret_cast<FromText>(find("_ZN2at11str2backendERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"));
  const auto operation =
      reinterpret_cast<FromText>(find("_ZN2at6str2opERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"));
  if (precision == nullptr || backend == nullptr || operation == nullptr) return nullptr;
  for (std::size_t i = 0; i < std::size(kPrecisions); ++i) {
    const Reference arguments(
        tuple_of(g_api.PyUnicode_FromString(kPrecisions[i][0]), g_api.PyUnicode_FromString(kPrecisions[i][1])));
    const Reference answer(arguments ? g_api.PyObject_CallObject(getter, arguments.get()) : nullptr);
    if (!answer) return nullptr;
    numbers[i][0] = backend(kPrecisions[i][0]);
    numbers[i][1] = operation(kPrecisions[i][1]);
    const auto value = static_cast<std::uint32_t>(precision(context, numbers[i][0], numbers[i][1]));
    if (value >= std::size(kValues) || !text_is(answer.get(), kValues[value])) return nullptr;
  }
  return precision;
}

const void* find_context() noexcept {
  using Find = const void* (*)();
  const auto find = reinterpret_cast<Find>(lifecycle::symbol_in("libtorch_cpu.so", "_ZN2at13globalContextEv"));
  return find != nullptr ? find() : nullptr;
}

void add(Getters& getters, Object* function, Object* arguments) noexcept {
  if (function != nullptr) getters.switches[getters.count++] = {held(function), arguments};
}

void add_switches(Getters& getters) noexcept {
  for (const auto& [name, method] : kFlags) {
    Object* function = torch_member("torch._C", name);
    const bool known = function != nullptr && getters.context != nullptr;
    const Flag flag = known ? flag_of(getters.context, method, function) : nullptr;
    if (flag != nullptr) {
      getters.flags[getters.flag_count++] = flag;
    } else {
      add(getters, function, nullptr);
    }
  }
  for (const char* name : kSwitches) add(getters, torch_member("torch._C", name), nullptr);
  add(getters, torch_member("torch", "get_default_dtype"), nullptr);
}

void add_precisions(Getters& getters) noexcept {
  Object* getter = torch_member("torch._C", "_get_fp32_precision_getter");
  if (getter == nullptr) return;
  try {
    if (getters.context != nullptr) {
      getters.precision = find_precision(getters.context, getter, getters.precisions);
    }
  } catch (...) {  // PyTorch knows other names, or no memory
    getters.precision = nullptr;
  }
  if (getters.precision != nullptr) return;
  for (const auto& names : kPrecisions) {
    add(getters, getter, tuple_of(g_api.PyUnicode_FromString(names[0]), g_api.PyUnicode_FromString(names[1])));
  }
}

Getters make_getters() noexcept {
  Getters getters;
  getters.context = find_context();
  add_switches(getters);
  add_precisions(getters);
  Object* cuda = imported_module("torch.cuda");
  getters.cuda_dict = cuda != nullptr ? held(module_dict(cuda)) : nullptr;
  Object* forward = imported_module("torch.autograd.forward_ad");
  getters.forward_dict = forward != nullptr ? held(module_dict(forward)) : nullptr;
  getters.forward_level = g_api.PyUnicode_InternFromString("_current_level");
  getters.initialized = g_api.PyUnicode_InternFromString("_initialized");
  getters.device = held(torch_member("torch._C", "_cuda_getDevice"));
  getters.stream = held(torch_member("torch._C", "_cuda_getCurrentRawStream"));
  getters.mode_at = held(torch_member("torch._C", "_get_function_stack_at"));
  getters.device_mode = held(torch_member("torch.utils._device", "DeviceContext"));
  getters.trace = held(torch_member("sys", "gettrace"));
  getters.profile = held(torch_member("sys", "getprofile"));
  Object* sys = imported_module("sys");
  Object* monitoring = sys != nullptr ? g_api.PyObject_GetAttrString(sys, "monitoring") : nullptr;
  if (monitoring != nullptr) {
    getters.monitor = g_api.PyObject_GetAttrString(monitoring, "get_tool");
    getters.monitored_events = g_api.PyObject_GetAttrString(monitoring, "get_events");
    for (long tool = 0; tool < kMonitoringTools; ++tool) {
      getters.tools[tool] = tuple_of(g_api.PyLong_FromLong(tool), nullptr);
    }
  }
  getters.zero = g_api.PyTuple_New(1);
  Object* number = g_api.PyNumber_Index(g_api._Py_FalseStruct);
  if (getters.zero != nullptr && number != nullptr) g_api.PyTuple_SetItem(getters.zero, 0, number);
  g_api.PyErr_Clear();
  return getters;
}

const Getters& getters() noexcept {
  static const Getters made = make_getters();
  return made;
}

// Appends to a state; too much of it is noted.
class Writer {
 public:
  Writer(DispatchState& state, bool portable) noexcept : portable_(portable), state_(state) { state_.byte_count = 0; }
  void put(const void* data, std::size_t size) noexcept {
    if (state_.byte_count + size > DispatchState::kMostBytes) {
      full_ = true;
      return;
    }
    std::memcpy(state_.bytes + state_.byte_count, data, size);
    state_.byte_count += size;
  }
  template <typename T>
  void put(const T& value) noexcept {
    static_assert(!std::is_pointer_v<T>, "its value is meant");
    put(&value, sizeof value);
  }
  void put_value(Object* value) noexcept;
  bool full() const noexcept { return full_; }

  const bool portable_;

 private:
  DispatchState& state_;
  bool full_ = false;
};

std::uint64_t portable_constant(Object* constant) noexcept {
  try {
    return portable_name(constant);
  } catch (const std::bad_alloc&) {
    return reinterpret_cast<std::uint64_t>(constant);  // like no other process's
  }
}

void Writer::put_value(Object* value) noexcept {
  const auto tag = [this](char letter) { put(letter); };
  if (value == nullptr) {
    g_api.PyErr_Clear();
    tag('!');  // the switches contradict each other: the same each time
  } else if (value == g_api._Py_NoneStruct || value == g_api._Py_TrueStruct || value == g_api._Py_FalseStruct) {
    tag(value == g_api._Py_NoneStruct ? 'n' : value == g_api._Py_TrueStruct ? 't' : 'f');
  } else if (torch_type(type_of(value)) == TorchType::kConstant) {
    tag('c');
    put(portable_ ? portable_constant(value) : reinterpret_cast<std::uint64_t>(value));
  } else if (is_text(value)) {
    char text[16];
    const auto bytes = static_cast<std::uint8_t>(copy_text(value, text, sizeof text));
    tag('s');
    put(bytes);
    put(text, bytes);
  } else if (is_exactly(value, g_api.PyTuple_Type) || is_exactly(value, g_api.PyList_Type)) {
    tag('l');
    put(static_cast<std::uint8_t>(item_count(value)));
    Object* const* items = is_exactly(value, g_api.PyTuple_Type) ? tuple_data(value) : list_data(value);
    for (std::size_t i = 0; i < item_count(value); ++i) put_value(items[i]);
  } else {
    const Reference index(g_api.PyNumber_Index(value));
    int overflow = 0;
    tag('i');
    put(index ? g_api.PyLong_AsLongLongAndOverflow(index.get(), &overflow) : -1LL);
  }
}

// torch.set_default_device is a mode, too; any other mode sees every call of torch.
bool put_function_modes(Writer& writer, const char*& reason) noexcept {
  const std::int64_t modes = g_torch.function_modes();
  writer.put(static_cast<std::uint8_t>(modes));
  writer.put(static_cast<std::uint8_t>(g_torch.functions_disabled()));
  if (modes == 0) return true;
  const Getters& get = getters();
  const Reference mode(modes == 1 && get.mode_at != nullptr && get.zero != nullptr
                           ? g_api.PyObject_CallObject(get.mode_at, get.zero)
                           : nullptr);
  if (mode && is_exactly(mode.get(), get.device_mode)) {
    Object* attributes = instance_dict(mode.get());
    Object* device = attributes != nullptr ? dict_item(attributes, "device") : nullptr;
    if (device != nullptr && torch_type(type_of(device)) == TorchType::kDevice) {
      writer.put(device_value(device));
      return true;
    }
  }
  reason = "a TorchFunctionMode is active, which sees every call of torch";
  return false;
}

bool put_modes(Writer& writer, DispatchState& out, const char*& reason) noexcept {
  out.grad_enabled = g_torch.aoti_torch_grad_mode_is_enabled();
  out.inference_mode = g_torch.inference_mode();
  writer.put(out.grad_enabled);
  writer.put(out.inference_mode);
  const std::uint64_t* keys = local_keys();
  if (keys == nullptr || g_torch.any_dispatch_modes(false)) {
    reason = "a TorchDispatchMode is active, which sees every operation";
    return false;
  }
  writer.put(keys, 16);
  // Inference mode takes keys away; what adds keys watches operations or changes them.
  const std::uint64_t ordinary = g_torch.allowed_keys;
  if ((keys[0] & ~ordinary) != 0) {
    reason = "a transform (torch.func, tracing, a key of dispatch) is active";
    return false;
  }
  if (g_torch.has_callbacks()) {
    reason = "a profiler watches the operations (torch.profiler, record_function)";
    return false;
  }
  const Getters& get = getters();
  Object* level = get.forward_dict != nullptr && get.forward_level != nullptr
                      ? g_api.PyDict_GetItemWithError(get.forward_dict, get.forward_level)
                      : nullptr;
  int overflow = 0;
  if (level != nullptr && g_api.PyLong_AsLongLongAndOverflow(level, &overflow) >= 0) {
    reason = "forward-mode differentiation is active (torch.autograd.forward_ad)";
    return false;
  }
  for (const std::int8_t device : {kCpu, kCuda}) {
    const bool enabled = g_torch.autocast_enabled(device);
    writer.put(enabled);
    writer.put(enabled ? g_torch.autocast_type(device) : std::int8_t{-1});
  }
  writer.put(g_torch.autocast_cache());
  return put_function_modes(writer, reason);
}

// Current device and stream, without waking up a CUDA that the program has not used.
bool put_device(Writer& writer, DispatchState& out, const char*& reason) noexcept {
  out.device = 0;
  out.stream = 0;
  const Getters& get = getters();
  Object* ready = get.cuda_dict != nullptr && get.initialized != nullptr
                      ? g_api.PyDict_GetItemWithError(get.cuda_dict, get.initialized)
                      : nullptr;
  if (ready == g_api._Py_TrueStruct && get.device != nullptr && get.stream != nullptr) {
    int overflow = 0;
    Object* number = g_api.PyObject_CallObject(get.device, nullptr);
    const Reference arguments(tuple_of(number, nullptr));
    const Reference stream(arguments ? g_api.PyObject_CallObject(get.stream, arguments.get()) : nullptr);
    if (!stream) {
      g_api.PyErr_Clear();
      reason = "the current CUDA stream is not known";
      return false;
    }
    out.device = static_cast<std::int32_t>(g_api.PyLong_AsLongLongAndOverflow(number, &overflow));
    out.stream = static_cast<std::uint64_t>(g_api.PyLong_AsLongLongAndOverflow(stream.get(), &overflow));
  }
  writer.put(out.device);
  writer.put(writer.portable_ ? std::uint64_t{out.stream != 0} : out.stream);
  return true;
}

// Does `getter` (of the thread's trace or profile function) answer with one?
bool is_set(Object* getter) noexcept {
  if (getter == nullptr) return false;
  const Reference function(g_api.PyObject_CallObject(getter, nullptr));
  return function && function.get() != g_api._Py_NoneStruct;
}

// A debugger or a coverage tool may watch single functions, which cannot be asked for; others count while they watch
// all code, as in observers.cc.
bool is_monitored(const Getters& get) noexcept {
  if (get.monitor == nullptr || get.monitored_events == nullptr) return false;
  for (long tool = 0; tool < kMonitoringTools; ++tool) {
    if (get.tools[tool] == nullptr) continue;
    const Reference name(g_api.PyObject_CallObject(get.monitor, get.tools[tool]));
    if (!name || name.get() == g_api._Py_NoneStruct) continue;
    if (tool <= kCoverageTool) return true;
    const Reference events(g_api.PyObject_CallObject(get.monitored_events, get.tools[tool]));
    if (events && g_api.PyLong_AsLong(events.get()) != 0) return true;
  }
  return false;
}

bool take(Writer& writer, DispatchState& out, const char*& reason) noexcept {
  const KeepException keep;
  const Getters& get = getters();
  if (!put_modes(writer, out, reason) || !put_device(writer, out, reason)) return false;
  if (is_set(get.trace)) {
    reason = "a debugger or tracer follows each line (sys.settrace)";
    return false;
  }
  if (is_set(get.profile)) {
    reason = "a profiler follows each call (sys.setprofile)";
    return false;
  }
  if (is_monitored(get)) {
    reason = "a profiler or debugger follows the code (sys.monitoring)";
    return false;
  }
  for (std::size_t i = 0; i < get.flag_count; ++i) writer.put(get.flags[i](get.context));
  if (get.precision != nullptr) {
    for (const auto& numbers : get.precisions) {
      writer.put(static_cast<std::uint8_t>(get.precision(get.context, numbers[0], numbers[1])));
    }
  }
  for (std::size_t i = 0; i < get.count; ++i) {
    const Getter& getter = get.switches[i];
    Object* value = g_api.PyObject_CallObject(getter.function, getter.arguments);
    writer.put_value(value);
    if (value != nullptr) g_api.Py_DecRef(value);
  }
  if (writer.full()) reason = "more switches of torch are set than expected";
  return !writer.full();
}

}  // namespace

bool take_dispatch_state(DispatchState& out, const char*& reason) noexcept {
  Writer writer(out, false);
  return take(writer, out, reason);
}

bool take_portable_dispatch_state(DispatchState& out) noexcept {
  Writer writer(out, true);
  const char* ignored = nullptr;
  return take(writer, out, ignored);
}

}  // namespace grape::python::state
