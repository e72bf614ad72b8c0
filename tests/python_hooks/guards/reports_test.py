"""Dictionaries that report their changes (3.12 and later): guards rely on it, and see every change all the same.

With the argument "taken" other watchers of dictionaries have taken all numbers that the interpreter gives.
"""

import collections
import ctypes
import os
import subprocess
import sys

import guard_test
import state
from cases import Part
from state import Guard, form

VERSION = state.version()
TAKEN = sys.argv[1:] == ["taken"]
REPORTS = VERSION >= (3, 12) and not TAKEN
USED, TAG = 16, 24  # where a dictionary's number of items and its marks stand
LAST_WATCHER = 1 << 7
CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def word(dictionary, offset):
    return ctypes.c_uint64.from_address(id(dictionary) + offset)


def is_watched(dictionary):
    return VERSION >= (3, 12) and word(dictionary, TAG).value & LAST_WATCHER != 0


class Sub(dict):
    pass


KINDS = {
    "dict": lambda **items: dict(items),
    "subclass": Sub,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": lambda **items: collections.defaultdict(list, items),
    "attributes": lambda **items: vars(attributes(items)),
}
KEPT = []  # instances whose attributes are looked at


def attributes(items):
    made = Part(0)
    del made.value
    for name, value in items.items():
        setattr(made, name, value)
    KEPT.append(made)
    return made


CHANGES = {
    "set": lambda d: d.__setitem__("a", object),
    "add": lambda d: d.__setitem__("new", 1),
    "delete": lambda d: d.__delitem__("b"),
    "pop": lambda d: d.pop("c"),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("more", 2),
    "update": lambda d: d.update(a=3),
    "update with pairs": lambda d: d.update([("a", 4)]),
    "|=": lambda d: d.__ior__({"a": 5}),
    "many": lambda d: d.update({str(i): i for i in range(100)}),
    "clear": lambda d: d.clear(),
    "of a new content": lambda d: (d.clear(), d.update({"z": 1})),
    "exec": lambda d: exec("a = 6", {}, d),
    "dict.__setitem__": lambda d: dict.__setitem__(d, "a", 7),
    "dict.pop": lambda d: type(d) is collections.OrderedDict or dict.pop(d, "a"),
    "PyDict_SetItem": lambda d: ctypes.pythonapi.PyDict_SetItem(
        ctypes.py_object(d), ctypes.py_object("a"), ctypes.py_object(8)
    ),
    "order": lambda d: type(d) is collections.OrderedDict and d.move_to_end("a"),
}


def test_which_report():
    expected = {(3, 12): (1, 1), (3, 13): (1, 0), (3, 14): (1, 1)}[VERSION] if REPORTS else (0, 0)
    assert (state.reports_changes({}), state.reports_changes(vars(Part(1)))) == expected


def test_changes():
    for kind, make in KINDS.items():
        for name, change in CHANGES.items():
            dictionary = make(a=1, b=[2], c="three")
            case = Part([dictionary])
            guard, before = Guard(case), form(case)
            assert guard.holds() and guard.walks == 1, (kind, name)
            change(dictionary)
            assert guard.holds() == (form(case) == before), (kind, name)
            after = Guard(case)
            dictionary["last"] = 9
            assert not after.holds(), (kind, name)


def test_not_read():
    """While nothing is reported no dictionary is read."""
    dictionary = {"a": 1}
    case = Part([dictionary])
    guard = Guard(case)
    assert guard.holds() and guard.walks == 1
    place = word(dictionary, TAG if VERSION < (3, 14) else USED)
    place.value += 1 << 20
    if REPORTS:
        assert guard.holds() and guard.walks == 1
    elif VERSION < (3, 14):
        assert guard.holds() and guard.walks == 2
    place.value -= 1 << 20
    dictionary["a"] = 2
    assert not guard.holds()


def test_looked_at_once():
    """A change that leaves all as it was costs a walk, and then the reports are relied on again."""
    for make in KINDS.values():
        dictionary = make(a=1)
        case = Part([dictionary])
        guard = Guard(case)
        for _ in range(5):
            dictionary["a"] = 2
            dictionary["a"] = 1
            assert guard.holds()
        walks = guard.walks
        assert guard.holds() and guard.walks == walks
        dictionary["a"] = 2
        assert not guard.holds()


def test_shared():
    dictionary = {"a": 1}
    first, second = Part([dictionary]), Part({"d": dictionary})
    guards = [Guard(first), Guard(second), Guard(first)]
    assert all(guard.holds() for guard in guards)
    del guards[0]
    assert is_watched(dictionary) == REPORTS
    dictionary["a"] = 2
    assert not any(guard.holds() for guard in guards)
    dictionary["a"] = 1
    assert all(guard.holds() for guard in guards)
    guards.clear()
    assert not is_watched(dictionary)


def test_dies():
    """An equal one stands at the address of one that died, and is changed then."""
    again = 0
    for make in list(KINDS.values())[:4]:
        for _ in range(20):
            case = Part([make(a="b")])
            guard, address = Guard(case), id(case.value[0])
            case.value[0] = None
            case.value[0] = make(a="b")
            same = id(case.value[0]) == address
            again += same
            assert guard.holds() == same and guard.holds() == same  # elsewhere it is another one
            case.value[0]["a"] = "c"
            assert not guard.holds()
    assert again > 10 or VERSION < (3, 12), again


ASKED = []  # of Asks: (a guard, the form that it was taken of)
ABOUT = []  # the case, and a guard of it from before


class Asks:
    """Dies in the middle of a change; a guard is asked then, and one is taken."""

    def __del__(self):
        if ABOUT:
            case, guard = ABOUT
            guard.holds()
            try:
                ASKED.append((Guard(case), form(case, addresses=True)))
            except state.Refused as refused:
                assert "changed behind its back" in str(refused)


def test_asked_in_a_change():
    for kind, make in KINDS.items():
        for name, change in CHANGES.items():
            dictionary = make(a=Asks(), b=Asks(), c=Asks())
            case = Part(dictionary)
            before, guard = form(case, addresses=True), Guard(case)
            ABOUT[:] = case, guard
            change(dictionary)
            ABOUT.clear()
            now = form(case, addresses=True)
            assert guard.holds() == (now == before), (kind, name)
            for asked, seen in ASKED:
                assert asked.holds() == (now == seen), (kind, name)
            assert ASKED or kind == "OrderedDict" or name not in ("set", "delete", "pop", "popitem", "clear"), name
            ASKED.clear()


def test_changed_often():
    """So often that it is watched no more; the next guard watches it again."""
    dictionary = {"a": 1}
    case = Part([dictionary])
    guard = Guard(case)
    assert is_watched(dictionary) == REPORTS
    for n in range(20000):
        dictionary["a"] = n
    assert not is_watched(dictionary)
    assert not guard.holds()
    dictionary["a"] = 1
    assert guard.holds() and is_watched(dictionary) == REPORTS
    dictionary["a"] = 2
    assert not guard.holds()


def test_watchers_of_others():
    if VERSION < (3, 12) or TAKEN:
        return
    api, seen = ctypes.pythonapi, []
    callback = CALLBACK(lambda *arguments: seen.append(arguments[0]) or 0)
    number = api.PyDict_AddWatcher(callback)
    assert 0 <= number < 7
    dictionary = {"a": 1}
    case = Part([dictionary])
    for guard_first in (True, False):
        guard = Guard(case) if guard_first else None
        assert api.PyDict_Watch(number, ctypes.py_object(dictionary)) == 0
        guard = guard or Guard(case)
        seen.clear()
        dictionary["a"] += 1
        assert not guard.holds() and len(seen) == 1
        del guard
        dictionary["a"] += 1
        assert len(seen) == 2
        assert api.PyDict_Unwatch(number, ctypes.py_object(dictionary)) == 0
        guard = Guard(case)
        dictionary["a"] += 1
        assert not guard.holds() and len(seen) == 2
    assert api.PyDict_ClearWatcher(number) == 0


def test_all_taken():
    if VERSION < (3, 12) or TAKEN:
        return
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "taken"], stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stdout.decode()


def test_guards_without_reports():
    if TAKEN:
        run(vars(guard_test))


def test_second_interpreter():
    """What runs there reports to nobody here: nothing is relied on from then on. (The last test: it stays so.)"""
    if VERSION < (3, 12):
        return
    name = "_interpreters" if VERSION >= (3, 13) else "_xxsubinterpreters"
    interpreters = __import__(name)
    dictionary = {"a": 1}
    case = Part([dictionary])
    guard = Guard(case)
    assert guard.holds() and guard.walks == 1
    interpreters.destroy(interpreters.create())
    assert guard.holds()
    if VERSION < (3, 14):
        word(dictionary, TAG).value += 1 << 20
        walks = guard.walks
        assert guard.holds() and guard.walks == walks + 1
    dictionary["a"] = 2
    assert not guard.holds()
    dictionary["a"] = 1
    assert guard.holds() and Guard(case).holds()
    assert not Guard(case) or not word({}, TAG).value & LAST_WATCHER


def run(names):
    for name, test in list(names.items()):
        if name.startswith("test_"):
            test()
            print("ok", name)


def take_all():
    """Before anybody asks what dictionaries report."""
    callback = CALLBACK(lambda *arguments: 0)
    count = 0
    try:
        while ctypes.pythonapi.PyDict_AddWatcher(callback) >= 0:
            count += 1
    except RuntimeError:
        pass
    assert count > 0
    return callback


if __name__ == "__main__":
    kept = take_all() if TAKEN else None
    run(dict(globals()))
