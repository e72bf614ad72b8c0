"""The driver fails in what Grape asks of it, at every stage: the results are right, and nothing is raised."""
import contextlib
import ctypes
import re

import torch
from bed import case
from tiny import Net, data, net

CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN = 2, 999
DRIVER = ctypes.CDLL("libcuda.so.1")
DRIVER.simcuda_set_fault.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]


class failing:
    """Inside of it the `nth` call of a function fails; 0: each."""

    def __init__(self, symbol, nth, result):
        self.fault = (symbol.encode(), nth, result)

    def __enter__(self):
        if DRIVER.simcuda_set_fault(*self.fault) != 0:
            raise RuntimeError(f"no function {self.fault[0]}")

    def __exit__(self, *_):
        DRIVER.simcuda_reset()


class Running(Net):
    """Changes a buffer, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        y = torch.dropout(super().forward(x), 0.25)
        self.mean.mul_(0.5).add_(y[0])
        return y + self.mean, torch.affine(y, 2.0, 1.0)


class Reading(Net):
    def forward(self, x):
        y = super().forward(x)
        return y + 1 if x.sum() > -100 else y - 1


# Functions that the program itself does not call, and some of the refusals that follow.
SYMBOLS = {
    "cuGraphCreate": ("driver_error",),
    "cuGraphAddKernelNode_v2": ("driver_error",),
    "cuGraphInstantiateWithFlags": ("driver_error",),
    "cuGraphExecKernelNodeSetParams_v2": ("graph_refused",),
    "cuGraphLaunch": ("graph_refused", "graph_launch_failed"),
    "cuMemcpyDtoDAsync_v2": ("driver_error",),
    "cuMemGetInfo_v2": (),
    "cuCtxGetCurrent": ("no_context", "not_recorded"),
}


def one_fault(run, kind, at, fault):
    """A new model whose call number `at` meets the fault."""
    model = net(kind)
    torch.manual_seed(78)
    for i in range(8):
        x = data(i, rows=3 if i < 5 else 2) + 1
        if i == at:
            with failing(*fault):
                run(model, x)
                torch.cuda.synchronize()
        else:
            run(model, x)
    if kind is Running:
        run.see(model.mean)
    run.see(torch.cuda.default_generators[0].get_offset())


def declare(symbol, refusals):
    def body(run):
        for nth in (1, 2, 5, 0):
            for at in (0, 1, 2, 3, 5):
                for kind in (Running, Reading):
                    one_fault(run, kind, at, (symbol, nth, CUDA_ERROR_UNKNOWN))

    body.__name__ = "fault" + re.sub("([A-Z]+[a-z]*)", r"_\1", symbol.split("_")[0][2:]).lower()
    case("e{2,4}r[er]*", stderr=".*", refusals=refusals)(body)


for name, ids in SYMBOLS.items():
    declare(name, ids)


@case("e{2,4}r[er]*r", stderr=".*")
def fault_of_an_allocation(run):
    for nth in (1, 2, 3):
        for at in range(6):
            model = net(Running)
            torch.manual_seed(78)
            for i in range(8):
                if i == at:
                    with failing("cuMemAlloc_v2", nth, CUDA_ERROR_OUT_OF_MEMORY):
                        run(model, torch.full((20000, 8), float(i), device="cuda"))
                else:
                    run(model, torch.full((20000, 8), float(i), device="cuda"))
            run.see(model.mean)


# Nearly all memory is the program's: no copies for a shadow, no arena.
@case("e{4,8}p{0,4}", reason="device memory", environment={"SIMCUDA_MEMORY": str(9 << 20)})
def no_memory_for_a_shadow(run):
    model = net(Running)
    torch.manual_seed(78)
    taken = [torch.empty(1 << 18, device="cuda") for _ in range(6)]
    for i in range(8):
        run(model, data(i))
    run.see(len(taken), model.mean)


# The arena of a replay is there; later the outputs find no memory, as eager's would not.
@case("e{2,3}r{3,4}x{2}r{2}", stderr=".*", validated=False, refusals=("no_memory_or_random_state",))
def no_memory_for_the_outputs(run):
    class Wide(Net):
        def forward(self, x):
            return torch.relu(x) * 2

    model = net(Wide)
    x = torch.ones(1 << 19, device="cuda")
    kept = None
    for i in range(10):
        torch.cuda.synchronize()
        if i in (6, 7):
            torch.cuda.empty_cache()
            with failing("cuMemAlloc_v2", 0, CUDA_ERROR_OUT_OF_MEMORY):
                if i == 6:  # the replay before got memory ready for this one
                    with contextlib.suppress(torch.OutOfMemoryError):
                        kept = model(x)
                run(model, x)
        else:
            run(model, x)
    del kept


# Grape's own kernels cannot be loaded, from the beginning: nothing is proven.
@case("e{4,8}p{0,4}", environment={"SIMCUDA_FAULTS": "cuModuleLoadData:*:999,cuModuleLoadDataEx:*:999"}, stderr=".*")
def no_kernels_of_its_own(run):
    model = net(Running)
    torch.manual_seed(78)
    for i in range(8):
        run(model, data(i))
    run.see(model.mean)


# The place that a value arrives in stays ordinary memory: copies to it wait.
@case("eer{6}", environment={"SIMCUDA_FAULTS": "cuMemHostRegister_v2:*:999"})
def no_registered_memory(run):
    class Reading(Net):
        def forward(self, x):
            y = super().forward(x)
            return y * 2 if (x.sum() > -1000).item() else y

    model = net(Reading)
    for i in range(8):
        run(model, data(i))
