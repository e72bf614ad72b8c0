// Functions of torch._C that stand for libraries which operators use.
#include "tests/sim_torch/python_functions.h"

namespace simtorch {

PyObject* make_library_copy(PyObject*, PyObject* arguments) {
  PyObject* x = nullptr;
  int makes = 0;
  if (PyArg_ParseTuple(arguments, "Oi", &x, &makes) == 0) return nullptr;
  return guarded([&] {
    TensorImpl* from = tensor_of(x);
    return wrap(run_operator("_library_copy", [&] { return library_copy(from, static_cast<LibraryMakes>(makes)); }));
  });
}

PyObject* add_library_word(PyObject*, PyObject* arguments) {
  PyObject* x = nullptr;
  const char* library = nullptr;
  int bytes = 0;
  if (PyArg_ParseTuple(arguments, "Osi", &x, &library, &bytes) == 0) return nullptr;
  return guarded([&] {
    TensorImpl* from = tensor_of(x);
    const auto add = [&] { return plus_word(from, library, static_cast<std::size_t>(bytes)); };
    return wrap(run_operator("_add_library_word", add));
  });
}

PyObject* set_library_word(PyObject*, PyObject* arguments) {
  const char* library = nullptr;
  int bytes = 0;
  double value = 0;
  if (PyArg_ParseTuple(arguments, "sid", &library, &bytes, &value) == 0) return nullptr;
  return guarded([&] {
    *word_of(library, static_cast<std::size_t>(bytes)) = static_cast<float>(value);
    return none();
  });
}

}  // namespace simtorch
