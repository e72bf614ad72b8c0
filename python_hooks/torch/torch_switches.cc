#include "python_hooks/torch/torch_switches.h"

#include <cstdio>
#include <iterator>
#include <string>

#include "python_hooks/torch/torch_symbols.h"

namespace grape::python::torch {
namespace {

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

// How others are read from a method of at::Context: as `function`, called with the context, gives it.
using Reader = void (*)(DispatchWriter& writer, void* function, const void* context);

template <typename Result>
Result ask(void* function, const void* context) {
  return reinterpret_cast<Result (*)(const void*)>(function)(context);
}

void read_bool(DispatchWriter& writer, void* function, const void* context) {
  writer.put_bool(ask<std::uint8_t>(function, context) != 0);
}

void read_number(DispatchWriter& writer, void* function, const void* context) {
  writer.put_number(ask<std::int32_t>(function, context));
}

// The argument, where it takes one, is an std::optional<at::Float32Op>: none.
void read_bool_of_any(DispatchWriter& writer, void* function, const void* context) {
  using Method = std::uint8_t (*)(const void*, std::uint64_t);
  writer.put_bool(reinterpret_cast<Method>(function)(context, 0) != 0);
}

void read_matmul_precision(DispatchWriter& writer, void* function, const void* context) {
  constexpr const char* kNames[] = {"highest", "high", "medium"};
  const auto value = static_cast<std::uint32_t>(ask<std::int32_t>(function, context));
  if (value >= std::size(kNames)) return writer.put_number(value);
  writer.put_text(kNames[value], static_cast<std::uint8_t>(std::strlen(kNames[value])));
}

// at::CuBLASReductionOption: are reduced precision and, with it, a split K allowed?
void read_reduction(DispatchWriter& writer, void* function, const void* context) {
  const auto option = ask<std::uint8_t>(function, context);
  if (option > 2) return writer.put_number(option);
  writer.put_items(2);
  writer.put_bool(option == 0);
  writer.put_bool(option != 2);
}

// An std::optional<int32_t>. What it held before it was emptied is left in it, and counts: only one that was never set
// is surely none.
void read_optional(DispatchWriter& writer, void* function, const void* context) {
  const auto raw = ask<std::uint64_t>(function, context);
  if (raw == 0) return writer.put_none();
  if (raw >> 32 == 1) return writer.put_number(static_cast<std::int32_t>(raw));
  writer.put('o');
  writer.put(raw);
}

// A std::array of five, more than fits into registers, so that there is room for others as well.
void read_order(DispatchWriter& writer, void* function, const void* context) {
  struct Order {
    std::int32_t backends[64];
  };
  const auto order = ask<Order>(function, context);
  constexpr std::uint8_t kCount = 5;
  writer.put_items(kCount);
  for (std::size_t i = 0; i < kCount; ++i) writer.put_number(order.backends[i]);
}

// Functions of torch._C without arguments that tell a switch; those that a version lacks are left out. And what reads
// the same: used where it gave the same.
constexpr struct {
  const char* name;
  const char* methods[2];  // by version
  Reader readers[2];
  bool warns = false;  // some versions' method: what Python would show goes to stderr instead
} kSwitches[] = {
    {"_get_cudnn_allow_tf32",
     {"_ZNK2at7Context14allowTF32CuDNNESt8optionalINS_9Float32OpEE", "_ZNK2at7Context14allowTF32CuDNNEv"},
     {read_bool_of_any},
     true},
    {"_get_cublas_allow_tf32", {"_ZNK2at7Context15allowTF32CuBLASEv"}, {read_bool}, true},
    {"_get_float32_matmul_precision", {"_ZNK2at7Context22float32MatmulPrecisionEv"}, {read_matmul_precision}, true},
    {"_get_cublas_allow_fp16_reduced_precision_reduction",
     {"_ZNK2at7Context24allowFP16ReductionCuBLASEv"},
     {read_bool, read_reduction}},
    {"_get_cublas_allow_bf16_reduced_precision_reduction",
     {"_ZNK2at7Context24allowBF16ReductionCuBLASEv"},
     {read_bool, read_reduction}},
    {"_get_sdp_priority_order", {"_ZN2at7Context16sDPPriorityOrderEv"}, {read_order}},
    {"_cuda_get_cudnn_benchmark_limit", {"_ZNK2at7Context19benchmarkLimitCuDNNEv"}, {read_number}},
    {"_get_sm_carveout_experimental", {"_ZNK2at7Context24_SMCarveout_EXPERIMENTALEv"}, {read_optional}},
};
// Arguments of torch._C._get_fp32_precision_getter.
constexpr const char* kPrecisions[][2] = {
    {"generic", "all"}, {"cuda", "all"}, {"cuda", "matmul"}, {"cuda", "conv"}, {"cuda", "rnn"}};

constexpr std::size_t kMostSwitches = std::size(kFlags) + std::size(kSwitches) + std::size(kPrecisions);

// Of Python's, and what tells the same without it, if that was found.
struct Switch {
  Object* function = nullptr;
  Object* arguments = nullptr;  // null: none
  Reader reader = nullptr;
  void* method = nullptr;
  bool warns = false;
};

using Flag = std::uint8_t (*)(const void* context);
using Precision = std::int32_t (*)(const void* context, std::int32_t backend, std::int32_t operation);
using DefaultType = std::int8_t (*)();

// What is called for each state, references held for good.
struct Switches {
  const void* context = nullptr;  // at::Context
  Flag flags[std::size(kFlags)];
  std::size_t flag_count = 0;
  Precision precision = nullptr;  // null: torch._C is asked
  std::int32_t precisions[std::size(kPrecisions)][2];
  Switch others[kMostSwitches];
  std::size_t count = 0;
  bool (*warns_always)() = nullptr;  // torch.set_warn_always

  Object* get_default_type = nullptr;  // torch.get_default_dtype
  DefaultType default_type = nullptr;  // its number
  std::int8_t known_number = 0;        // one such number, and what Python says then
  Object* known_type = nullptr;
};

template <typename Function>
bool find_in_torch(Function& function, const char* symbol) noexcept {
  return find_function(function, "libtorch_cpu.so", symbol);
}

// The method of at::Context, if it answers as the function does.
Flag flag_of(const void* context, const char* method, Object* function) noexcept {
  Flag flag = nullptr;
  for (const char* constant : {"K", ""}) {
    char symbol[128];
    std::snprintf(symbol, sizeof symbol, "_ZN%s2at7Context%zu%sEv", constant, std::strlen(method), method);
    if (find_in_torch(flag, symbol)) break;
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
  Precision precision = nullptr;
  FromText backend = nullptr, operation = nullptr;
  if (!find_in_torch(precision, "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE") ||
      !find_in_torch(backend, "_ZN2at11str2backendERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE") ||
      !find_in_torch(operation, "_ZN2at6str2opERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE")) {
    return nullptr;
  }
  for (std::size_t i = 0; i < std::size(kPrecisions); ++i) {
    const Reference arguments(g_api.Py_BuildValue("(ss)", kPrecisions[i][0], kPrecisions[i][1]));
    const Reference answer(arguments ? g_api.PyObject_CallObject(getter, arguments.get()) : nullptr);
    if (!answer) return nullptr;
    numbers[i][0] = backend(kPrecisions[i][0]);
    numbers[i][1] = operation(kPrecisions[i][1]);
    const auto value = static_cast<std::uint32_t>(precision(context, numbers[i][0], numbers[i][1]));
    if (value >= std::size(kValues) || !text_is(answer.get(), kValues[value])) return nullptr;
  }
  return precision;
}

void write_by_python(DispatchWriter& writer, const Switch& one) noexcept {
  const Reference value(g_api.PyObject_CallObject(one.function, one.arguments));
  writer.put_value(value.get());
}

void write_directly(DispatchWriter& writer, const Switch& one, const void* context) noexcept {
  try {
    one.reader(writer, one.method, context);
  } catch (...) {  // what Python makes an exception of
    writer.put_failure();
  }
}

// Does it read what Python says now, and that is no failure, which would tell of nothing?
bool reads_the_same(const Switch& one, const void* context) noexcept {
  DispatchState states[2];
  DispatchWriter said(states[0], false), read(states[1], false);
  write_by_python(said, one);
  if (said.failed()) return false;
  write_directly(read, one, context);
  return states[0].same_as(states[1]);
}

void add(Switches& switches, Object* function, Object* arguments) noexcept {
  if (function == nullptr) return;
  Switch& added = switches.others[switches.count++];
  added.function = new_reference(function);
  added.arguments = arguments;
}

void add_flags(Switches& switches) noexcept {
  for (const auto& [name, method] : kFlags) {
    Object* function = module_member("torch._C", name);
    const bool known = function != nullptr && switches.context != nullptr;
    const Flag flag = known ? flag_of(switches.context, method, function) : nullptr;
    if (flag != nullptr) {
      switches.flags[switches.flag_count++] = flag;
    } else {
      add(switches, function, nullptr);
    }
  }
}

void add_others(Switches& switches) noexcept {
  for (const auto& [name, methods, readers, warns] : kSwitches) {
    Object* function = module_member("torch._C", name);
    if (function == nullptr) continue;
    add(switches, function, nullptr);
    Switch& added = switches.others[switches.count - 1];
    added.warns = warns;
    for (const char* method : methods) {
      if (switches.context == nullptr || method == nullptr || added.method != nullptr) continue;
      find_in_torch(added.method, method);
    }
    for (const Reader reader : readers) {
      if (reader == nullptr || added.method == nullptr || added.reader != nullptr) continue;
      Switch tried = added;
      tried.reader = reader;
      if (reads_the_same(tried, switches.context)) added = tried;
    }
  }
}

void add_precisions(Switches& switches) noexcept {
  Object* getter = module_member("torch._C", "_get_fp32_precision_getter");
  if (getter == nullptr) return;
  try {
    if (switches.context != nullptr) {
      switches.precision = find_precision(switches.context, getter, switches.precisions);
    }
  } catch (...) {  // PyTorch knows other names, or no memory
    switches.precision = nullptr;
  }
  if (switches.precision != nullptr) return;
  for (const auto& names : kPrecisions) {
    add(switches, getter, g_api.Py_BuildValue("(ss)", names[0], names[1]));
  }
}

// As torch.get_default_dtype() says it: the number must be that of what it gives.
void add_default_type(Switches& switches) noexcept {
  Object* function = new_reference(module_member("torch", "get_default_dtype"));
  if (function == nullptr) return;
  switches.get_default_type = function;
  DefaultType number = nullptr;
  Object* (*type_of_number)(std::int8_t) = nullptr;
  if (!find_function(number, "libc10.so", "_ZN3c1031get_default_dtype_as_scalartypeEv") ||
      !find_function(type_of_number, "libtorch_python.so", "_ZN5torch11getTHPDtypeEN3c1010ScalarTypeE")) {
    return;
  }
  const Reference said(g_api.PyObject_CallObject(function, nullptr));
  constexpr std::int8_t kMostTypes = 16;  // which all versions have
  const std::int8_t found = number();
  if (!said || found < 0 || found >= kMostTypes) return;
  try {
    if (type_of_number(found) != said.get()) return;
  } catch (...) {  // it has none of that number
    return;
  }
  switches.known_type = new_reference(said.get());
  switches.known_number = found;
  switches.default_type = number;
}

Switches make_switches() noexcept {
  Switches switches;
  const void* (*find_context)() = nullptr;
  if (find_in_torch(find_context, "_ZN2at13globalContextEv")) switches.context = find_context();
  find_function(switches.warns_always, "libc10.so", "_ZN3c1012WarningUtils14get_warnAlwaysEv");
  add_flags(switches);
  add_others(switches);
  add_default_type(switches);
  add_precisions(switches);
  g_api.PyErr_Clear();
  return switches;
}

const Switches& known_switches() noexcept {
  static const Switches made = make_switches();
  return made;
}

void put_default_type(DispatchWriter& writer, const Switches& switches, bool by_python) noexcept {
  if (switches.get_default_type == nullptr) return;
  if (!by_python && switches.default_type != nullptr && switches.default_type() == switches.known_number) {
    writer.put_constant(switches.known_type);
    return;
  }
  Switch asked;
  asked.function = switches.get_default_type;
  write_by_python(writer, asked);
}

}  // namespace

void put_switches(DispatchWriter& writer, bool by_python) noexcept {
  const Switches& switches = known_switches();
  for (std::size_t i = 0; i < switches.flag_count; ++i) writer.put(switches.flags[i](switches.context));
  if (switches.precision != nullptr) {
    for (const auto& numbers : switches.precisions) {
      writer.put(static_cast<std::uint8_t>(switches.precision(switches.context, numbers[0], numbers[1])));
    }
  }
  const bool warns = switches.warns_always == nullptr || switches.warns_always();
  for (std::size_t i = 0; i < switches.count; ++i) {
    const Switch& one = switches.others[i];
    if (by_python || one.reader == nullptr || (one.warns && warns)) {
      write_by_python(writer, one);
    } else {
      write_directly(writer, one, switches.context);
    }
  }
  put_default_type(writer, switches, by_python);
}

bool asks_for_determinism() noexcept {
  const KeepException keep;
  Object* const function = module_member("torch._C", "_get_deterministic_algorithms");
  const Reference answer(function != nullptr ? g_api.PyObject_CallObject(function, nullptr) : nullptr);
  g_api.PyErr_Clear();
  return answer.get() != g_api._Py_FalseStruct;  // not known: it may
}

void fetch_switches() noexcept {
  const Switches& switches = known_switches();
  for (std::size_t i = 0; i < switches.flag_count; ++i) {
    __builtin_prefetch(reinterpret_cast<const void*>(switches.flags[i]));
  }
  for (std::size_t i = 0; i < switches.count; ++i) __builtin_prefetch(switches.others[i].method);
  __builtin_prefetch(reinterpret_cast<const void*>(switches.precision));
}

std::size_t switches_asked_of_python() noexcept {
  const Switches& switches = known_switches();
  std::size_t asked = switches.default_type == nullptr ? 1 : 0;
  for (std::size_t i = 0; i < switches.count; ++i) asked += switches.others[i].reader == nullptr ? 1U : 0U;
  return asked;
}

}  // namespace grape::python::torch
