"""A small CUDA client through ctypes, of the kind that knows nothing of Grape.

It loads libcuda.so.1 by name and takes every function through cuGetProcAddress_v2, as libcudart does. The calls are
those of any CUDA program; only the module's image (a text, see README.md) and its kernels belong to the simulated
driver, and load() says so clearly where a real one is found.
"""

import ctypes
import struct
from array import array

# Function: the newest version of its signature that this module is written for, and its argument types.
_POINTER = ctypes.c_void_p
_UINT = ctypes.c_uint
_SIZE = ctypes.c_size_t
_FUNCTIONS = {
    "cuInit": (2000, [_UINT]),
    "cuDeviceGet": (2000, [_POINTER, ctypes.c_int]),
    "cuDeviceGetName": (2000, [_POINTER, ctypes.c_int, ctypes.c_int]),
    "cuDevicePrimaryCtxRetain": (7000, [_POINTER, ctypes.c_int]),
    "cuDevicePrimaryCtxRelease": (11000, [ctypes.c_int]),
    "cuCtxSetCurrent": (4000, [_POINTER]),
    "cuCtxSynchronize": (2000, []),
    "cuModuleLoadData": (2000, [_POINTER, ctypes.c_char_p]),
    "cuModuleUnload": (2000, [_POINTER]),
    "cuModuleGetFunction": (2000, [_POINTER, _POINTER, ctypes.c_char_p]),
    "cuMemAlloc": (3020, [_POINTER, _SIZE]),
    "cuMemFree": (3020, [_POINTER]),
    "cuMemcpyHtoDAsync": (3020, [_POINTER, _POINTER, _SIZE, _POINTER]),
    "cuMemcpyDtoHAsync": (3020, [_POINTER, _POINTER, _SIZE, _POINTER]),
    "cuStreamCreate": (2000, [_POINTER, _UINT]),
    "cuStreamSynchronize": (2000, [_POINTER]),
    "cuStreamWaitEvent": (3020, [_POINTER, _POINTER, _UINT]),
    "cuStreamDestroy": (4000, [_POINTER]),
    "cuEventCreate": (2000, [_POINTER, _UINT]),
    "cuEventRecord": (2000, [_POINTER, _POINTER]),
    "cuEventDestroy": (4000, [_POINTER]),
    "cuLaunchKernel": (4000, [_POINTER] + [_UINT] * 7 + [_POINTER, _POINTER, _POINTER]),
    "cuStreamBeginCapture": (10010, [_POINTER, _UINT]),
    "cuStreamEndCapture": (10000, [_POINTER, _POINTER]),
    "cuGraphInstantiateWithFlags": (11040, [_POINTER, _POINTER, ctypes.c_ulonglong]),
    "cuGraphLaunch": (10000, [_POINTER, _POINTER]),
    "cuGraphExecDestroy": (10000, [_POINTER]),
    "cuGraphDestroy": (10000, [_POINTER]),
    "cuGetErrorName": (6000, [ctypes.c_int, _POINTER]),
}

KERNELS = {
    "copy": "_Z4copyPfPKfi",
    "fill": "_Z4fillPffi",
    "axpy": "_Z4axpyPfPKffi",
    "matmul": "_Z6matmulPfPKfS1_iii",
    "reduce_sum": "_Z10reduce_sumPfPKfi",
    "bias_relu": "_Z9bias_reluPfPKfii",
    "affine": "_Z6affinePfPKf12AffineParamsi",
    "delay": "_Z5delayj",
}
IMAGE = ("SIMCUDA MODULE 1\n" + "\n".join(KERNELS.values()) + "\n").encode()

CUDA_ERROR_INVALID_IMAGE = 200
NON_BLOCKING = 1


class CudaError(RuntimeError):
    """A call that did not return CUDA_SUCCESS. `result` is its CUresult."""

    def __init__(self, function, result, name):
        super().__init__(f"{function} failed: {name} ({result})")
        self.result = result


class Driver:
    """The driver's functions as methods, each of which raises CudaError."""

    def __init__(self, library="libcuda.so.1"):
        self._library = ctypes.CDLL(library)
        get = self._library.cuGetProcAddress_v2
        get.argtypes = [ctypes.c_char_p, _POINTER, ctypes.c_int, ctypes.c_ulonglong, _POINTER]
        for name, (version, types) in _FUNCTIONS.items():
            address = ctypes.c_void_p()
            status = ctypes.c_int()
            result = get(name.encode(), ctypes.byref(address), version, 0, ctypes.byref(status))
            if result != 0 or not address.value:
                raise RuntimeError(f"the driver has no {name} of version {version} (status {status.value})")
            function = ctypes.CFUNCTYPE(ctypes.c_int, *types)(address.value)
            setattr(self, name, self._checked(name, function))

    def _checked(self, name, function):
        def call(*arguments):
            result = function(*arguments)
            if result != 0:
                raise CudaError(name, result, self._error_name(result))

        return call

    def _error_name(self, result):
        text = ctypes.c_char_p()
        try:
            self.cuGetErrorName(result, ctypes.byref(text))
        except CudaError:
            return "unknown error"
        return (text.value or b"unknown error").decode()


class Buffer:
    """`count` floats in device memory."""

    def __init__(self, device, count):
        self._device = device
        self.count = count
        address = ctypes.c_uint64()
        device.driver.cuMemAlloc(ctypes.byref(address), 4 * count)
        self.address = address.value

    def write(self, values, stream=None):
        host = array("f", values)
        if len(host) != self.count:
            raise ValueError(f"{len(host)} values for a buffer of {self.count}")
        where, _ = host.buffer_info()
        self._device.driver.cuMemcpyHtoDAsync(self.address, where, 4 * self.count, stream)
        self._device.driver.cuStreamSynchronize(stream)
        return self

    def read(self, stream=None):
        host = array("f", bytes(4 * self.count))
        where, _ = host.buffer_info()
        self._device.driver.cuMemcpyDtoHAsync(where, self.address, 4 * self.count, stream)
        self._device.driver.cuStreamSynchronize(stream)
        return host

    def free(self):
        self._device.driver.cuMemFree(self.address)
        self.address = 0


class Device:
    """Device 0 with its primary context current on this thread, a module with all kernels, and one stream."""

    def __init__(self, driver=None):
        self.driver = driver or Driver()
        self.driver.cuInit(0)
        number = ctypes.c_int()
        self.driver.cuDeviceGet(ctypes.byref(number), 0)
        self._number = number.value
        context = ctypes.c_void_p()
        self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._number)
        self.driver.cuCtxSetCurrent(context)
        self._module = self._load()
        self._functions = {}
        self.stream = self.make_stream()

    @property
    def name(self):
        text = ctypes.create_string_buffer(128)
        self.driver.cuDeviceGetName(text, len(text), self._number)
        return text.value.decode()

    def _load(self):
        module = ctypes.c_void_p()
        try:
            self.driver.cuModuleLoadData(ctypes.byref(module), IMAGE)
        except CudaError as error:
            raise SystemExit(
                f"This program's kernels belong to Grape's simulated driver; the one loaded drives {self.name!r} and "
                f"answers {error}.\nSet LD_LIBRARY_PATH to the folder of the simulated libcuda.so.1 "
                "(build/<preset>/lib/simcuda)."
            ) from None
        return module

    def make_stream(self, flags=NON_BLOCKING):
        stream = ctypes.c_void_p()
        self.driver.cuStreamCreate(ctypes.byref(stream), flags)
        return stream

    def make_event(self):
        event = ctypes.c_void_p()
        self.driver.cuEventCreate(ctypes.byref(event), 0)
        return event

    def function(self, name):
        if name not in self._functions:
            found = ctypes.c_void_p()
            self.driver.cuModuleGetFunction(ctypes.byref(found), self._module, KERNELS[name].encode())
            self._functions[name] = found
        return self._functions[name]

    def buffer(self, values):
        values = list(values)
        return Buffer(self, len(values)).write(values, self.stream)

    def empty(self, count):
        return Buffer(self, count)

    def launch(self, name, *arguments, stream=None, grid=(1, 1, 1), block=(128, 1, 1)):
        """Launches a kernel: buffers go as pointers, floats as float, integers as int, bytes as they are."""
        values = []
        for argument in arguments:
            if isinstance(argument, Buffer):
                values.append(ctypes.c_uint64(argument.address))
            elif isinstance(argument, float):
                values.append(ctypes.c_float(argument))
            elif isinstance(argument, int):
                values.append(ctypes.c_int(argument))
            else:
                values.append(ctypes.create_string_buffer(bytes(argument), len(argument)))
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.driver.cuLaunchKernel(
            self.function(name), *grid, *block, 0, self.stream if stream is None else stream, pointers, None
        )

    # The kernels by name, with the shapes of their launches.
    def matmul(self, c, a, b, m, n, k, **options):
        self.launch("matmul", c, a, b, m, n, k, grid=((m * n + 127) // 128, 1, 1), **options)

    def bias_relu(self, x, bias, rows, columns, **options):
        self.launch("bias_relu", x, bias, rows, columns, grid=((rows * columns + 127) // 128, 1, 1), **options)

    def axpy(self, y, x, a, **options):
        self.launch("axpy", y, x, float(a), y.count, grid=((y.count + 127) // 128, 1, 1), **options)

    def affine(self, y, x, scale, bias, steps=1, relu=False, padding=0, **options):
        """`padding` fills the holes of the struct, which mean nothing."""
        hole = bytes([padding & 0xFF])
        params = struct.pack("<c7sdh2sfc7s", b"r" if relu else b"l", hole * 7, scale, steps, hole * 2, bias, b"\0", hole * 7)
        self.launch("affine", y, x, params, y.count, **options)

    def reduce_sum(self, y, x, **options):
        self.launch("reduce_sum", y, x, x.count, block=(256, 1, 1), **options)

    def synchronize(self):
        self.driver.cuStreamSynchronize(self.stream)

    def capture(self, body):
        """A graph of what `body` launches on the stream; returns what launches it."""
        graph = ctypes.c_void_p()
        self.driver.cuStreamBeginCapture(self.stream, 1)
        body()
        self.driver.cuStreamEndCapture(self.stream, ctypes.byref(graph))
        executable = ctypes.c_void_p()
        self.driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, 0)
        self.driver.cuGraphDestroy(graph)
        return lambda: self.driver.cuGraphLaunch(executable, self.stream)

    def close(self):
        self.driver.cuStreamDestroy(self.stream)
        self.driver.cuModuleUnload(self._module)
        self.driver.cuDevicePrimaryCtxRelease(self._number)
