"""CUDA's streams and generators; begun at first use, as PyTorch's."""
from torch import _C
from torch.cuda import memory  # noqa: F401

_initialized = False
default_generators = ()
_seed = None


def _lazy_init():
    global _initialized, default_generators
    if _initialized:
        return
    _C._cuda_init()
    default_generators = (_C.Generator("cuda"),)
    if _seed is not None:
        default_generators[0].manual_seed(_seed)
    _initialized = True


def is_available():
    return True


def manual_seed(seed):
    global _seed
    _seed = seed
    if _initialized:
        default_generators[0].manual_seed(seed)


class Stream:
    def __init__(self, handle=None):
        _lazy_init()
        self.cuda_stream = _C._cuda_makeStream() if handle is None else handle

    def wait_stream(self, other):
        _C._cuda_waitStream(self.cuda_stream, other.cuda_stream)


def current_stream():
    return Stream(_C._cuda_getCurrentRawStream(0))


class use_mem_pool:
    """Memory comes from the pool of that number."""

    def __init__(self, pool):
        self._pool = pool

    def __enter__(self):
        _C._cuda_beginAllocateCurrentThreadToPool(0, self._pool)

    def __exit__(self, *_):
        _C._cuda_endAllocateToPool(0, self._pool)


class stream:
    def __init__(self, used):
        self._used = used

    def __enter__(self):
        self._before = _C._cuda_getCurrentRawStream(0)
        _C._cuda_setStream(self._used.cuda_stream)

    def __exit__(self, *_):
        _C._cuda_setStream(self._before)


def synchronize():
    _lazy_init()
    _C._cuda_synchronize()


empty_cache = _C._cuda_emptyCache
