"""What GRAPE_REPORT says of times.

report_test.py --grape LIBRARY --simcuda FOLDER --sim-torch FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import simulated

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIONS = None

# Each size is new, so all calls but the first run unobserved.
PROGRAM = """
import ctypes, sys
import bed, torch

driver = ctypes.CDLL("libcuda.so.1")

class Model(bed.Net):
    def forward(self, x):
        if "load" in sys.argv:
            driver.cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), b"SIMCUDA MODULE 1\\n_Z7nothingv\\n")
        return super().forward(x)

model = Model().cuda().eval()
with torch.no_grad():
    for rows in range(2, 8):
        model(bed.data(rows, rows))
"""


# Each call replaces what the one before left in an argument.
REPLACING = """
import types
import bed, torch

class Model(bed.Net):
    def forward(self, x, kept):
        kept.value = super().forward(x)
        return kept.value * 2

model, kept = Model().cuda().eval(), types.SimpleNamespace(value=bed.data())
with torch.no_grad():
    for i in range(12):
        model(bed.data(i), kept)
"""
PARTS = ["signature", "guards", "outputs", "patches", "launch", "results", "freed", "ahead"]


class Report(unittest.TestCase):
    def region(self, *arguments, program=PROGRAM):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            environment = simulated.environment(OPTIONS, HERE, folder, LD_PRELOAD=OPTIONS.grape, GRAPE_REPORT=report)
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
        region = self.region(program=REPLACING)
        self.assertGreater(region["replayed"], 4)
        parts = region["replay_us"]
        self.assertEqual(list(parts), PARTS)
        for name in ("signature", "guards", "launch", "results", "freed"):
            self.assertGreater(parts[name], 0, name)
        self.assertLessEqual(sum(parts.values()), region["replay_ms"] * 1000 + 0.05)


if __name__ == "__main__":
    OPTIONS, rest = simulated.options_of(__doc__)
    unittest.main(argv=[sys.argv[0], *rest])
