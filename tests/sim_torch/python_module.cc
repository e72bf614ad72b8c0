// The module torch._C: factories, functions, the thread's modes, CUDA's streams; and THPVariable_Wrap.
#include "tests/sim_torch/driver.h"
#include "tests/sim_torch/python_autograd.h"
#include "tests/sim_torch/python_functions.h"
#include "tests/sim_torch/python_types.h"

namespace at {
class TensorBase;
}
SIM_EXPORT PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

// Takes a share of the tensor behind the handle.
PyObject* THPVariable_Wrap(const at::TensorBase& tensor) {
  auto* impl = *reinterpret_cast<c10::TensorImpl* const*>(&tensor);
  return simtorch::guarded([&] { return simtorch::wrap(simtorch::Tensor::share(impl)); });
}

namespace simtorch {
namespace {

struct Options {
  ScalarType type;
  Device device;
  bool requires_grad;
  GeneratorObject* generator;
};

PyObject* option(PyObject* keywords, const char* name) {
  PyObject* value = keywords != nullptr ? PyDict_GetItemString(keywords, name) : nullptr;
  return value == &_Py_NoneStruct ? nullptr : value;
}

Options options_of(PyObject* keywords) {
  PyObject* type = option(keywords, "dtype");
  PyObject* device = option(keywords, "device");
  PyObject* grad = option(keywords, "requires_grad");
  return {type != nullptr ? type_of(type) : ScalarType::kFloat, device != nullptr ? device_of(device) : kCpu,
          grad != nullptr && PyObject_IsTrue(grad) != 0,
          reinterpret_cast<GeneratorObject*>(option(keywords, "generator"))};
}

Sizes sizes_in(PyObject* arguments) {
  if (PySequence_Size(arguments) != 1) return sizes_of(arguments);
  PyObject* first = PySequence_GetItem(arguments, 0);
  Sizes sizes = sizes_of(first);
  Py_DecRef(first);
  return sizes;
}

PyObject* filled(const char* name, PyObject* arguments, PyObject* keywords, double value) {
  return guarded([&] {
    const Options options = options_of(keywords);
    const Sizes sizes = sizes_in(arguments);
    Tensor made = run_operator(name, [&] { return full(sizes, value, options.type, options.device); });
    made->set_requires_grad(options.requires_grad);
    return wrap(std::move(made));
  });
}
PyObject* zeros(PyObject*, PyObject* arguments, PyObject* keywords) { return filled("zeros", arguments, keywords, 0); }
PyObject* ones(PyObject*, PyObject* arguments, PyObject* keywords) { return filled("ones", arguments, keywords, 1); }
PyObject* make_empty(PyObject*, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    const Options options = options_of(keywords);
    const Sizes sizes = sizes_in(arguments);
    return wrap(run_operator("empty", [&] { return empty(sizes, options.type, options.device); }));
  });
}
PyObject* make_full(PyObject*, PyObject* arguments, PyObject* keywords) {
  PyObject* shape = nullptr;
  double value = 0;
  if (PyArg_ParseTuple(arguments, "Od", &shape, &value) == 0) return nullptr;
  return guarded([&] {
    const Options options = options_of(keywords);
    const Sizes sizes = sizes_of(shape);
    return wrap(run_operator("full", [&] { return full(sizes, value, options.type, options.device); }));
  });
}

// From a function of the element's number.
template <typename Value>
Tensor values_on_host(const Sizes& sizes, ScalarType type, Value value) {
  Tensor made = empty(sizes, type, kCpu);
  auto* data = reinterpret_cast<unsigned char*>(made->address());
  for (std::int64_t i = 0; i < made->elements(); ++i) simcuda::pointwise_store(data, type, i, value(i));
  return made;
}
// The same, on the host first.
template <typename Value>
PyObject* from_values(const char* name, const Sizes& sizes, const Options& options, Value value) {
  return guarded([&] {
    const Tensor made = values_on_host(sizes, options.type, value);
    return wrap(run_operator(name, [&] { return convert(made.get(), options.type, options.device); }));
  });
}
PyObject* arange(PyObject*, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    return from_values("arange", sizes_in(arguments), options_of(keywords),
                       [](std::int64_t i) { return static_cast<double>(i); });
  });
}
// Of a flat list, or one number.
PyObject* tensor(PyObject*, PyObject* arguments, PyObject* keywords) {
  PyObject* data = nullptr;
  if (PyArg_ParseTuple(arguments, "O", &data) == 0) return nullptr;
  return guarded([&] {
    std::vector<double> values;
    const bool one = is_number(data);
    for (std::ptrdiff_t i = 0; i < (one ? 1 : PySequence_Size(data)); ++i) {
      PyObject* item = one ? data : PySequence_GetItem(data, i);
      values.push_back(number_of(item));
      if (!one) Py_DecRef(item);
    }
    const Sizes sizes = one ? Sizes{} : Sizes{static_cast<std::int64_t>(values.size())};
    return from_values("tensor", sizes, options_of(keywords),
                       [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  });
}

GeneratorObject* default_generator(Device device) {
  PyObject* module = PyImport_ImportModule(device.type == kCuda.type ? "torch.cuda" : "torch._C");
  PyObject* found =
      PyObject_GetAttrString(module, device.type == kCuda.type ? "default_generators" : "default_generator");
  Py_DecRef(module);
  if (found == nullptr) throw PythonError();
  PyObject* generator = device.type == kCuda.type ? PySequence_GetItem(found, 0) : found;
  Py_DecRef(generator);  // its module holds it
  if (generator != found) Py_DecRef(found);
  return reinterpret_cast<GeneratorObject*>(generator);
}

Tensor random_of_device(const Sizes& sizes, GeneratorObject* generator) {
  const std::uint64_t offset = generator->offset;
  generator->offset += 4;
  return uniform(sizes, kCuda, generator->seed, offset);
}
PyObject* make_rand(PyObject*, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    const Options options = options_of(keywords);
    const Sizes sizes = sizes_in(arguments);
    GeneratorObject* generator = options.generator != nullptr ? options.generator : default_generator(options.device);
    if (generator->device.type == kCuda.type) {
      return wrap(run_operator("rand", [&] { return random_of_device(sizes, generator); }));
    }
    const auto next = [&](std::int64_t) {
      std::uint64_t word = generator->seed + ++generator->offset * 0x9E3779B97F4A7C15;
      word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
      word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
      return static_cast<double>((word ^ (word >> 31)) >> 40) * 0x1p-24;
    };
    if (options.device.type == kCuda.type) return from_values("rand", sizes, options, next);
    return wrap(values_on_host(sizes, options.type, next));  // no operator that a replay could do
  });
}
PyObject* dropout(PyObject*, PyObject* arguments) {
  PyObject* x = nullptr;
  double probability = 0;
  if (PyArg_ParseTuple(arguments, "Od", &x, &probability) == 0) return nullptr;
  return guarded([&] {
    TensorImpl* from = tensor_of(x);
    GeneratorObject* generator = default_generator(kCuda);
    return wrap(run_operator("dropout", [&] {
      const Tensor noise = random_of_device(from->sizes, generator);
      return pointwise(PointwiseOp::kDropout, from, noise.get(), probability);
    }));
  });
}

// A tensor of the same memory whose storage knows nothing of the other one, as from another library.
PyObject* from_dlpack(PyObject*, PyObject* x) {
  return guarded([&] {
    TensorImpl* from = tensor_of(x);
    Tensor made = as_strided(from, from->sizes, from->strides, 0);
    c10::StorageImpl* storage = from->storage;
    const std::uint64_t bytes = static_cast<std::uint64_t>(from->elements()) * c10::item_bytes(from->type);
    std::swap(made->storage, storage);
    made->storage = new c10::StorageImpl(storage, reinterpret_cast<void*>(from->address()), bytes);
    storage->references.fetch_sub(1);  // that of the view, which the new one has now
    return wrap(std::move(made));
  });
}

PyObject* relu(PyObject*, PyObject* x) { return PyObject_CallMethod(x, "relu", nullptr); }
PyObject* cat(PyObject*, PyObject* tensors) {
  return guarded([&] {
    std::vector<TensorImpl*> parts;
    Sizes sizes;
    for (std::ptrdiff_t i = 0; i < PySequence_Size(tensors); ++i) {
      PyObject* item = PySequence_GetItem(tensors, i);
      parts.push_back(tensor_of(item));
      Py_DecRef(item);  // the sequence holds it
      if (sizes.empty()) {
        sizes = parts.back()->sizes;
      } else {
        sizes[0] += parts.back()->sizes[0];
      }
    }
    return wrap(run_operator("cat", [&] {
      Tensor made = empty(sizes, parts[0]->type, parts[0]->device);
      std::int64_t row = 0;
      for (TensorImpl* part : parts) {
        const Tensor slice = as_strided(made.get(), part->sizes, made->strides, row * made->strides[0]);
        pointwise(PointwiseOp::kCopy, slice.get(), part, nullptr, 0);
        row += part->sizes[0];
      }
      return made;
    }));
  });
}
PyObject* make_affine(PyObject*, PyObject* arguments) {
  PyObject* x = nullptr;
  double scale = 1, bias = 0;
  if (PyArg_ParseTuple(arguments, "Odd", &x, &scale, &bias) == 0) return nullptr;
  return guarded([&] {
    TensorImpl* from = tensor_of(x);
    return wrap(follow(run_operator("affine", [&] { return affine(from, scale, bias, 2); }), {from}));
  });
}
PyObject* make_take(PyObject*, PyObject* arguments) {
  PyObject *x = nullptr, *index = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &x, &index) == 0) return nullptr;
  return guarded([&] {
    TensorImpl *from = tensor_of(x), *at = tensor_of(index);
    return wrap(run_operator("take", [&] { return take(from, at); }));
  });
}
PyObject* make_delay(PyObject*, PyObject* microseconds) {
  return guarded([&] {
           const Operator scope("delay");
           delay(static_cast<std::uint32_t>(PyLong_AsLongLong(microseconds)));
           return nullptr;
         }) == nullptr &&
                 PyErr_Occurred() != nullptr
             ? nullptr
             : none();
}

PyObject* call_operators_run(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(operators_run()); }
// An extension's own state: another number each time, the last one again, and a given one.
unsigned long long g_number = 0;
PyObject* call_next_number(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(++g_number); }
PyObject* call_last_number(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(g_number); }
PyObject* call_set_last_number(PyObject*, PyObject* number) {
  g_number = static_cast<unsigned long long>(PyLong_AsLongLong(number));
  return none();
}
PyObject* call_set_classes(PyObject*, PyObject* arguments) {
  PyObject *tensor_type = nullptr, *size = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &tensor_type, &size) == 0) return nullptr;
  set_tensor_class(tensor_type);
  set_size_class(size);
  return none();
}
PyObject* dispatch_keys(PyObject*, PyObject* x) {
  return guarded([&] { return PyLong_FromUnsignedLongLong(tensor_of(x)->keys); });
}
PyObject* included_keys(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(c10::local_keys().included); }

// Modes: each gives back what was set before.
PyObject* set_grad_enabled(PyObject*, PyObject* value) {
  const bool before = c10::thread_state().grad;
  c10::thread_state().grad = PyObject_IsTrue(value) != 0;
  return PyBool_FromLong(before);
}
PyObject* is_grad_enabled(PyObject*, PyObject*) { return PyBool_FromLong(c10::thread_state().grad); }
PyObject* set_inference(PyObject*, PyObject* value) {
  const bool before = c10::thread_state().inference, on = PyObject_IsTrue(value) != 0;
  c10::thread_state().inference = on;
  c10::LocalKeys keys = c10::local_keys();
  keys.included = on ? keys.included & ~c10::Keys::kInplaceOrView : keys.included | c10::Keys::kInplaceOrView;
  c10::set_local_keys(keys);
  return PyBool_FromLong(before);
}
PyObject* set_autocast(PyObject*, PyObject* value) {
  bool& enabled = c10::thread_state().autocast[1];
  const bool before = enabled;
  enabled = PyObject_IsTrue(value) != 0;
  return PyBool_FromLong(before);
}
// "dispatch", "function", "profiler", "functorch": who watches the operators of this thread; a callable or None.
PyObject* watch_operators(PyObject*, PyObject* arguments) {
  const char* kind = nullptr;
  PyObject* watcher = nullptr;
  if (PyArg_ParseTuple(arguments, "sO", &kind, &watcher) == 0) return nullptr;
  const bool on = watcher != &_Py_NoneStruct;
  c10::ThreadState& state = c10::thread_state();
  const std::string name = kind;
  if (name == "dispatch") state.dispatch_modes = on;
  if (name == "function") state.function_modes = on ? 1 : 0;
  if (name == "profiler") state.callbacks = on;
  if (name == "functorch") {
    c10::LocalKeys keys = c10::local_keys();
    keys.included = on ? keys.included | c10::Keys::kFunctorch : keys.included & ~c10::Keys::kFunctorch;
    c10::set_local_keys(keys);
  }
  set_watcher(on ? watcher : nullptr);
  return none();
}

PyObject* cuda_init(PyObject*, PyObject*) {
  return guarded([] {
    synchronize();
    return none();
  });
}
PyObject* cuda_synchronize(PyObject*, PyObject*) {
  return guarded([] {
           const Operator scope("synchronize");
           synchronize();
           return nullptr;
         }) == nullptr &&
                 PyErr_Occurred() != nullptr
             ? nullptr
             : none();
}
PyObject* cuda_allocated(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(c10::allocated()); }
PyObject* cuda_empty_cache(PyObject*, PyObject*) {
  c10::empty_cache();
  return none();
}
PyObject* cuda_get_device(PyObject*, PyObject*) { return PyLong_FromLongLong(0); }
long long g_raw_streams_asked = 0;
PyObject* cuda_raw_stream(PyObject*, PyObject*) {
  ++g_raw_streams_asked;
  return PyLong_FromUnsignedLongLong(c10::thread_state().stream);
}
PyObject* cuda_raw_streams_asked(PyObject*, PyObject*) { return PyLong_FromLongLong(g_raw_streams_asked); }
PyObject* cuda_set_stream(PyObject*, PyObject* stream) {
  c10::thread_state().stream = PyLong_AsUnsignedLongLongMask(stream);
  return none();
}
PyObject* cuda_begin_pool(PyObject*, PyObject* arguments) {
  unsigned long long device = 0, pool = 0;
  if (PyArg_ParseTuple(arguments, "KK", &device, &pool) == 0) return nullptr;
  c10::thread_state().pool = pool;
  return none();
}
PyObject* cuda_end_pool(PyObject*, PyObject*) {
  c10::thread_state().pool = 0;
  return none();
}
PyObject* cuda_pool_of(PyObject*, PyObject* address) {
  return PyLong_FromUnsignedLongLong(c10::pool_of(PyLong_AsUnsignedLongLongMask(address)));
}
PyObject* cuda_make_stream(PyObject*, PyObject*) {
  return guarded([] { return PyLong_FromUnsignedLongLong(make_stream()); });
}
PyObject* cuda_wait_stream(PyObject*, PyObject* arguments) {
  unsigned long long waiter = 0, waited_for = 0;
  if (PyArg_ParseTuple(arguments, "KK", &waiter, &waited_for) == 0) return nullptr;
  return guarded([&] {
    wait_stream(waiter, waited_for);
    return none();
  });
}

PyObject* cuda_make_event(PyObject*, PyObject* arguments) {
  int timed = 0;
  if (PyArg_ParseTuple(arguments, "i", &timed) == 0) return nullptr;
  return guarded([&] {
    CUevent event = nullptr;
    check(driver().cuEventCreate(&event, timed != 0 ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return PyLong_FromUnsignedLongLong(reinterpret_cast<std::uint64_t>(event));
  });
}
using EventCall = CUresult (*)(CUevent event, CUstream stream);
PyObject* on_event(PyObject* arguments, EventCall call) {
  unsigned long long event = 0, stream = 0;
  if (PyArg_ParseTuple(arguments, "K|K", &event, &stream) == 0) return nullptr;
  return guarded([&] {
    check(call(reinterpret_cast<CUevent>(event), reinterpret_cast<CUstream>(stream)), "an event");
    return none();
  });
}
PyObject* cuda_record_event(PyObject*, PyObject* arguments) {
  return on_event(arguments, [](CUevent event, CUstream stream) { return driver().cuEventRecord(event, stream); });
}
PyObject* cuda_wait_event(PyObject*, PyObject* arguments) {
  return on_event(arguments,
                  [](CUevent event, CUstream stream) { return driver().cuStreamWaitEvent(stream, event, 0); });
}
PyObject* cuda_destroy_event(PyObject*, PyObject* arguments) {
  return on_event(arguments, [](CUevent event, CUstream) { return driver().cuEventDestroy(event); });
}

#define SIM_FUNCTION(name, function, flags) \
  { name, reinterpret_cast<void*>(function), flags, nullptr }
PyMethodDef g_functions[] = {
    SIM_FUNCTION("zeros", zeros, kKeywords),
    SIM_FUNCTION("ones", ones, kKeywords),
    SIM_FUNCTION("empty", make_empty, kKeywords),
    SIM_FUNCTION("full", make_full, kKeywords),
    SIM_FUNCTION("arange", arange, kKeywords),
    SIM_FUNCTION("tensor", tensor, kKeywords),
    SIM_FUNCTION("dropout", dropout, kPositional),
    SIM_FUNCTION("relu", relu, kOneArgument),
    SIM_FUNCTION("from_dlpack", from_dlpack, kOneArgument),
    SIM_FUNCTION("cat", cat, kOneArgument),
    SIM_FUNCTION("affine", make_affine, kPositional),
    SIM_FUNCTION("take", make_take, kPositional),
    SIM_FUNCTION("delay", make_delay, kOneArgument),
    SIM_FUNCTION("_library_copy", make_library_copy, kPositional),
    SIM_FUNCTION("_add_library_word", add_library_word, kPositional),
    SIM_FUNCTION("_set_library_word", set_library_word, kPositional),
    SIM_FUNCTION("_operators_run", call_operators_run, kNoArguments),
    SIM_FUNCTION("_next_number", call_next_number, kNoArguments),
    SIM_FUNCTION("_last_number", call_last_number, kNoArguments),
    SIM_FUNCTION("_set_last_number", call_set_last_number, kOneArgument),
    SIM_FUNCTION("_set_classes", call_set_classes, kPositional),
    SIM_FUNCTION("_raw_dispatch_keys", dispatch_keys, kOneArgument),
    SIM_FUNCTION("_raw_included_keys", included_keys, kNoArguments),
    SIM_FUNCTION("_set_grad_enabled", set_grad_enabled, kOneArgument),
    SIM_FUNCTION("is_grad_enabled", is_grad_enabled, kNoArguments),
    SIM_FUNCTION("_set_inference", set_inference, kOneArgument),
    SIM_FUNCTION("_set_autocast", set_autocast, kOneArgument),
    SIM_FUNCTION("_watch_operators", watch_operators, kPositional),
    SIM_FUNCTION("_set_cublas_allow_tf32", set_tf32, kOneArgument),
    SIM_FUNCTION("_get_cublas_allow_tf32", get_tf32, kNoArguments),
    SIM_FUNCTION("_set_deterministic_algorithms", set_deterministic, kOneArgument),
    SIM_FUNCTION("_get_deterministic_algorithms", get_deterministic, kNoArguments),
    SIM_FUNCTION("_cuda_init", cuda_init, kNoArguments),
    SIM_FUNCTION("_cuda_synchronize", cuda_synchronize, kNoArguments),
    SIM_FUNCTION("_cuda_emptyCache", cuda_empty_cache, kNoArguments),
    SIM_FUNCTION("_cuda_allocated", cuda_allocated, kNoArguments),
    SIM_FUNCTION("_cuda_getDevice", cuda_get_device, kNoArguments),
    SIM_FUNCTION("_cuda_getCurrentRawStream", cuda_raw_stream, kOneArgument),
    SIM_FUNCTION("_cuda_rawStreamsAsked", cuda_raw_streams_asked, kNoArguments),
    SIM_FUNCTION("_cuda_setStream", cuda_set_stream, kOneArgument),
    SIM_FUNCTION("_cuda_beginAllocateCurrentThreadToPool", cuda_begin_pool, kPositional),
    SIM_FUNCTION("_cuda_endAllocateToPool", cuda_end_pool, kPositional),
    SIM_FUNCTION("_cuda_tunableop_enable", tunable_enable, kOneArgument),
    SIM_FUNCTION("_cuda_tunableop_is_enabled", tunable_enabled, kNoArguments),
    SIM_FUNCTION("_cuda_poolOf", cuda_pool_of, kOneArgument),
    SIM_FUNCTION("_cuda_makeStream", cuda_make_stream, kNoArguments),
    SIM_FUNCTION("_cuda_waitStream", cuda_wait_stream, kPositional),
    SIM_FUNCTION("_cuda_makeEvent", cuda_make_event, kPositional),
    SIM_FUNCTION("_cuda_recordEvent", cuda_record_event, kPositional),
    SIM_FUNCTION("_cuda_waitEvent", cuda_wait_event, kPositional),
    SIM_FUNCTION("_cuda_destroyEvent", cuda_destroy_event, kPositional),
    {},
};

// As in PyTorch, torch.rand and the like are static methods of a class that nobody names.
PyMethodDef g_variable_functions[] = {SIM_FUNCTION("rand", make_rand, kKeywords | kStatic), {}};

void add_variable_functions(PyObject* module) {
  static PyType_Slot slots[] = {{kMethods, g_variable_functions}, {}};
  static PyType_Spec spec{"torch._C._VariableFunctionsClass", 16, 0, kDefaultFlags, slots};
  PyModule_AddObject(module, "_VariableFunctionsClass", PyType_FromSpec(&spec));
}

constexpr struct {
  const char* name;
  std::uint64_t bits;
} kKeyNames[] = {
    {"_KEY_CPU", c10::Keys::kCpu | c10::Keys::kDense},
    {"_KEY_CUDA", c10::Keys::kCuda | c10::Keys::kDense},
    {"_KEY_AutocastCPU", c10::Keys::kAutocastCpu},
    {"_KEY_AutocastCUDA", c10::Keys::kAutocastCuda},
    {"_KEY_Dense", c10::Keys::kDense},
};

}  // namespace
}  // namespace simtorch

extern "C" SIM_EXPORT PyObject* PyInit__C() {
  using namespace simtorch;
  static PyModuleDef definition{{1, nullptr}, nullptr,     nullptr, nullptr, "torch._C", nullptr,
                                -1,           g_functions, nullptr, nullptr, nullptr,    nullptr};
  PyObject* module = PyModule_Create2(&definition, kApiVersion);
  if (module == nullptr || !add_types(module) || !add_tensor_type(module) || !add_autograd(module)) return nullptr;
  add_variable_functions(module);
  for (const auto& key : kKeyNames) PyModule_AddObject(module, key.name, PyLong_FromUnsignedLongLong(key.bits));
  return module;
}
