"""What GRAPE_REPORT says of launches that no module's call holds: which functions launch them, as GRAPE_REGIONS names them.

outside_test.py --grape LIBRARY --simcuda FOLDER --sim-torch FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "probes"), os.path.join(HERE, "..", "..", "sim_torch")]
import simulated  # noqa: E402
from interpreters import interpreter  # noqa: E402

OPTIONS = None
MUCH = " * 2 * 0.5" * 4  # as many launches as a function that is found has to have

# A search as in a library: what it launches is in functions of all kinds.
SEARCH = """
import functools
import time
import torch

def long_enough(least):  # what is found has a part of the time that passes
    begin, i = time.monotonic(), 0
    while i < least or time.monotonic() < begin + 3:
        yield i
        i += 1

def whole(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        with torch.no_grad():
            return function(*args, **kwargs)
    return call

def gather(x):
    return x * 2 * 3 * 2 * 2 * 2 * 2

class Search:
    class Cache:
        @staticmethod
        def reorder(x):
            return gather(x) * 5 * 2 * 2

    def top(self, x):
        def inside(y):
            return y * 7 * 8 * 2 * 2 * 2 * 2
        return inside(gather(x))

    @classmethod
    @whole
    def finish(cls, x):
        for y in cls.parts(x):
            pass
        return x * 2 * 2 * 2 * 2 * 2 * 2 * 2 * 2 * 2

    @staticmethod
    def parts(x):
        yield x * 2 * 2 * 2

    @whole
    def generate(self, model, x, steps):
        for _ in range(steps) if isinstance(steps, int) else steps:
            y = model(x)
            self.top(y)
            self.finish(y)
            self.Cache.reorder(y)
            y + y + y + y
"""
PROGRAM = """
import tiny, torch
from search import Search, gather

with torch.no_grad():
    Search().generate(tiny.net(), tiny.data(), 100)
"""
# Long enough to find them, and what they give is right.
AUTOMATIC = """
import bed, tiny, torch
from search import Search, long_enough

class Counted(Search):
    def top(self, x):
        y = super().top(x)
        assert torch._C._operators_run() > 0 and y is not None
        return y

with torch.no_grad():
    expected = [bed.digest(Search().top(tiny.data())), bed.digest(Search.Cache.reorder(tiny.data()))]
    Search().generate(tiny.net(), tiny.data(), long_enough(4000))
    for _ in range(20):
        found = [bed.digest(Search().top(tiny.data())), bed.digest(Search.Cache.reorder(tiny.data()))]
        assert found == expected
"""
SELDOM_LOOKED_AT = ("a global counts", "a global is set", "a large object")
NAMES = {"search:Search.top": 4 / 12, "search:Search.finish": 4 / 12, "search:Search.Cache.reorder": 3 / 12}


class Outside(unittest.TestCase):
    def report(self, program, python=sys.executable, **variables):
        return self.whole_report(program, python, **variables).get("outside")

    def whole_report(self, program, python=sys.executable, **variables):
        program = program.replace(" MUCH", MUCH)
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            with open(os.path.join(folder, "search.py"), "w", encoding="utf-8") as file:
                file.write(SEARCH)
            environment = simulated.environment(
                OPTIONS, folder, LD_PRELOAD=OPTIONS.grape, GRAPE_REPORT=report, **variables)
            subprocess.run([python, "-c", program], env=environment, check=True, timeout=120)
            with open(report, encoding="utf-8") as file:
                return json.load(file)

    def names(self, outside):
        return [function["region"] for function in outside["functions"]]

    def test_functions_of_all_kinds(self):
        for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
            python = interpreter(version)
            if python is None:
                continue
            with self.subTest(version):
                outside = self.report(PROGRAM, python)
                self.assertGreater(outside["launches"], 100 * 36 - 100)
                self.assertLess(outside["launches"], 100 * 36 + 100)
                self.assertEqual(set(self.names(outside)), set(NAMES))
                for function in outside["functions"]:
                    self.assertAlmostEqual(function["share"], NAMES[function["region"]], delta=0.12)
                    self.assertRegex(function["place"], r"/search\.py:\d+$")

    def test_what_is_named_is_gone(self):
        # Python 3.11 does not say when such functions are called.
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        outside = self.report(PROGRAM, python, GRAPE_REGIONS="search:Search.top,search:Search.finish")
        self.assertEqual(self.names(outside), ["search:Search.Cache.reorder"])
        self.assertEqual(outside["named"], "search:Search.top,search:Search.finish")

    def refusals(self, region):
        return [reason["id"] for reason in region["reasons"]]

    def found(self, outside):
        return set(outside["found"].split(",")) if outside["found"] else set()

    def test_they_become_regions_by_themselves(self):
        for version in ("3.10", "3.12", "3.13", "3.14"):
            python = interpreter(version)
            if python is None:
                continue
            with self.subTest(version):
                # Unasked, or asked for.
                whole = self.whole_report(AUTOMATIC, python, **{"GRAPE_REGIONS": "auto"} if version == "3.10" else {})
                self.assertLessEqual(set(NAMES), self.found(whole["outside"]))
                regions = {region["region"]: region for region in whole["regions"]}
                for name in NAMES:
                    self.assertEqual(regions[name]["state"], "replayed")
                    self.assertGreater(regions[name]["replayed"], 300)

    def test_what_cannot_be_replayed_gives_way_to_what_it_calls(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        whole = self.whole_report("""
import os, tiny, torch
from search import long_enough
x = tiny.data()

def inner(x):
    return x * 3 MUCH

def outer(x):
    os.stat(".")
    return inner(x) * 5

def other(x):
    return x * 7 MUCH

with torch.no_grad():
    for i in long_enough(8000):
        outer(x), other(x)
""", python)
        self.assertEqual(self.found(whole["outside"]), {"__main__:outer", "__main__:other", "__main__:inner"})
        regions = {region["region"]: region for region in whole["regions"]}
        self.assertEqual(regions["__main__:outer"]["state"], "given up")
        self.assertLess(regions["__main__:outer"]["observed"], 10)
        self.assertLess(regions["__main__:outer"]["calls"], regions["__main__:other"]["calls"], "it is none any more")
        for name in ("__main__:inner", "__main__:other"):
            self.assertEqual(regions[name]["state"], "replayed")

    def test_no_loop_that_calls_models(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        program = """
import tiny, torch

def launch(x):
    for _ in range(8):
        x = x * 2
    return x

def step(x):
    if MODEL is not None:
        MODEL(x)
    y = launch(x)
    return launch(y)

x = tiny.data()
with torch.no_grad():
    for i in range(3000):
        step(x)
"""
        whole = self.whole_report("import tiny\nMODEL = tiny.net()\n" + program, python)
        self.assertEqual(self.found(whole["outside"]), {"__main__:launch"}, "step holds the model's calls")
        whole = self.whole_report("MODEL = None\n" + program, python)
        self.assertEqual(self.found(whole["outside"]), {"__main__:step"})

    def test_while_the_main_thread_waits(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        whole = self.whole_report("""
import threading
import tiny, torch
from search import long_enough

def first(x):
    return x MUCH

model, x = tiny.net(), tiny.data()

def work():
    with torch.no_grad():
        for i in long_enough(8000):
            model(x), first(x)

model(x)
thread = threading.Thread(target=work)
thread.start()
thread.join()
""", python)
        self.assertEqual(self.found(whole["outside"]), {"__main__:first"})
        regions = {region["region"]: region for region in whole["regions"]}
        self.assertEqual(regions["__main__:first"]["state"], "replayed")

    def test_none_becomes_a_region_where_something_else_is_said(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        for setting in (
            {"GRAPE_REGIONS": "modules"},
            {"GRAPE_REGIONS": "search:Search.top"},
            {"GRAPE_EXCLUDE": "*:*"},
            {"GRAPE_STACKS": "off"},
        ):
            whole = self.whole_report(AUTOMATIC, python, **setting)
            replayed = {region["region"] for region in whole["regions"] if region["replayed"]}
            self.assertFalse(replayed & {"search:Search.finish", "search:Search.Cache.reorder"}, setting)
            self.assertFalse(whole.get("outside", {}).get("found"))

    def test_none_becomes_a_region_under_gradients(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        program = """
import tiny, torch

def augment(x):
    return x MUCH

def average(x):
    with torch.no_grad():
        return x MUCH

x = tiny.data()
for i in range(12000):
    augment(x)
    if AVERAGES:
        average(x)
"""
        self.assertFalse(self.report("AVERAGES = False\n" + program, python)["found"])
        self.assertEqual(self.found(self.report("AVERAGES = True\n" + program, python)), {"__main__:average"})

    def test_no_function_that_calls_itself(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        outside = self.report("""
import tiny, torch

def leaf(x):
    return x MUCH

def tree(x, depth):
    return leaf(x) if depth == 0 else through(x, depth) * 2

def through(x, depth):
    return tree(x, depth - 1)

x = tiny.data()
with torch.no_grad():
    for i in range(3000):
        tree(x, 2)
""", python)
        self.assertEqual(self.found(outside), {"__main__:leaf"})

    def test_a_function_that_calls_a_model_later(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        whole = self.whole_report("""
import tiny, torch
from search import long_enough

def work(x, model=None):
    y = x MUCH
    return y if model is None else model(y)

model, x = tiny.net(), tiny.data()
with torch.no_grad():
    for i in long_enough(4000):
        work(x)
    for i in range(500):
        work(x, model)
""", python)
        self.assertEqual(self.found(whole["outside"]), {"__main__:work"})
        regions = {region["region"]: region for region in whole["regions"]}
        self.assertEqual(regions["__main__:work"]["state"], "given up")
        self.assertIn("found_around_modules", self.refusals(regions["__main__:work"]))
        self.assertGreater(regions["__main__:work"]["replayed"], 100)
        self.assertGreater(regions["tiny:Net"]["replayed"], 400)

    # They cost a small part of the time, and are none any more in the end.
    def test_what_does_not_pay(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        functions = {
            "another number each time": ("i", "def function(x, i):\n    return x MUCH * (1.0 + i * 0.001)"),
            "a global counts": (
                "0", "def function(x, i):\n    global COUNT\n    COUNT += 1\n    return x MUCH * (COUNT % 2 + 1)"),
            "a global is set": ("0", "def function(x, i):\n    return x MUCH * (COUNT + 1.0)"),
            "a default that is refused": ("0", "def function(x, i, way=iter(())):\n    return x * 3 MUCH"),
            "an argument that is refused": ("iter(())", "def function(x, i):\n    return x * 3 MUCH"),
            "its own result": ("0", "def function(x, i):\n    global LAST\n    LAST = x * 3 MUCH\n    return LAST"),
            "a large object": ("LARGE[i % 3000]", "def function(x, i):\n    return x MUCH * len(LARGE) * i[0]"),
        }
        for name, (argument, text) in functions.items():
            with self.subTest(name):
                whole = self.whole_report(f"""
import tiny, torch
COUNT = LAST = None
COUNT, LARGE = 0, [[float(i), {{"a": i}}] for i in range(3000)]

{text}

x = tiny.data()
with torch.no_grad():
    for i in range(30000):
        if {name == "a global is set"}:
            COUNT = i % 2
        function(x, {argument})
""", python)
                region = {region["region"]: region for region in whole["regions"]}["__main__:function"]
                self.assertLess(region["observed"] + region["replayed"], 1100, region)
                if name not in SELDOM_LOOKED_AT:
                    self.assertEqual(region["state"], "given up", region)
                    self.assertLess(region["calls"], 25000, "it is no region any more")
                if name == "another number each time":
                    self.assertIn("found_without_gain", self.refusals(region))

    def test_what_launches_little(self):
        python = interpreter("3.12") or interpreter("3.10") or sys.executable
        whole = self.whole_report("""
import tiny, torch

def little(x):
    return x * 2 * 3

x = tiny.data()
with torch.no_grad():
    for i in range(8000):
        little(x)
""", python)
        (region,) = whole["regions"]
        self.assertEqual((region["region"], region["state"]), ("__main__:little", "given up"))
        self.assertEqual((region["calls"], region["observed"]), (1, 1))
        self.assertIn("found_small", self.refusals(region))

    def test_a_function_of_the_script_that_holds_all(self):
        outside = self.report("""
import tiny
x = tiny.data()

def step(x):
    return made[0](made[0](x)) * 2

def make():
    def made(x):
        return x * 2
    return made

made = [make(), make()]
for i in range(200):
    step(x)
""")
        self.assertEqual(self.names(outside), ["__main__:step"])
        self.assertEqual(outside["functions"][0]["place"], "<string>:5")

    def test_what_all_launches_go_through(self):
        outside = self.report("""
import tiny

def launch(x):
    return x * 2

def step(x):
    y = launch(x)
    return launch(y)

def main(x):
    for i in range(300):
        step(x)

main(tiny.data())
""")
        self.assertEqual(self.names(outside), ["__main__:step"])

    def test_nothing_to_name(self):
        outside = self.report("""
import tiny
x = tiny.data()
for i in range(400):
    y = x * 2
    exec("z = y * 3", {"y": y})
def generator(x):
    yield x * 2
for i in range(400):
    list(generator(x))
""")
        self.assertGreater(outside["launches"], 1000)
        self.assertEqual(outside["functions"], [])

    def test_two_functions_of_one_code(self):
        outside = self.report("""
import tiny
x = tiny.data()

def make(by):
    def made(x):
        return x * by
    return made

one, other = make(2), make(3)
for i in range(400):
    other(x)
""")
        self.assertEqual(outside["functions"], [], "which of them it is, is not known")

    def test_what_modules_launch_is_not_outside(self):
        inside = "import tiny\nmodel, x = tiny.net(), tiny.data()\nfor i in range(300): model(x)\n"
        self.assertIsNone(self.report(inside))
        self.assertIsNone(self.report(inside + "x * 2\n", GRAPE_EXCLUDE="tiny:*"))

    def test_without_positions(self):
        self.assertIsNone(self.report(PROGRAM, GRAPE_STACKS="off"))

    def test_many_threads_and_functions_that_come_and_go(self):
        outside = self.report("""
import threading
import tiny

def first(x):
    return x * 2 * 3

def second(x):
    return x * 4 * 5

def work():
    x = tiny.data()
    for i in range(300):
        names = {}
        exec(f"def made_{i % 7}(x):\\n    return x * {i}", names)
        first(x), second(x), names[f"made_{i % 7}"](x)

tiny.data()  # from then on frames are read
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""")
        self.assertEqual(set(self.names(outside)), {"__main__:first", "__main__:second"})
        self.assertGreater(outside["launches"], 6 * 300 * 5 - 6 * 31)
        for function in outside["functions"]:
            self.assertAlmostEqual(function["share"], 0.4, delta=0.1)


if __name__ == "__main__":
    OPTIONS, rest = simulated.options_of(__doc__)
    unittest.main(argv=[sys.argv[0], *rest])
