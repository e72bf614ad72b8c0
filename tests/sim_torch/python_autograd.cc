#include "tests/sim_torch/python_autograd.h"

namespace simtorch {
namespace {

constexpr int kApiNoFlags = 0;

// Python's object of a node, which the tensor owns.
struct NodeObject {
  PyObject head;
  c10::Node* node;
};

c10::AutogradMeta& notes(PyObject* self) { return *tensor_of(self)->autograd; }

PyObject* node_sequence(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(reinterpret_cast<NodeObject*>(self)->node->sequence);
}

PyTypeObject* node_type() {
  static PyMethodDef methods[] = {{"_sequence_nr", reinterpret_cast<void*>(node_sequence), kNoArguments, nullptr}, {}};
  static PyType_Slot slots[] = {{kMethods, methods}, {}};
  static PyType_Spec spec{"torch.autograd.Node", sizeof(NodeObject), 0, kDefaultFlags, slots};
  static auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type;
}

PyObject* push_saved_hooks(PyObject*, PyObject* arguments) {
  PyObject *pack = nullptr, *unpack = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &pack, &unpack) == 0) return nullptr;
  ++c10::saved_hooks().end;
  return none();
}

PyObject* pop_saved_hooks(PyObject*, PyObject*) {
  --c10::saved_hooks().end;
  return none();
}

PyObject* get_creation_meta(PyObject*, PyObject* tensor) { return PyLong_FromLongLong(notes(tensor).how_viewed); }

PyMethodDef g_functions[] = {
    {"_push_saved_tensors_default_hooks", reinterpret_cast<void*>(push_saved_hooks), kPositional, nullptr},
    {"_pop_saved_tensors_default_hooks", reinterpret_cast<void*>(pop_saved_hooks), kNoArguments, nullptr},
    {"_get_creation_meta", reinterpret_cast<void*>(get_creation_meta), kOneArgument, nullptr},
    {},
};

}  // namespace

PyObject* get_grad_fn(PyObject* self, void*) {
  return guarded([&] {
    if (notes(self).grad_fn == nullptr) return none();
    PyObject* object = PyType_GenericAlloc(node_type(), kApiNoFlags);
    if (object != nullptr) reinterpret_cast<NodeObject*>(object)->node = notes(self).grad_fn;
    return object;
  });
}

PyObject* get_grad(PyObject* self, void*) {
  return guarded([&] {
    TensorImpl* grad = notes(self).grad;
    return grad != nullptr ? wrap(Tensor::share(grad)) : none();
  });
}

int set_grad(PyObject* self, PyObject* value, void*) {
  PyObject* done = guarded([&] {
    TensorImpl* grad = value != &_Py_NoneStruct ? Tensor::share(tensor_of(value)).release() : nullptr;
    Tensor::drop(std::exchange(notes(self).grad, grad));
    return none();
  });
  if (done == nullptr) return -1;
  Py_DecRef(done);
  return 0;
}

PyObject* get_is_leaf(PyObject* self, void*) { return PyBool_FromLong(notes(self).grad_fn == nullptr); }
PyObject* get_retains_grad(PyObject* self, void*) { return PyBool_FromLong(notes(self).retains_grad); }
PyObject* get_output_number(PyObject* self, void*) { return PyLong_FromLongLong(notes(self).output_number); }

PyObject* tensor_retain_grad(PyObject* self, PyObject*) {
  notes(self).retains_grad = notes(self).grad_fn != nullptr;
  return none();
}

PyObject* get_backward_hooks(PyObject* self, void*) {
  PyObject* hooks = reinterpret_cast<TensorObject*>(self)->backward_hooks;
  if (hooks == nullptr) return none();
  Py_IncRef(hooks);
  return hooks;
}

int set_backward_hooks(PyObject* self, PyObject* value, void*) {
  PyObject*& hooks = reinterpret_cast<TensorObject*>(self)->backward_hooks;
  Py_IncRef(value);
  if (hooks != nullptr) Py_DecRef(hooks);
  hooks = value;
  return 0;
}

bool add_autograd(PyObject* module) {
  static PyModuleDef definition{{1, nullptr}, nullptr, nullptr, nullptr, "torch._C._autograd", nullptr, -1, g_functions,
                                nullptr,      nullptr, nullptr, nullptr};
  PyObject* autograd = PyModule_Create2(&definition, kApiVersion);
  return autograd != nullptr && PyModule_AddObject(module, "_autograd", autograd) == 0;
}

}  // namespace simtorch
