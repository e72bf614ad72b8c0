"""What the library does where only it is preloaded: models are replayed, and nobody else notices it.

default_mode_test.py --grape LIBRARY --tool GRAPE --other-python LIBRARY --simcuda FOLDER --sim-torch FOLDER
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sim_torch"))
import simulated  # noqa: E402

OPTIONS = None
SECONDS = 120

# Driver calls of the program's own, long enough for whatever they are taken as a sign for.
CALL_DRIVER = """
import ctypes, time
driver = ctypes.CDLL("libcuda.so.1")
def call_driver(seconds=0.5):
    memory, context = ctypes.c_uint64(), ctypes.c_void_p()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096))
        driver.cuMemFree_v2(memory)
        time.sleep(0.005)
"""
# Prints how many operators ran in each call.
CALL_MODEL = """
import tiny, torch
def call_model(calls=8):
    model, ran = tiny.net(), []
    with torch.no_grad():
        for i in range(calls):
            x = tiny.data(i)
            before = torch._C._operators_run()
            model(x)
            ran.append(torch._C._operators_run() - before)
    print(*(0 if count == 0 else 1 for count in ran))
"""
EAGER, REPLAYED = "1 1 1 1 1 1 1 1\n", "1 1 0 0 0 0 0 0\n"


class DefaultMode(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def environment(self, torch=simulated.PACKAGES, **variables):
        return simulated.environment(OPTIONS, torch, **variables)

    def run_(self, script, prefix=(), ahead="", **variables):
        taken = self.environment(**variables)
        if not prefix:
            taken["LD_PRELOAD"] = f"{ahead}:{OPTIONS.grape}"
        done = subprocess.run(
            [*prefix, sys.executable, "-c", CALL_DRIVER + script],
            env=taken, cwd=self.folder, capture_output=True, encoding="utf-8", timeout=SECONDS,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def silent(self, done, out):
        self.assertEqual(done.stdout, out, done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertEqual(os.listdir(self.folder), [])

    def test_models_are_replayed(self):
        self.silent(self.run_(CALL_MODEL + "call_model()"), REPLAYED)

    def test_models_are_replayed_while_the_main_thread_waits(self):
        done = self.run_(CALL_MODEL + """
import os, threading
def work():
    end = time.monotonic() + 30
    model, x = tiny.net(), tiny.data()
    with torch.no_grad():
        while time.monotonic() < end:
            before = torch._C._operators_run()
            model(x)
            if torch._C._operators_run() == before:
                return print("a replay")
            time.sleep(0.01)
thread = threading.Thread(target=work)
thread.start()
thread.join()
""")
        self.silent(done, "a replay\n")

    def test_a_trace_that_is_asked_for_is_complete(self):
        done = self.run_(CALL_MODEL + "call_model()", GRAPE_TRACE="run.grape")
        self.assertEqual((done.stdout, done.stderr), (EAGER, ""))
        self.assertEqual(os.listdir(self.folder), ["run.grape"])

    def test_replay_with_a_trace_where_both_are_asked_for(self):
        done = self.run_(CALL_MODEL + "call_model()", GRAPE_TRACE="run.grape", GRAPE_MODE="replay")
        self.assertEqual((done.stdout, done.stderr), (REPLAYED, ""))
        self.assertEqual(os.listdir(self.folder), ["run.grape"])

    def test_a_range_of_a_process_that_replays(self):
        """What is observed, and so defined, outside of the range is known within it; what is replayed there leaves none."""
        done = self.run_(CALL_MODEL + """
model, other = tiny.net(), tiny.net()
def call(model, times):
    with torch.no_grad():
        for i in range(times):
            model(tiny.data(i))
call(model, 4)  # observed twice, then replayed
driver.cuProfilerStart()
call(other, 1)
call(model, 3)
driver.cuProfilerStop()
call(other, 1)
""", GRAPE_TRACE="run.grape", GRAPE_MODE="replay", GRAPE_TRACE_RANGE="profiler")
        self.assertEqual(done.stderr, "")
        summary = self.dump("summary")
        self.assertEqual((summary["ranges"]["count"], summary["region_calls"]), (1, 1))
        self.assertGreater(summary["launches"], 0)
        self.assertEqual(summary["launches"], summary["launches_with_line"])
        self.assertEqual(sum(kernel["launches"] for kernel in summary["top_kernels"]), summary["launches"])
        self.assertNotIn("(unknown kernel)", [kernel["name"] for kernel in summary["top_kernels"]])
        (region,) = self.dump("regions")["regions"]
        self.assertGreater(region["launches"], 0)
        self.assertEqual(region["launches"] + summary["launches_outside_regions"], summary["launches"])

    def dump(self, view):
        done = subprocess.run([OPTIONS.tool, "dump", "run.grape", view, "--json"], cwd=self.folder, capture_output=True,
                              encoding="utf-8", timeout=SECONDS)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_a_mode_that_is_not_understood_replays_nothing(self):
        done = self.run_(CALL_MODEL + "call_model()", GRAPE_MODE="reply")
        self.assertEqual(done.stdout, EAGER)
        self.assertRegex(done.stderr, "^grape: GRAPE_MODE=reply is not one of .*; using off\n$")
        self.assertEqual(os.listdir(self.folder), [])

    def test_without_torch_nothing_is_seen_of_it(self):
        script = """
import atexit
call_driver()
print(atexit._ncallbacks())
"""
        self.silent(self.run_(script), self.run_(script, GRAPE_DISABLE="1").stdout)

    def test_a_driver_call_ahead_of_torch_takes_nothing_away(self):
        self.silent(self.run_("call_driver()" + CALL_MODEL + "time.sleep(0.2)\ncall_model()"), REPLAYED)

    # torch's modules can be hooked long before torch can be asked for what a replay needs.
    def test_driver_calls_while_torch_is_imported_take_nothing_away(self):
        self.silent(self.run_("""
import sys
class Calling:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.utils":  # the last that torch imports
            assert "torch.nn.modules.module" in sys.modules
            call_driver()
sys.meta_path.insert(0, Calling())
""" + CALL_MODEL + "call_model()"), REPLAYED)

    def test_a_torch_that_is_not_known_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "torch", "nn", "modules"))
            for path, text in (
                ("__init__.py", "from torch import nn\n"),
                ("nn/__init__.py", "from torch.nn.modules.module import Module\n"),
                ("nn/modules/__init__.py", ""),
                ("nn/modules/module.py", "class Module:\n    def __call__(self, x):\n        return self.forward(x)\n"),
            ):
                with open(os.path.join(folder, "torch", path), "w", encoding="utf-8") as file:
                    file.write(text)
            script = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1
call_driver()
print(*(Net()(i) for i in range(4)))
call_driver()
"""
            self.silent(self.run_(script, torch=folder), "1 2 3 4\n")

    def need_other_python(self):
        if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
            self.skipTest("this interpreter's functions cannot be replaced")

    def test_a_python_that_is_not_known_is_left_alone(self):
        self.need_other_python()
        self.silent(self.run_(CALL_MODEL + "call_model()", ahead=OPTIONS.other_python), EAGER)
        done = self.run_(CALL_MODEL + "call_model()", ahead=OPTIONS.other_python, GRAPE_LOG="info")
        self.assertRegex(done.stderr, "^grape: no Python positions and regions: this is Python 3.99.0.*\n$")

    def doctor(self, library=None, **variables):
        done = subprocess.run(
            [OPTIONS.tool, "doctor", "--library", library or OPTIONS.grape, "--python", sys.executable, "--json"],
            env=self.environment(**variables), capture_output=True, encoding="utf-8", timeout=SECONDS,
        )
        return {check["check"]: check for check in json.loads(done.stdout)["checks"]}

    def test_the_doctor_sees_a_replay(self):
        checks = self.doctor()
        self.assertEqual(checks["replay"]["state"], "ok", checks)
        self.assertNotIn("notice", checks)
        self.assertIn("libgrape-torch2.11.so", checks["training"]["detail"])

    def test_the_doctor_tells_whether_training_can_be_replayed(self):
        with tempfile.TemporaryDirectory() as folder:
            library = shutil.copy(OPTIONS.grape, folder)
            self.assertEqual(self.doctor(library)["training"]["state"], "-")
            open(os.path.join(folder, "libgrape-torch2.11.so"), "w").close()
            self.assertEqual(self.doctor(library)["training"]["state"], "ok")

    def test_the_doctor_tells_of_a_python_that_is_not_known(self):
        self.need_other_python()
        checks = self.doctor(LD_PRELOAD=OPTIONS.other_python)
        self.assertEqual(checks["replay"]["state"], "-", checks)
        self.assertIn("this is Python 3.99.0", checks["replay"]["detail"])
        self.assertIn("this is Python 3.99.0", checks["notice"]["detail"])

    def test_the_tool_replays_and_sums_up(self):
        done = self.run_(CALL_MODEL + "call_model()", prefix=(OPTIONS.tool, "run", "--library", OPTIONS.grape, "--"))
        self.assertEqual(done.stdout, REPLAYED)
        self.assertRegex(done.stderr, "(?s)^grape: replay: 1 module called, .*6 of 8 calls replayed")
        self.assertEqual(os.listdir(self.folder), [])

    def test_the_tool_writes_a_report(self):
        prefix = (OPTIONS.tool, "run", "--library", OPTIONS.grape, "--report", "run.json", "-q", "--")
        done = self.run_(CALL_MODEL + "call_model()", prefix=prefix)
        self.assertEqual((done.stdout, done.stderr), (REPLAYED, ""))
        with open(os.path.join(self.folder, "run.json"), encoding="utf-8") as report:
            self.assertEqual(sum(region["replayed"] for region in json.load(report)["regions"]), 6)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("grape", "tool", "other-python", "simcuda", "sim-torch"):
        parser.add_argument("--" + name, required=True)
    OPTIONS = parser.parse_args()
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(DefaultMode)
    return 0 if unittest.TextTestRunner().run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
