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
    ("a file, typed", lambda: torch.FloatStorage.from_file(FILE.name, False, 16), "UntypedStorage.from_file()"),
]
HARMLESS = [
    ("facts of a storage", lambda: (STORAGE.device, STORAGE.nbytes(), X.storage_offset(), X.is_sparse)),
    ("new tensors", lambda: (torch.tensor([1.0]), torch.as_tensor([2.0]), torch.asarray(3.0), X.clone().share_memory_)),
]


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
