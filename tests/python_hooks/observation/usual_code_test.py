"""What models' code usually does to libraries is neither refused nor takes guards away: nothing of it changes between calls.
Skipped without Transformers."""
import collections.abc
import copy
import dataclasses
import json
import logging
import os
import re
import sys
import typing
import unittest
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import executed
from executed import Globals, Observation

try:
    import transformers
    from transformers.activations import ACT2FN
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
except ImportError:
    print("skipped: no transformers")
    sys.exit(77)

assert executed.load_torch()
X = torch.ones(2, 3)
LOG = logging.getLogger("usual")
USUAL = []


def usual(function):
    USUAL.append(function)
    return function


@usual
def imports_in_the_call():
    import math

    import numpy as np
    import torch.nn.functional as G
    from torch import nn  # noqa: F401

    return G.relu(X) * math.pi * float(np.sqrt(2.0))


@usual
def functions_by_name():
    return getattr(F, "relu")(X), getattr(torch, "sin")(X), getattr(nn, "ReLU"), hasattr(torch, "none_such")


@usual
def modules_in_variables():
    xp, t = np, torch
    return xp.float32, t.relu(X)


@usual
def flags():
    return (torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32, torch.cuda.is_available(),
            torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled())


@usual
def numbers_of_types():
    return torch.finfo(X.dtype).min, torch.iinfo(torch.int64).max, np.finfo(np.float32).eps, torch.half.itemsize


@usual
def checks():
    return (isinstance(X, (list, tuple)), isinstance(X, collections.abc.Mapping), torch.is_tensor(X), X.is_cuda,
            X.requires_grad, X.device.type, dataclasses.is_dataclass(X), typing.cast(int, 3))


@usual
def facts_of_tensors():
    return X.size(), X.shape, X.stride(), X.numel(), X.dim(), X.is_contiguous(), X.element_size(), X.nbytes, len(X)


@usual
def environment():
    return os.environ.get("HOME"), os.getenv("NONE"), os.path.join("a", "b"), os.getpid()


@usual
def logs():
    LOG.debug("x")
    return LOG.isEnabledFor(logging.DEBUG)


@usual
def asks_for_processes():
    return dist.is_available() and dist.is_initialized()


@usual
def operators():
    return torch.ops.aten.relu(X), torch.ops.aten.add.Tensor(X, X)


@usual
def registries():
    return ALL_ATTENTION_FUNCTIONS["sdpa"], ACT2FN["gelu"](X)


@usual
def registries_by_module():
    return transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"], transformers.activations.ACT2FN["gelu"](X)


@usual
def modes():
    with torch.autocast("cpu", enabled=False), torch.no_grad():
        return X + 1


@usual
def profiled():
    with torch.profiler.record_function("part"):
        return X + 1


@usual
def asks_for_compilers():
    return torch.compiler.is_compiling(), torch.jit.is_scripting(), torch.jit.is_tracing()


@usual
def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*[torch.ones(1, 2, 3, 4)] * 3)


@usual
def versions():
    return torch.__version__ >= "2.0", np.__version__, sys.version_info >= (3, 8), sys.maxsize, sys.platform


@usual
def new_tensors():
    return torch.arange(3, device=X.device), X.new_zeros(3), torch.empty_like(X), torch.tensor([1.0])


@usual
def copies():
    return copy.deepcopy({"a": [1]}), copy.copy([1])


@usual
def algebra():
    return torch.einsum("ij,jk->ik", X, X.T), torch.linalg.norm(X), torch.fft.fft(X), torch.special.expit(X)


class Module(nn.Module):
    def forward(self, x):
        return x.view(-1), self.training, type(self).__name__, [name for name, _ in self.named_modules()]


MODULE = Module()


@usual
def a_module():
    return MODULE(X), next(MODULE.parameters(), None)


@usual
def warns_once():
    warnings.warn("usual, said once")


class UsualTest(unittest.TestCase):
    def test_neither_refused_nor_lost(self):
        for function in USUAL:
            with self.subTest(function.__name__), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                observation = Observation()
                function()
                for _ in range(3):
                    observation.run(function)
                self.assertEqual(observation.reason, "")
                guard = Globals(observation)
                for other in USUAL:
                    other()
                re.compile("another one"), json.dumps([1])
                self.assertTrue(guard.holds(), guard.change)

    def test_operators_are_defined_anew(self):
        observation = Observation()
        for _ in range(2):
            observation.run(checks)
        guard = Globals(observation)
        self.assertTrue(guard.holds(), guard.change)
        library = torch.library.Library("usual_code", "FRAGMENT")
        library.define("scale(Tensor x) -> Tensor")
        self.assertTrue(guard.holds(), guard.change)  # nobody calls it yet
        library.impl("scale", lambda x: x * 2, "CPU")
        self.assertFalse(guard.holds())

    def test_registries_are_watched(self):
        observation = Observation()
        for function in (registries, registries_by_module):
            for change, back in (
                (lambda: ALL_ATTENTION_FUNCTIONS.register("usual", len), lambda: ALL_ATTENTION_FUNCTIONS._global_mapping.pop("usual")),
                (lambda: ACT2FN.update(usual=nn.ReLU), lambda: ACT2FN.pop("usual")),
            ):
                for _ in range(2):
                    observation.run(function)
                guard = Globals(observation)
                change()
                self.assertFalse(guard.holds())
                back()
                self.assertTrue(guard.holds(), guard.change)

    def test_registry_that_a_model_looks_into(self):
        """The library's own code names it."""
        settings = dict(n_embd=32, n_layer=1, n_head=2, vocab_size=50, attn_implementation="sdpa")
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).eval()
        observation = Observation()
        with torch.no_grad():
            for _ in range(3):
                observation.run(model, torch.arange(5)[None])
        self.assertEqual(observation.reason, "")
        guard, original = Globals(observation), ALL_ATTENTION_FUNCTIONS["sdpa"]
        self.assertTrue(guard.holds(), guard.change)
        for change, back in (
            (lambda: ALL_ATTENTION_FUNCTIONS.register("sdpa", len), lambda: ALL_ATTENTION_FUNCTIONS.register("sdpa", original)),
            (lambda: ALL_ATTENTION_FUNCTIONS.__setitem__("sdpa", len), lambda: ALL_ATTENTION_FUNCTIONS.__delitem__("sdpa")),
        ):
            change()
            self.assertFalse(guard.holds())
            back()
            self.assertTrue(guard.holds(), guard.change)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
