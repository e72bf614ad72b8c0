"""What GRAPE_REPORT says of times.

report_test.py --grape LIBRARY --simcuda FOLDER --sim-torch FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sim_torch"))
import simulated  # noqa: E402

OPTIONS = None

# Each size is new, so all calls but the first run unobserved.
PROGRAM = """
import ctypes, sys
import tiny, torch

driver = ctypes.CDLL("libcuda.so.1")

class Model(tiny.Net):
    def forward(self, x):
        if "load" in sys.argv:
            driver.cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), b"SIMCUDA MODULE 1\\n_Z7nothingv\\n")
        return super().forward(x)

model = Model().cuda().eval()
with torch.no_grad():
    for rows in range(2, 8):
        model(tiny.data(rows, rows))
"""


# Each call replaces what the one before left in an argument.
REPLACING = """
import types
import tiny, torch

class Model(tiny.Net):
    def forward(self, x, kept):
        kept.value = super().forward(x)
        return kept.value * 2

model, kept = Model().cuda().eval(), types.SimpleNamespace(value=tiny.data())
with torch.no_grad():
    for i in range(12):
        model(tiny.data(i), kept)
"""

# As servers do: the first process imports PyTorch, and forks before anybody uses the GPU.
WORKERS = """
import multiprocessing, os, sys
import tiny, torch

def work():
    model = tiny.Net().cuda().eval()
    with torch.no_grad():
        for i in range(8):
            model(tiny.data(i))

def worker(way):
    pid = os.fork()
    if pid == 0:
        if way != "idle":
            work()
        if way == "returns":
            sys.exit(0)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

for way in ("idle", "ends", "returns"):
    worker(way)
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
assert process.exitcode == 0
work()
worker("idle")  # after CUDA was used
"""
PARTS = ["signature", "guards", "outputs", "patches", "launch", "wait", "results", "freed", "ahead"]


class Report(unittest.TestCase):
    def test_workers_that_were_forked_before_the_gpu_was_used(self):
        with tempfile.TemporaryDirectory() as folder:
            pattern = os.path.join(folder, "report-%p.json")
            environment = simulated.environment(OPTIONS, folder, LD_PRELOAD=OPTIONS.grape, GRAPE_REPORT=pattern)
            done = subprocess.run([sys.executable, "-c", WORKERS], env=environment, stderr=subprocess.PIPE, timeout=120)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            reports = [name for name in os.listdir(folder) if name.startswith("report-")]
            self.assertEqual(len(reports), 4, "those that ended or returned, multiprocessing's, and the first process")
            for name in reports:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    report = json.load(file)
                (region,) = report["regions"]
                self.assertEqual((region["calls"], region["replayed"]), (8, 6))
                self.assertLess(report["seconds"], 100)

    def region(self, *arguments, program=PROGRAM):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            environment = simulated.environment(OPTIONS, folder, LD_PRELOAD=OPTIONS.grape, GRAPE_REPORT=report)
            subprocess.run([sys.executable, "-c", program, *arguments], env=environment, check=True, timeout=120)
            with open(report, encoding="utf-8") as file:
                (region,) = json.load(file)["regions"]
            return region

    def test_calls_that_load_kernels_tell_nothing_of_others(self):
        usual, loading = self.region(), self.region("load")
        for region in (usual, loading):
            self.assertEqual((region["calls"], region["replayed"]), (6, 0))
        self.assertIsNotNone(usual["eager_interval_ms"])
        self.assertIsNone(loading["eager_interval_ms"])

    def test_parts_of_a_replay(self):
        """Medians of parts may add up to more than a mean where other work disturbs: one undisturbed run is enough."""
        sums = [self.parts_and_whole() for _ in range(5)]
        self.assertTrue(any(parts <= whole + 0.05 for parts, whole in sums), sums)

    def parts_and_whole(self):
        region = self.region(program=REPLACING)
        self.assertGreater(region["replayed"], 4)
        parts = region["replay_us"]
        self.assertEqual(list(parts), PARTS)
        for name in ("signature", "guards", "launch", "results", "freed"):
            self.assertGreater(parts[name], 0, name)
        return sum(parts.values()), region["replay_ms"] * 1000


if __name__ == "__main__":
    OPTIONS, rest = simulated.options_of(__doc__)
    unittest.main(argv=[sys.argv[0], *rest])
