// torch._C.TensorBase: what Python sees of autograd's notes. There is no backward pass.
#pragma once

#include "tests/sim_torch/python_types.h"

namespace simtorch {

PyObject* get_grad_fn(PyObject* self, void*);
PyObject* get_grad(PyObject* self, void*);
int set_grad(PyObject* self, PyObject* value, void*);
PyObject* get_is_leaf(PyObject* self, void*);
PyObject* get_retains_grad(PyObject* self, void*);
PyObject* get_output_number(PyObject* self, void*);
PyObject* get_backward_hooks(PyObject* self, void*);
int set_backward_hooks(PyObject* self, PyObject* value, void*);
PyObject* tensor_retain_grad(PyObject* self, PyObject*);

// torch._C._autograd. False: an exception is set.
bool add_autograd(PyObject* module);

}  // namespace simtorch
