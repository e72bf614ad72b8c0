// torch._C.StorageBase: the memory behind a tensor.
#include "tests/sim_torch/python_types.h"

namespace simtorch {
namespace {

PyTypeObject* g_storage_type;

// A storage is shown through a tensor that holds it.
const c10::StorageImpl& storage_of(PyObject* self) { return *reinterpret_cast<TensorObject*>(self)->impl->storage; }

PyObject* storage_data_ptr(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(reinterpret_cast<std::uint64_t>(storage_of(self).data));
}
PyObject* storage_nbytes(PyObject* self, PyObject*) { return PyLong_FromUnsignedLongLong(storage_of(self).bytes); }
PyObject* storage_cdata(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(reinterpret_cast<std::uint64_t>(&storage_of(self)));
}

PyMethodDef g_methods[] = {
    {"data_ptr", as_function(storage_data_ptr), kNoArguments, nullptr},
    {"nbytes", as_function(storage_nbytes), kNoArguments, nullptr},
    {},
};
PyGetSetDef g_fields[] = {{"_cdata", storage_cdata, nullptr, nullptr, nullptr}, {}};

}  // namespace

// As PyTorch's: other threads may run meanwhile.
void tensor_dealloc(PyObject* object) {
  void* thread = PyEval_SaveThread();
  Tensor::drop(reinterpret_cast<TensorObject*>(object)->impl);
  PyEval_RestoreThread(thread);
  PyTypeObject* type = object->type;
  reinterpret_cast<void (*)(void*)>(PyType_GetSlot(type, kFree))(object);
  Py_DecRef(reinterpret_cast<PyObject*>(type));
}

PyObject* storage_object(TensorImpl* tensor) {
  return guarded([&] { return wrap_as(g_storage_type, Tensor::share(tensor)); });
}

bool make_storage_type(PyObject* module) {
  static PyType_Slot slots[] = {
      {kDealloc, reinterpret_cast<void*>(tensor_dealloc)}, {kMethods, g_methods}, {kGetSet, g_fields}, {}};
  static PyType_Spec spec{"torch._C.StorageBase", sizeof(TensorObject), 0, kDefaultFlags, slots};
  g_storage_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return g_storage_type != nullptr &&
         PyModule_AddObject(module, "StorageBase", reinterpret_cast<PyObject*>(g_storage_type)) == 0;
}

}  // namespace simtorch
