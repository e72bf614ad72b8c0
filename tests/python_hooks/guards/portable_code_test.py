"""Digests of the code that ran, and of what it names: the same in other processes, another one for other code or values."""

import dis  # noqa: F401  what instructions are called is read of it
import json
import os
import subprocess
import sys

import executed
from executed import Globals, Observation

CHILD = "--child"
SCALE = 2.0
WORDS = {"a", "b", "c", "dd", "ee"}


def inner(x):
    return [value * SCALE for value in x] if "dd" in WORDS else x


def outer(x):
    return sum(inner(x))


def other_inner(x):
    return [value * SCALE for value in reversed(x)]


def other(x):
    return sum(other_inner(x))


def digests(function=outer, **arguments):
    observation = Observation()
    observation.run(function, **(arguments or {"x": [1.0, 2.0]}))
    assert observation.reason == "", observation.reason
    return observation.digest, Globals(observation).digest


def of_models():
    """Of a model's second call: in the first, libraries are imported and settings made."""
    try:
        import torch
        import transformers
    except ImportError:
        return []
    executed.load_torch()
    small = {"vocab_size": 50}
    ids = torch.arange(5)[None]
    found = []
    for name, settings, arguments in (
        ("GPT2LMHeadModel", dict(small, n_embd=32, n_layer=2, n_head=4), {"input_ids": ids}),
        ("T5ForConditionalGeneration", dict(small, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
         {"input_ids": ids, "decoder_input_ids": ids}),
    ):
        kind = getattr(transformers, name)
        model = kind(kind.config_class(**settings)).eval()
        with torch.no_grad():
            model(**arguments)
            found += digests(model, **arguments)
    assert len(set(found)) == 4
    return found


def all_digests():
    return [*digests(), *of_models()]


def test_processes_agree():
    own = all_digests()
    for seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, __file__, CHILD],
            env=dict(os.environ, PYTHONHASHSEED=seed, SPACE="x" * int(seed)),
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        )
        assert json.loads(done.stdout) == own


def test_values_count():
    global SCALE, WORDS
    code, names = digests()
    SCALE = 3.0
    assert digests()[0] == code and digests()[1] != names
    SCALE = 2.0
    assert digests() == (code, names)
    WORDS = WORDS | {"new"}
    assert digests()[1] != names
    WORDS = WORDS - {"new"}
    assert digests() == (code, names)


def test_code_counts():
    assert digests()[0] == digests()[0] != digests(other)[0]


if __name__ == "__main__":
    if CHILD in sys.argv:
        print(json.dumps(all_digests()))
        sys.exit()
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
