"""Digests of the code that ran, and of what it names: the same in other processes, another one for other code or values."""

import dis  # noqa: F401  what instructions are called is read of it
import json
import os
import subprocess
import sys

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


def digests(function=outer):
    observation = Observation()
    observation.run(function, [1.0, 2.0])
    assert observation.reason == "", observation.reason
    return observation.digest, Globals(observation).digest


def test_processes_agree():
    for seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, __file__, CHILD],
            env=dict(os.environ, PYTHONHASHSEED=seed, SPACE="x" * int(seed)),
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        )
        assert tuple(json.loads(done.stdout)) == digests()


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
        print(json.dumps(digests()))
        sys.exit()
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
