// torch._C.TensorBase: the methods of tensors.
#include <cstring>

#include "tests/sim_torch/python_autograd.h"
#include "tests/sim_torch/python_types.h"

namespace simtorch {
namespace {

PyTypeObject* g_base;
PyObject* g_class;
PyObject* g_watcher;

TensorImpl* impl(PyObject* self) { return reinterpret_cast<TensorObject*>(self)->impl; }

// A method that takes nothing and gives a tensor.
template <typename Make>
PyObject* made(const char* name, PyObject* self, Make make) {
  return guarded([&] {
    TensorImpl* tensor = impl(self);
    return wrap(follow(run_operator(name, [&] { return make(tensor); }), {tensor}));
  });
}

// In place; `other`: a tensor or null.
template <typename Work>
PyObject* changed(const char* name, PyObject* self, Work work) {
  return guarded([&] {
    {
      const Operator scope(name);
      work(impl(self));
    }
    impl(self)->version.bump();
    Py_IncRef(self);
    return self;
  });
}

PyObject* binary(PyObject* left, PyObject* right, PointwiseOp with_tensor, PointwiseOp with_number, double scalar,
                 const char* name) {
  return guarded([&]() -> PyObject* {
    const bool swapped = !is_tensor(left);
    TensorImpl* a = tensor_of(swapped ? right : left);
    PyObject* other = swapped ? left : right;
    if (is_tensor(other)) {
      TensorImpl* b = tensor_of(other);
      return wrap(follow(run_operator(name, [&] { return pointwise(with_tensor, a, b, scalar); }), {a, b}));
    }
    if (!is_number(other)) {
      Py_IncRef(&_Py_NotImplementedStruct);
      return &_Py_NotImplementedStruct;
    }
    const double number = number_of(other);
    if (!swapped || scalar >= 0) {
      return wrap(follow(
          run_operator(name, [&] { return pointwise(with_number, a, nullptr, scalar < 0 ? -number : number); }), {a}));
    }
    throw std::runtime_error("a number minus a tensor is not supported");
  });
}
PyObject* tensor_add(PyObject* left, PyObject* right) {
  return binary(left, right, PointwiseOp::kAdd, PointwiseOp::kAddScalar, 1, "add");
}
PyObject* tensor_subtract(PyObject* left, PyObject* right) {
  return binary(left, right, PointwiseOp::kAdd, PointwiseOp::kAddScalar, -1, "sub");
}
PyObject* tensor_multiply(PyObject* left, PyObject* right) {
  return binary(left, right, PointwiseOp::kMultiply, PointwiseOp::kMultiplyScalar, 1, "mul");
}
PyObject* tensor_matmul(PyObject* left, PyObject* right) {
  return guarded([&] {
    TensorImpl *a = tensor_of(left), *b = tensor_of(right);
    return wrap(follow(run_operator("matmul", [&] { return matmul(a, b); }), {a, b}));
  });
}
PyObject* tensor_compare(PyObject* self, PyObject* other, int operation) {
  constexpr int kGreaterThan = 4;
  if (operation != kGreaterThan || !is_number(other)) {
    Py_IncRef(&_Py_NotImplementedStruct);
    return &_Py_NotImplementedStruct;
  }
  const double number = number_of(other);
  return made("gt", self, [&](TensorImpl* x) { return pointwise(PointwiseOp::kGreater, x, nullptr, number); });
}

PyObject* in_place(PyObject* self, PyObject* other, PointwiseOp with_tensor, PointwiseOp with_number, double scalar,
                   const char* name) {
  return guarded([&] {
    TensorImpl* b = is_tensor(other) ? tensor_of(other) : nullptr;
    const double number = b != nullptr ? scalar : number_of(other);
    return changed(name, self,
                   [&](TensorImpl* x) { pointwise(b != nullptr ? with_tensor : with_number, x, x, b, number); });
  });
}
PyObject* tensor_add_(PyObject* self, PyObject* other) {
  return in_place(self, other, PointwiseOp::kAdd, PointwiseOp::kAddScalar, 1, "add_");
}
PyObject* tensor_mul_(PyObject* self, PyObject* other) {
  return in_place(self, other, PointwiseOp::kMultiply, PointwiseOp::kMultiplyScalar, 1, "mul_");
}
PyObject* tensor_fill_(PyObject* self, PyObject* value) {
  return guarded([&] {
    const double number = number_of(value);
    return changed("fill_", self, [&](TensorImpl* x) { pointwise(PointwiseOp::kFill, x, nullptr, nullptr, number); });
  });
}
PyObject* tensor_zero_(PyObject* self, PyObject*) {
  return changed("zero_", self, [](TensorImpl* x) { pointwise(PointwiseOp::kFill, x, nullptr, nullptr, 0); });
}
PyObject* tensor_copy_(PyObject* self, PyObject* other) {
  return guarded([&] {
    TensorImpl* from = tensor_of(other);
    return changed("copy_", self, [&](TensorImpl* x) { copy_into(x, from); });
  });
}
PyObject* tensor_jitter_(PyObject* self, PyObject*) { return changed("jitter_", self, jitter_); }

PyObject* tensor_relu(PyObject* self, PyObject*) {
  return made("relu", self, [](TensorImpl* x) { return pointwise(PointwiseOp::kRelu, x, nullptr, 0); });
}
PyObject* tensor_sum(PyObject* self, PyObject*) { return made("sum", self, sum); }
PyObject* tensor_clone(PyObject* self, PyObject*) {
  return made("clone", self, [](TensorImpl* x) { return pointwise(PointwiseOp::kCopy, x, nullptr, 0); });
}
PyObject* tensor_contiguous(PyObject* self, PyObject*) {
  if (impl(self)->contiguous()) {
    Py_IncRef(self);
    return self;
  }
  return tensor_clone(self, nullptr);
}

PyObject* moved(PyObject* self, ScalarType type, Device device) {
  TensorImpl* tensor = impl(self);
  if (tensor->type == type && tensor->device.type == device.type) {
    Py_IncRef(self);
    return self;
  }
  return made("to", self, [&](TensorImpl* x) { return convert(x, type, device); });
}
PyObject* tensor_to(PyObject* self, PyObject* where) {
  return guarded([&] {
    PyObject* a_type = type_object(ScalarType::kFloat);
    const bool is_type = a_type->type == where->type;
    Py_DecRef(a_type);
    return is_type ? moved(self, type_of(where), impl(self)->device) : moved(self, impl(self)->type, device_of(where));
  });
}
PyObject* tensor_cpu(PyObject* self, PyObject*) { return moved(self, impl(self)->type, kCpu); }
PyObject* tensor_float(PyObject* self, PyObject*) { return moved(self, ScalarType::kFloat, impl(self)->device); }
PyObject* tensor_double(PyObject* self, PyObject*) { return moved(self, ScalarType::kDouble, impl(self)->device); }
PyObject* tensor_cuda(PyObject* self, PyObject*) {
  PyObject* cuda = PyImport_ImportModule("torch.cuda");
  PyObject* ready = cuda != nullptr ? PyObject_CallMethod(cuda, "_lazy_init", nullptr) : nullptr;
  if (ready == nullptr) return nullptr;
  Py_DecRef(ready);
  Py_DecRef(cuda);
  return moved(self, impl(self)->type, kCuda);
}

PyObject* viewed(PyObject* self, const Sizes& sizes, const Sizes& strides, std::int64_t offset) {
  count_operator();
  return wrap(view_of(impl(self), sizes, strides, offset));
}
PyObject* tensor_view(PyObject* self, PyObject* arguments) {
  return guarded([&] {
    const bool one = PySequence_Size(arguments) == 1;
    PyObject* first = one ? PySequence_GetItem(arguments, 0) : nullptr;
    Sizes sizes = sizes_of(one ? first : arguments);
    if (first != nullptr) Py_DecRef(first);
    std::int64_t known = 1;
    for (const std::int64_t size : sizes) known *= size == -1 ? 1 : size;
    for (std::int64_t& size : sizes) size = size == -1 ? impl(self)->elements() / known : size;
    std::int64_t elements = 1;
    for (const std::int64_t size : sizes) elements *= size;
    if (!impl(self)->contiguous() || elements != impl(self)->elements()) throw std::runtime_error("view of that shape");
    return viewed(self, sizes, contiguous_strides(sizes), impl(self)->offset);
  });
}
PyObject* tensor_transpose(PyObject* self, PyObject* arguments) {
  int one = 0, other = 1;
  if (PyArg_ParseTuple(arguments, "|ii", &one, &other) == 0) return nullptr;
  return guarded([&] {
    Sizes sizes = impl(self)->sizes, strides = impl(self)->strides;
    std::swap(sizes.at(static_cast<std::size_t>(one)), sizes.at(static_cast<std::size_t>(other)));
    std::swap(strides.at(static_cast<std::size_t>(one)), strides.at(static_cast<std::size_t>(other)));
    return viewed(self, sizes, strides, impl(self)->offset);
  });
}
// Of the first dimensions: an integer, a slice, or a tuple of these.
PyObject* tensor_subscript(PyObject* self, PyObject* index) {
  return guarded([&] {
    const bool several = index->type == &PyTuple_Type;
    const std::ptrdiff_t count = several ? PySequence_Size(index) : 1;
    Sizes sizes, strides;
    std::int64_t offset = impl(self)->offset;
    for (std::size_t i = 0; i < impl(self)->sizes.size(); ++i) {
      const std::int64_t size = impl(self)->sizes[i], stride = impl(self)->strides[i];
      PyObject* part = index;
      if (several && static_cast<std::ptrdiff_t>(i) < count) {
        part = PySequence_GetItem(index, static_cast<std::ptrdiff_t>(i));
        Py_DecRef(part);  // the tuple holds it
      }
      std::ptrdiff_t start = 0, stop = size, step = 1;
      if (static_cast<std::ptrdiff_t>(i) < count && part->type != &PySlice_Type) {
        const std::int64_t at = PyLong_AsLongLong(part);
        if (at >= size || at < -size) {
          PyErr_SetString(PyExc_IndexError, "index out of range");
          throw PythonError();
        }
        offset += (at < 0 ? at + size : at) * stride;
        continue;
      }
      if (static_cast<std::ptrdiff_t>(i) < count) {
        if (PySlice_Unpack(part, &start, &stop, &step) < 0) throw PythonError();
        sizes.push_back(PySlice_AdjustIndices(size, &start, &stop, step));
      } else {
        sizes.push_back(size);
      }
      strides.push_back(stride * step);
      offset += start * stride;
    }
    return viewed(self, sizes, strides, offset);
  });
}
// Not counted: Grape makes views of results by it.
PyObject* tensor_as_strided(PyObject* self, PyObject* arguments) {
  PyObject *sizes = nullptr, *strides = nullptr;
  long long offset = 0;
  if (PyArg_ParseTuple(arguments, "OOL", &sizes, &strides, &offset) == 0) return nullptr;
  return guarded([&] { return wrap(view_of(impl(self), sizes_of(sizes), sizes_of(strides), offset)); });
}
PyObject* tensor_is_view(PyObject* self, PyObject*) { return PyBool_FromLong(impl(self)->base != nullptr); }
PyObject* tensor_detach(PyObject* self, PyObject*) {
  return guarded([&] {
    TensorImpl* tensor = impl(self);
    Tensor view = as_strided(tensor, tensor->sizes, tensor->strides, tensor->offset);
    view->version = tensor->version;
    view->set_requires_grad(false);
    return wrap(std::move(view));
  });
}
PyObject* tensor_conj(PyObject* self, PyObject*) {
  Tensor view = view_of(impl(self), impl(self)->sizes, impl(self)->strides, impl(self)->offset);
  view->keys |= c10::Keys::kConjugate;
  return wrap(std::move(view));
}
PyObject* tensor_to_sparse(PyObject* self, PyObject*) {
  Tensor view = as_strided(impl(self), {0}, {1}, 0);
  view->keys = (view->keys & ~c10::Keys::kDense) | c10::Keys::kSparse;
  return wrap(std::move(view));
}

PyObject* tensor_item(PyObject* self, PyObject*) {
  return guarded([&] {
    double value = 0;
    {
      const Operator scope("item");
      value = item(impl(self));
    }
    const ScalarType type = impl(self)->type;
    if (type == ScalarType::kBool) return PyBool_FromLong(value != 0);
    const bool real = type == ScalarType::kFloat || type == ScalarType::kDouble;
    return real ? PyFloat_FromDouble(value) : PyLong_FromLongLong(static_cast<long long>(value));
  });
}
int tensor_bool(PyObject* self) {
  PyObject* value = tensor_item(self, nullptr);
  if (value == nullptr) return -1;
  const int truth = PyObject_IsTrue(value);
  Py_DecRef(value);
  return truth;
}
// The elements' bytes, in order. (A real tensor gives them by numpy().tobytes().)
PyObject* tensor_bytes(PyObject* self, PyObject*) {
  return guarded([&] {
    std::string bytes;
    {
      const Operator scope("bytes");
      const Tensor dense = contiguous(impl(self));
      bytes.resize(static_cast<std::size_t>(dense->elements()) * c10::item_bytes(dense->type));
      read(dense.get(), bytes.data());
    }
    return PyBytes_FromStringAndSize(bytes.data(), static_cast<std::ptrdiff_t>(bytes.size()));
  });
}
std::ptrdiff_t tensor_length(PyObject* self) { return impl(self)->sizes.empty() ? 0 : impl(self)->sizes[0]; }

PyObject* tensor_dim(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(static_cast<long long>(impl(self)->sizes.size()));
}
PyObject* tensor_stride(PyObject* self, PyObject*) {
  const Sizes& strides = impl(self)->strides;
  PyObject* tuple = PyTuple_New(static_cast<std::ptrdiff_t>(strides.size()));
  for (std::size_t i = 0; i < strides.size(); ++i) {
    PyTuple_SetItem(tuple, static_cast<std::ptrdiff_t>(i), PyLong_FromLongLong(strides[i]));
  }
  return tuple;
}
PyObject* tensor_numel(PyObject* self, PyObject*) { return PyLong_FromLongLong(impl(self)->elements()); }
PyObject* tensor_storage_offset(PyObject* self, PyObject*) { return PyLong_FromLongLong(impl(self)->offset); }
PyObject* tensor_element_size(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(c10::item_bytes(impl(self)->type));
}
PyObject* tensor_data_ptr(PyObject* self, PyObject*) { return PyLong_FromUnsignedLongLong(impl(self)->address()); }
PyObject* tensor_use_count(PyObject* self, PyObject*) { return PyLong_FromLongLong(impl(self)->references.load()); }
PyObject* tensor_is_inference(PyObject* self, PyObject*) { return PyBool_FromLong(is_inference(impl(self))); }
PyObject* tensor_untyped_storage(PyObject* self, PyObject*) { return storage_object(impl(self)); }
PyObject* tensor_make_subclass(PyObject*, PyObject* arguments) {
  PyObject *type = nullptr, *data = nullptr, *grad = nullptr;
  if (PyArg_ParseTuple(arguments, "OOO", &type, &data, &grad) == 0) return nullptr;
  return guarded([&] {
    TensorImpl* from = tensor_of(data);
    Tensor made = as_strided(from, from->sizes, from->strides, from->offset);
    made->version = from->version;
    made->set_requires_grad(PyObject_IsTrue(grad) != 0);
    return wrap_as(reinterpret_cast<PyTypeObject*>(type), std::move(made));
  });
}

PyObject* get_shape(PyObject* self, void*) {
  return guarded([&] { return size_tuple(impl(self)->sizes); });
}
PyObject* get_dtype(PyObject* self, void*) {
  return guarded([&] { return type_object(impl(self)->type); });
}
PyObject* get_device(PyObject* self, void*) {
  return guarded([&] { return device_object(impl(self)->device); });
}
PyObject* get_requires_grad(PyObject* self, void*) { return PyBool_FromLong(impl(self)->requires_grad()); }
int set_requires_grad(PyObject* self, PyObject* value, void*) {
  impl(self)->set_requires_grad(PyObject_IsTrue(value) != 0);
  return 0;
}
PyObject* get_is_cuda(PyObject* self, void*) { return PyBool_FromLong(on_cuda(impl(self))); }
PyObject* get_version(PyObject* self, void*) {
  return guarded([&] {
    if (!impl(self)->version.enabled()) throw std::runtime_error("Inference tensors do not track version counter.");
    return PyLong_FromLongLong(impl(self)->version.current_version());
  });
}
PyObject* get_base(PyObject* self, void*) {
  return guarded([&] { return impl(self)->base != nullptr ? wrap(Tensor::share(impl(self)->base)) : none(); });
}
PyObject* get_data(PyObject* self, void*) {
  return guarded([&] {
    TensorImpl* tensor = impl(self);
    Tensor view = as_strided(tensor, tensor->sizes, tensor->strides, tensor->offset);
    view->set_requires_grad(false);
    return wrap(std::move(view));
  });
}
// The tensor stays, its memory is another.
int set_data(PyObject* self, PyObject* value, void*) {
  PyObject* done = guarded([&] {
    TensorImpl *to = impl(self), *from = tensor_of(value);
    from->storage->references.fetch_add(1);
    if (to->storage->references.fetch_sub(1) == 1) delete to->storage;
    to->storage = from->storage;
    to->sizes = from->sizes;
    to->strides = from->strides;
    to->offset = from->offset;
    to->type = from->type;
    to->device = from->device;
    to->keys = from->keys;
    return none();
  });
  if (done == nullptr) return -1;
  Py_DecRef(done);
  return 0;
}

PyMethodDef g_methods[] = {
    {"add_", as_function(tensor_add_), kOneArgument, nullptr},
    {"mul_", as_function(tensor_mul_), kOneArgument, nullptr},
    {"fill_", as_function(tensor_fill_), kOneArgument, nullptr},
    {"zero_", as_function(tensor_zero_), kNoArguments, nullptr},
    {"copy_", as_function(tensor_copy_), kOneArgument, nullptr},
    {"jitter_", as_function(tensor_jitter_), kNoArguments, nullptr},
    {"relu", as_function(tensor_relu), kNoArguments, nullptr},
    {"sum", as_function(tensor_sum), kNoArguments, nullptr},
    {"clone", as_function(tensor_clone), kNoArguments, nullptr},
    {"contiguous", as_function(tensor_contiguous), kNoArguments, nullptr},
    {"to", as_function(tensor_to), kOneArgument, nullptr},
    {"cpu", as_function(tensor_cpu), kNoArguments, nullptr},
    {"cuda", as_function(tensor_cuda), kNoArguments, nullptr},
    {"float", as_function(tensor_float), kNoArguments, nullptr},
    {"double", as_function(tensor_double), kNoArguments, nullptr},
    {"view", as_function(tensor_view), kPositional, nullptr},
    {"reshape", as_function(tensor_view), kPositional, nullptr},
    {"t", as_function(tensor_transpose), kPositional, nullptr},
    {"transpose", as_function(tensor_transpose), kPositional, nullptr},
    {"as_strided", as_function(tensor_as_strided), kPositional, nullptr},
    {"retain_grad", as_function(tensor_retain_grad), kNoArguments, nullptr},
    {"_is_view", as_function(tensor_is_view), kNoArguments, nullptr},
    {"detach", as_function(tensor_detach), kNoArguments, nullptr},
    {"conj", as_function(tensor_conj), kNoArguments, nullptr},
    {"to_sparse", as_function(tensor_to_sparse), kNoArguments, nullptr},
    {"item", as_function(tensor_item), kNoArguments, nullptr},
    {"tobytes", as_function(tensor_bytes), kNoArguments, nullptr},
    {"dim", as_function(tensor_dim), kNoArguments, nullptr},
    {"stride", as_function(tensor_stride), kNoArguments, nullptr},
    {"numel", as_function(tensor_numel), kNoArguments, nullptr},
    {"storage_offset", as_function(tensor_storage_offset), kNoArguments, nullptr},
    {"element_size", as_function(tensor_element_size), kNoArguments, nullptr},
    {"data_ptr", as_function(tensor_data_ptr), kNoArguments, nullptr},
    {"is_inference", as_function(tensor_is_inference), kNoArguments, nullptr},
    {"untyped_storage", as_function(tensor_untyped_storage), kNoArguments, nullptr},
    {"_use_count", as_function(tensor_use_count), kNoArguments, nullptr},
    {"_make_subclass", as_function(tensor_make_subclass), kPositional | 0x20, nullptr},  // static
    {},
};
PyGetSetDef g_fields[] = {
    {"shape", get_shape, nullptr, nullptr, nullptr},
    {"dtype", get_dtype, nullptr, nullptr, nullptr},
    {"device", get_device, nullptr, nullptr, nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, nullptr, nullptr},
    {"is_cuda", get_is_cuda, nullptr, nullptr, nullptr},
    {"data", get_data, set_data, nullptr, nullptr},
    {"_version", get_version, nullptr, nullptr, nullptr},
    {"_base", get_base, nullptr, nullptr, nullptr},
    {"grad_fn", get_grad_fn, nullptr, nullptr, nullptr},
    {"grad", get_grad, set_grad, nullptr, nullptr},
    {"is_leaf", get_is_leaf, nullptr, nullptr, nullptr},
    {"retains_grad", get_retains_grad, nullptr, nullptr, nullptr},
    {"output_nr", get_output_number, nullptr, nullptr, nullptr},
    {"_backward_hooks", get_backward_hooks, set_backward_hooks, nullptr, nullptr},
    {},
};
std::ptrdiff_t tensor_hash(PyObject* self) {
  return static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(self) >> 4);
}

}  // namespace

PyObject* tensor_class() { return g_class; }
void set_tensor_class(PyObject* type) {
  Py_IncRef(type);
  g_class = type;
}
void set_watcher(PyObject* callable) {
  if (g_watcher != nullptr) Py_DecRef(g_watcher);
  if (callable != nullptr) Py_IncRef(callable);
  g_watcher = callable;
}

PyObject* wrap_as(PyTypeObject* type, Tensor tensor) {
  PyObject* object = PyType_GenericAlloc(type, 0);
  if (object == nullptr) throw PythonError();
  reinterpret_cast<TensorObject*>(object)->impl = tensor.release();
  return object;
}
PyObject* wrap(Tensor tensor) { return wrap_as(reinterpret_cast<PyTypeObject*>(g_class), std::move(tensor)); }

bool is_tensor(PyObject* object) { return PyType_IsSubtype(object->type, g_base) != 0; }
TensorImpl* tensor_of(PyObject* object) {
  if (!is_tensor(object)) throw std::runtime_error("a tensor is expected");
  return impl(object);
}

Operator::Operator(const char* name) {
  const c10::ThreadState& state = c10::thread_state();
  const bool watched = state.dispatch_modes || state.callbacks || state.function_modes != 0;
  if (watched && g_watcher != nullptr) {
    PyObject* answer = PyObject_CallFunction(g_watcher, "s", name);
    if (answer == nullptr) throw PythonError();
    Py_DecRef(answer);
  }
  count_operator();
  thread_ = PyEval_SaveThread();
}

bool add_tensor_type(PyObject* module) {
  const auto slot = [](auto* function) { return reinterpret_cast<void*>(function); };
  static PyType_Slot slots[] = {{kDealloc, slot(tensor_dealloc)},
                                {kMethods, g_methods},
                                {kGetSet, g_fields},
                                {kAdd, slot(tensor_add)},
                                {kSubtract, slot(tensor_subtract)},
                                {kMultiply, slot(tensor_multiply)},
                                {kMatrixMultiply, slot(tensor_matmul)},
                                {kBool, slot(tensor_bool)},
                                {kCompare, slot(tensor_compare)},
                                {kHash, slot(tensor_hash)},
                                {kLength, slot(tensor_length)},
                                {kSubscript, slot(tensor_subscript)},
                                {}};
  static PyType_Spec spec{"torch._C.TensorBase", sizeof(TensorObject), 0, kDefaultFlags | kBaseType, slots};
  g_base = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (g_base == nullptr || !make_storage_type(module)) return false;
  Py_IncRef(reinterpret_cast<PyObject*>(g_base));
  return PyModule_AddObject(module, "TensorBase", reinterpret_cast<PyObject*>(g_base)) == 0;
}

}  // namespace simtorch
