// What is used of CPython's stable ABI, declared here so that one library serves every interpreter that the tests find,
// with or without its headers.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct PyTypeObject;
struct PyObject {
  std::ptrdiff_t references;
  PyTypeObject* type;
};
using PyCFunction = PyObject* (*)(PyObject*, PyObject*);
using PyCFunctionWithKeywords = PyObject* (*)(PyObject*, PyObject*, PyObject*);
using PyGetter = PyObject* (*)(PyObject*, void*);
using PySetter = int (*)(PyObject*, PyObject*, void*);

struct PyMethodDef {
  const char* name;
  void* function;
  int flags;
  const char* text;
};
struct PyGetSetDef {
  const char* name;
  PyGetter get;
  PySetter set;
  const char* text;
  void* closure;
};
struct PyType_Slot {
  int slot;
  void* value;
};
struct PyType_Spec {
  const char* name;
  int basic_size, item_size;
  unsigned flags;
  PyType_Slot* slots;
};
struct PyModuleDef {
  PyObject head;
  void *init, *index, *copy;
  const char *name, *text;
  std::ptrdiff_t size;
  PyMethodDef* methods;
  void *slots, *traverse, *clear, *free;
};

extern PyObject _Py_NoneStruct, _Py_TrueStruct, _Py_FalseStruct, _Py_NotImplementedStruct;
extern PyObject *PyExc_RuntimeError, *PyExc_TypeError, *PyExc_IndexError;
extern PyTypeObject PyTuple_Type, PyList_Type, PySlice_Type, PyLong_Type, PyFloat_Type, PyBool_Type;

void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
PyObject* PyModule_Create2(PyModuleDef*, int api_version);
int PyModule_AddObject(PyObject* module, const char* name, PyObject* steals);
PyObject* PyImport_ImportModule(const char*);
PyObject* PyType_FromSpec(PyType_Spec*);
PyObject* PyType_GenericAlloc(PyTypeObject*, std::ptrdiff_t);
void* PyType_GetSlot(PyTypeObject*, int slot);
int PyType_IsSubtype(PyTypeObject*, PyTypeObject*);
PyObject* PyObject_CallObject(PyObject*, PyObject* arguments);
PyObject* PyObject_CallFunction(PyObject*, const char* format, ...);
PyObject* PyObject_CallMethod(PyObject*, const char* name, const char* format, ...);
PyObject* PyObject_GetAttrString(PyObject*, const char*);
int PyArg_ParseTuple(PyObject*, const char*, ...);
PyObject* Py_BuildValue(const char*, ...);
PyObject* PyErr_NewException(const char*, PyObject*, PyObject*);
PyObject* PyErr_Occurred();
void PyErr_SetString(PyObject*, const char*);
PyObject* PyTuple_New(std::ptrdiff_t);
int PyTuple_SetItem(PyObject*, std::ptrdiff_t, PyObject* steals);
std::ptrdiff_t PySequence_Size(PyObject*);
PyObject* PySequence_GetItem(PyObject*, std::ptrdiff_t);
PyObject* PyDict_GetItemString(PyObject*, const char*);
PyObject* PyList_New(std::ptrdiff_t);
int PyList_SetItem(PyObject*, std::ptrdiff_t, PyObject* steals);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyLong_FromUnsignedLongLong(unsigned long long);
long long PyLong_AsLongLong(PyObject*);
unsigned long long PyLong_AsUnsignedLongLongMask(PyObject*);
PyObject* PyFloat_FromDouble(double);
double PyFloat_AsDouble(PyObject*);
PyObject* PyBool_FromLong(long);
int PyObject_IsTrue(PyObject*);
PyObject* PyUnicode_FromString(const char*);
PyObject* PyBytes_FromStringAndSize(const char*, std::ptrdiff_t);
int PySlice_Unpack(PyObject*, std::ptrdiff_t*, std::ptrdiff_t*, std::ptrdiff_t*);
std::ptrdiff_t PySlice_AdjustIndices(std::ptrdiff_t, std::ptrdiff_t*, std::ptrdiff_t*, std::ptrdiff_t);
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
}

namespace simtorch {

constexpr int kPositional = 1, kKeywords = 3, kNoArguments = 4, kOneArgument = 8, kStatic = 32;  // METH_*
constexpr unsigned kDefaultFlags = 1U << 18, kBaseType = 1U << 10;                               // Py_TPFLAGS_*
constexpr int kApiVersion = 3;

enum Slot {
  kLength = 4,
  kSubscript = 5,
  kAdd = 7,
  kBool = 9,
  kMultiply = 29,
  kSubtract = 36,
  kCallSlot = 50,
  kDealloc = 52,
  kHash = 59,
  kMethods = 64,
  kNew = 65,
  kRepr = 66,
  kCompare = 67,
  kGetSet = 73,
  kFree = 74,
  kMatrixMultiply = 75,
};

inline void* as_function(PyObject* (*function)(PyObject*, PyObject*)) { return reinterpret_cast<void*>(function); }

inline PyObject* none() {
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

}  // namespace simtorch
