"""The engine as a C type whose run_backward is a method descriptor of the real one's kind (tuple and keywords)."""
import ctypes
import os


class _Method(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("value", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    ]


# The probe's C function calls each function of the tuple that is its first argument.
_call = ctypes.PyDLL(os.environ["PROBE_LIBRARY"]).probe_run_backward
_methods = (_Method * 2)(_Method(b"run_backward", ctypes.cast(_call, ctypes.c_void_p), 3, None))
_PY_TP_METHODS = 64
_slots = (_Slot * 2)(_Slot(_PY_TP_METHODS, ctypes.addressof(_methods)))
_DEFAULT_AND_BASETYPE = (1 << 18) | (1 << 10)
_spec = _Spec(b"torch._C._EngineBase", 16, 0, _DEFAULT_AND_BASETYPE, _slots)
ctypes.pythonapi.PyType_FromSpec.restype = ctypes.py_object
ctypes.pythonapi.PyType_FromSpec.argtypes = [ctypes.POINTER(_Spec)]
_ImperativeEngine = ctypes.pythonapi.PyType_FromSpec(ctypes.byref(_spec))
