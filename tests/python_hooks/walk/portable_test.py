"""Forms of values in terms that hold in other processes: the same there, wherever objects lie and however strings hash."""

import enum
import functools
import hashlib
import json
import os
import subprocess
import sys

import values
from state import Refused, Walk

SEEDS = ("1", "2", "987654")
CHILD = "--child"


def portable(value):
    try:
        return hashlib.sha256(Walk(value, portable=True).bytes).hexdigest()[:16]
    except Refused as refused:
        return f"refused: {refused}".split(" at 0x")[0]


class Colour(enum.Flag):
    RED = 1
    GREEN = 2


class Holder:
    table = {"a": {"x", "y", "zz"}}

    def __init__(self, value):
        self.value = value

    def method(self):
        return self.value


def constant_of(value):
    def inner():
        return value

    return inner


def more_values():
    words = {f"word {i}" for i in range(50)}
    return {
        "words": words,
        "frozen words": frozenset(words),
        "fewer words": set(sorted(words)[1:]),
        "set of numbers": {1, 2.5, 10**30},
        "set of a class and a word": {Holder, "a"},
        "dictionary": {word: {word} for word in sorted(words)},
        "dictionary of a set": {word: [word] for word in words},
        "holder": Holder(words),
        "method": Holder(3).method,
        "other method": Holder(4).method,
        "flags": Colour.RED | Colour.GREEN,
        "one flag": Colour.RED,
        "class": Holder,
        "module": json,
        "other module": os,
        "builtin": len,
        "other builtin": repr,
        "descriptor": str.join,
        "other descriptor": str.split,
        "library's function": json.dumps,
        "other library's function": json.loads,
        "closure": constant_of(1),
        "other closure": constant_of(2),
        "lambda": lambda: 1,
        "other lambda": lambda: 2,
        "lambda of a set": lambda x: x in {"p", "q", "r"},
        "partial": functools.partial(constant_of, 3),
        "cache": functools.lru_cache(constant_of),
        "property": Holder.__dict__["method"],
    }


def torch_values():
    try:
        import torch
    except ImportError:
        return {}
    return {
        "type": torch.float16,
        "other type": torch.bfloat16,
        "layout": torch.strided,
        "format": torch.channels_last,
        "device": torch.device("cuda", 1),
        "tensor": torch.arange(6.0).reshape(2, 3),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "other content": torch.arange(1.0, 7.0).reshape(2, 3),
        "module": torch.nn.Linear(3, 4).requires_grad_(False).load_state_dict,
    }


def forms():
    # What counts by identity alone differs from none of its kind.
    found = {f"maker {number}": portable(make()) for number, make in enumerate(values.MAKERS)}
    found.update((name, portable(value)) for name, value in more_values().items())
    found.update(("torch " + name, portable(value)) for name, value in torch_values().items())
    return found


def in_another_process(seed):
    environment = dict(os.environ, PYTHONHASHSEED=seed, SPACE="x" * (int(seed) % 5000))
    done = subprocess.run(
        [sys.executable, __file__, CHILD], env=environment, stdout=subprocess.PIPE, check=True, timeout=120
    )
    return json.loads(done.stdout)


def test_processes_agree():
    own = forms()
    for seed in SEEDS:
        other = in_another_process(seed)
        assert other == own, {name: (own[name], other[name]) for name in own if own[name] != other.get(name)}


def test_values_are_told_apart():
    own = more_values()
    by_form = {}
    for name, value in own.items():
        form = portable(value)
        assert not form.startswith("refused"), (name, form)
        assert form not in by_form, (name, by_form[form])
        by_form[form] = name
    makers = {portable(make()) for make in values.MAKERS}
    assert len(makers) > 0.9 * len(values.MAKERS), len(makers)


def test_what_code_catches_counts():
    # The same instructions in 3.11 and later, in other places of the handlers' table.
    first, second = {}, {}
    exec("def f(x):\n    try:\n        a = x()\n        b = x()\n    except ValueError:\n        return 1\n", first)
    exec("def f(x):\n    a = x()\n    try:\n        b = x()\n    except ValueError:\n        return 1\n", second)
    assert portable(first["f"].__code__) != portable(second["f"].__code__)


def test_hashes_and_addresses_do_not_count():
    assert portable({"hash": hash("a word"), "id": id(portable)}) == portable({"hash": -(2**60), "id": 2**47 + 8})
    assert portable({"number": 2**30}) != portable({"number": 2**30 + 1})
    # Code's own numbers do.
    assert portable(lambda: 2**60) != portable(lambda: 2**60 + 1)


def test_where_code_stands_does_not_count():
    first, second, other = {}, {}, {}
    exec(compile("def f(x):\n    return x + 1\n", "here.py", "exec"), first)
    exec(compile("\n\n\ndef f(x):\n\n    return x + 1\n", "there.py", "exec"), second)
    exec(compile("def f(x):\n    return x + 2\n", "here.py", "exec"), other)
    for names in (first, second, other):
        names["f"].__module__ = names["__name__"] = "somewhere"
    assert portable(first["f"]) == portable(second["f"]) != portable(other["f"])


if __name__ == "__main__":
    if CHILD in sys.argv:
        print(json.dumps(forms()))
        sys.exit()
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
