// Functions of torch._C that stand in files of their own.
#pragma once

#include "tests/sim_torch/python_types.h"

namespace simtorch {

// python_library.cc
PyObject* make_library_copy(PyObject*, PyObject* arguments);
PyObject* add_library_word(PyObject*, PyObject* arguments);
PyObject* set_library_word(PyObject*, PyObject* arguments);

// python_switches.cc
PyObject* set_tf32(PyObject*, PyObject* value);
PyObject* get_tf32(PyObject*, PyObject*);
PyObject* set_deterministic(PyObject*, PyObject* value);
PyObject* get_deterministic(PyObject*, PyObject*);
PyObject* tunable_enable(PyObject*, PyObject* value);
PyObject* tunable_enabled(PyObject*, PyObject*);

}  // namespace simtorch
