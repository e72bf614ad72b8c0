"""Calls of PyTorch's that no state shows are refused, whoever makes them: the allocator's affairs, memory that others share."""
import atexit
import sys
import tempfile
import unittest
import warnings

import made_modules
import torch
from torch.nn.utils.rnn import PackedSequence

import executed
from executed import Observation

assert executed.load_torch()
X = torch.ones(8)
ENGINE = torch.backends.quantized.engine
STORAGE, TYPED = X.untyped_storage(), X._typed_storage()
PACKED = PackedSequence(X, torch.ones(8, dtype=torch.int64))
FILE = tempfile.NamedTemporaryFile()
FILE.write(bytes(64))
FILE.flush()
atexit.register(FILE.close)
LIBRARY = made_modules.module("def record(x):\n  try: x.record_stream(None)\n  except (TypeError, RuntimeError): pass", library=True)


def caught(function):
    """Without a GPU some raise, once they were called."""

    def call():
        try:
            function()
        except (RuntimeError, TypeError, NotImplementedError):
            pass

    return call


def saved_tensors_hooks():
    with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, torch.Tensor.clone):
        return X + 1


MODEL = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
STATE = MODEL.state_dict()

REFUSED = [
    ("record_stream", caught(lambda: X.record_stream(None)), "Tensor.record_stream()"),
    ("record_stream by a library", lambda: LIBRARY.record(X), "Tensor.record_stream()"),
    ("resizable", lambda: STORAGE.resizable(), "UntypedStorage.resizable()"),
    ("resizable, typed", lambda: TYPED.resizable(), "UntypedStorage.resizable()"),
    ("shared", lambda: X.is_shared(), "UntypedStorage.is_shared()"),
    ("shared, a storage", lambda: STORAGE.is_shared(), "UntypedStorage.is_shared()"),
    ("pinned", caught(lambda: X.is_pinned()), "Tensor.is_pinned()"),
    ("pinned, a storage", caught(lambda: STORAGE.is_pinned()), "is_pinned()"),
    ("pinned, a typed storage", caught(lambda: TYPED.is_pinned()), "is_pinned()"),
    ("pinned, a sequence", caught(lambda: PACKED.is_pinned()), "PackedSequence.is_pinned()"),
    ("a file", lambda: torch.from_file(FILE.name, False, 16, dtype=torch.float32), "from_file()"),
    ("a file, shared", lambda: torch.UntypedStorage.from_file(FILE.name, True, 64), "UntypedStorage.from_file()"),
    ("anomaly mode", lambda: torch.is_anomaly_enabled(), "is_anomaly_enabled()"),
    ("anomaly mode is set", lambda: torch.autograd.set_detect_anomaly(False), "set_anomaly_enabled()"),
    ("an engine is set", lambda: setattr(torch.backends.quantized, "engine", ENGINE), "_set_qengine()"),
    ("a lazy clone", lambda: torch._lazy_clone(X.clone()), "_lazy_clone()"),
    ("a lazy clone, by a method", lambda: X.clone()._lazy_clone(), "Tensor._lazy_clone()"),
    ("tiny numbers", lambda: torch.set_flush_denormal(False), "set_flush_denormal()"),
    ("hooks for saved tensors", saved_tensors_hooks, "saved_tensors_hooks()"),
    ("are these allowed?", lambda: torch._C._autograd._saved_tensors_hooks_is_enabled(), "_hooks_is_enabled()"),
    ("a state", lambda: MODEL.state_dict(), "Module.state_dict()"),
    ("a state is loaded", lambda: MODEL.load_state_dict(STATE), "Module.load_state_dict()"),
    ("a file, typed", lambda: torch.FloatStorage.from_file(FILE.name, False, 16), "UntypedStorage.from_file()"),
]


def with_a_buffer():
    part = torch.nn.Module()
    part.register_buffer("made", X)
    return part.made + 1


def summed(x):
    return x.sum()


torch.func.vmap(summed)(X[None])  # what is imported at first

HARMLESS = [
    ("a buffer of a part made inside", with_a_buffer),
    ("a transform, which forbids hooks for saved tensors", lambda: torch.func.vmap(summed)(X[None])),
    ("facts of a storage", lambda: (STORAGE.device, STORAGE.nbytes(), X.storage_offset(), X.is_sparse)),
    ("new tensors", lambda: (torch.tensor([1.0]), torch.as_tensor([2.0]), torch.asarray(3.0), X.clone().share_memory_)),
]


class TorchSettingsTest(made_modules.Base):
    """Nothing names what is changed here, and calls depend on it."""

    def test_switches(self):
        for change in (lambda: setattr(torch.backends.quantized, "engine", ENGINE), lambda: torch.set_flush_denormal(False)):
            self.check(made_modules.take(lambda: torch.relu(X)), change, True)

    def test_lazy_clones(self):
        for clone in (torch._lazy_clone, torch.Tensor._lazy_clone):
            self.check(made_modules.take(lambda: torch.relu(X)), lambda clone=clone: clone(torch.ones(2)), True)

    def test_process_groups(self):
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        call = made_modules.module("import torch.distributed as dist\n"
                                   "def run(): return dist.get_world_size() if dist.is_initialized() else 1").run

        def begin():
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)

        self.check(made_modules.take(call), begin, True)
        self.check(made_modules.take(call), dist.destroy_process_group, True)

    def test_hooks_of_registrations(self):
        from torch.nn.modules.module import register_module_buffer_registration_hook as register

        for first in (False, True):
            handles = [register(lambda module, name, value: value * 2)] if first else []

            def exchange():
                for handle in handles:
                    handle.remove()
                handles[:] = [register(lambda module, name, value: value * 3)]

            self.check(made_modules.take(with_a_buffer), exchange, True)
            handles.pop().remove()

    def test_kernels_of_an_operator(self):
        kernels = [lambda x: x * 3, lambda x: x * 5]
        operator = torch.library.custom_op("grape_effects::gain", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
        operator.register_kernel("cpu")(kernels[0])
        operator(X)
        call = made_modules.module("import torch\ndef run(x): return torch.ops.grape_effects.gain(x)").run
        self.check(made_modules.take(call, X), lambda: operator.register_kernel("cpu")(kernels[1]), True)
        without = operator.set_kernel_enabled("cpu", False)
        self.check(made_modules.take(call, X), without.__enter__, True, lambda: without.__exit__(None, None, None))
        guard = made_modules.take(call, X)
        call(X)
        self.assertTrue(guard.holds(), guard.change)

    def test_functions_of_numpy(self):
        """One that was made of an object does what that says."""
        made = made_modules.module("import numpy\nMADE, OWN = numpy.frompyfunc(abs, 1, 1), numpy.sqrt\n"
                                   "def made(): return MADE(1.5)\ndef own(): return OWN(1.5)")
        self.assertTrue(made_modules.take(made.own).holds())
        with self.assertRaisesRegex(executed.Refused, "MADE: a numpy.ufunc"):
            made_modules.take(made.made)

    def test_divergences(self):
        from torch.distributions import Normal, kl_divergence, register_kl

        class Mine(Normal):
            pass

        register_kl(Mine, Mine)(lambda p, q: p.loc)
        one = Mine(X, X, validate_args=False)
        guard = made_modules.take(lambda: kl_divergence(one, one), calls=2)
        self.check(guard, lambda: register_kl(Mine, Mine)(lambda p, q: q.loc * 2), True)


class TorchEffectsTest(unittest.TestCase):
    def test_refused(self):
        observation = Observation()
        for name, function, expected in REFUSED:
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                observation.run(function)
                self.assertIn(expected, observation.reason)

    def test_harmless(self):
        observation = Observation()
        for name, function in HARMLESS:
            with self.subTest(name):
                observation.run(function)
                self.assertEqual(observation.reason, "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
