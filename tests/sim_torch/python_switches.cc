// Functions of torch._C that set and tell switches.
#include "tests/sim_torch/python_functions.h"

namespace simtorch {

PyObject* set_tf32(PyObject*, PyObject* value) {
  switches().tf32 = PyObject_IsTrue(value) != 0;
  return none();
}
PyObject* get_tf32(PyObject*, PyObject*) { return PyBool_FromLong(switches().tf32); }

PyObject* set_deterministic(PyObject*, PyObject* value) {
  switches().deterministic = PyObject_IsTrue(value) != 0;
  return none();
}
PyObject* get_deterministic(PyObject*, PyObject*) { return PyBool_FromLong(switches().deterministic); }

PyObject* tunable_enable(PyObject*, PyObject* value) {
  c10::thread_state().tunable = PyObject_IsTrue(value) != 0;
  return none();
}
PyObject* tunable_enabled(PyObject*, PyObject*) { return PyBool_FromLong(c10::thread_state().tunable); }

}  // namespace simtorch
