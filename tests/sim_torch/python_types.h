// The simulated PyTorch's C types (torch._C), and how the functions of the module get at what is inside.
#pragma once

#include <exception>
#include <string>

#include "tests/sim_torch/operators.h"
#include "tests/sim_torch/python_api.h"

namespace simtorch {

// A Python exception is set already.
struct PythonError : std::exception {};

struct TensorObject {
  PyObject head;
  TensorImpl* impl;  // owned; an at::Tensor to Grape
  PyObject *backward_hooks, *accumulate_hooks;
};
struct TypeObject {  // torch.dtype
  PyObject head;
  ScalarType type;
  const char* name;
};
struct DeviceObject {  // torch.device
  PyObject head;
  Device device;
};
struct GeneratorObject {
  PyObject head;
  Device device;
  std::uint64_t seed, offset;
};

PyObject* tensor_class();  // torch.Tensor, once Python has said which
void set_tensor_class(PyObject* type);
void set_size_class(PyObject* type);
PyObject* out_of_memory_error();

PyObject* wrap(Tensor tensor);                         // as a torch.Tensor
PyObject* wrap_as(PyTypeObject* type, Tensor tensor);  // as a subclass of it
TensorImpl* tensor_of(PyObject* object);               // throws where it is none
bool is_tensor(PyObject* object);
PyObject* storage_object(TensorImpl* tensor);  // torch.UntypedStorage: a new reference; null: an exception is set
void tensor_dealloc(PyObject* object);         // of objects that are a TensorObject
PyObject* type_object(ScalarType type);        // a new reference
PyObject* device_object(Device device);
ScalarType type_of(PyObject* object);
Device device_of(PyObject* object);  // a device or its name
Sizes sizes_of(PyObject* sequence);
PyObject* size_tuple(const Sizes& sizes);
double number_of(PyObject* object);
bool is_number(PyObject* object);

// Adds the types to the module. False: an exception is set.
bool add_types(PyObject* module);
bool add_tensor_type(PyObject* module);
bool make_storage_type(PyObject* module);
bool add_functions(PyObject* module);

// Around an operator: counted, shown to a mode or profiler that watches, and run without the interpreter's lock.
class Operator {
 public:
  explicit Operator(const char* name);                            // throws PythonError
  ~Operator() noexcept(false) { PyEval_RestoreThread(thread_); }  // ends the thread where the interpreter ends
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

 private:
  void* thread_ = nullptr;
};
void set_watcher(PyObject* callable);  // null: none

template <typename Make>
Tensor run_operator(const char* name, Make make) {
  const Operator scope(name);
  return make();
}

// C++ exceptions become Python's.
template <typename Function>
PyObject* guarded(Function function) {
  try {
    return function();
  } catch (const PythonError&) {
    return nullptr;
  } catch (const c10::OutOfMemory& error) {
    PyErr_SetString(out_of_memory_error(), error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// Does autograd follow what is computed from this?
inline Tensor follow(Tensor result, std::initializer_list<TensorImpl*> inputs) {
  for (TensorImpl* input : inputs) {
    const bool followed = c10::thread_state().grad && input != nullptr && input->requires_grad();
    if (followed && !result->requires_grad()) result->set_made_by_node();
  }
  return result;
}

// A view as autograd makes one: it keeps what it is a view of.
inline Tensor view_of(TensorImpl* tensor, const Sizes& sizes, const Sizes& strides, std::int64_t offset) {
  Tensor view = as_strided(tensor, sizes, strides, offset);
  view->version = tensor->version;
  if (!c10::thread_state().inference)
    view->base = Tensor::share(tensor->base != nullptr ? tensor->base : tensor).release();
  view->autograd->is_view = view->base != nullptr;
  view->autograd->view_version = view->version.current_version();
  constexpr std::uint8_t kNoGradMode = 3;
  if (view->base != nullptr)
    view->autograd->how_viewed = c10::thread_state().grad ? tensor->autograd->how_viewed : kNoGradMode;
  return view;
}

}  // namespace simtorch
