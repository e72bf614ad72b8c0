"""Tests of simcuda.py and of the demo program, against plain Python arithmetic. Needs LD_LIBRARY_PATH set."""

import os
import subprocess
import sys
import unittest

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, FOLDER)

import demo_program  # noqa: E402
import simcuda  # noqa: E402

DEMO = os.path.join(FOLDER, "demo_program.py")


def reference_checksum(steps, width, depth):
    """The demo's network in plain Python (double precision)."""

    def linear(x, rows, inputs, outputs, seed):
        weight = demo_program.numbers(inputs * outputs, seed)
        bias = demo_program.numbers(outputs, seed + 1)
        return [
            max(0.0, bias[j] + sum(x[i * inputs + k] * weight[k * outputs + j] for k in range(inputs)))
            for i in range(rows)
            for j in range(outputs)
        ]

    checksum = 0.0
    for step in range(steps):
        rows = 2 + step % 3
        x = linear(demo_program.numbers(rows * width, step + 1), rows, width, width, 100)
        for i in range(depth):
            y = linear(x, rows, width, width, 200 + 10 * i)
            x = [a + b / 2 for a, b in zip(x, y)]
        checksum += sum(linear(x, rows, width, 8, 900))
    return checksum


class SimcudaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = simcuda.Device()

    def test_axpy_and_matmul_chain(self):
        device = self.device
        a = device.buffer([1, 2, 3, 4])
        b = device.buffer([1, 0, 0, 1])
        c = device.empty(4)
        device.matmul(c, a, b, 2, 2, 2)
        device.axpy(c, a, 10.0)
        self.assertEqual(list(c.read(device.stream)), [11, 22, 33, 44])

    def test_capture(self):
        device = self.device
        x = device.buffer([1, 1])
        y = device.buffer([0, 0])
        launch = device.capture(lambda: device.axpy(y, x, 2.0))
        self.assertEqual(list(y.read(device.stream)), [0, 0])
        for _ in range(3):
            launch()
        self.assertEqual(list(y.read(device.stream)), [6, 6])

    def test_padding_means_nothing(self):
        device = self.device
        x = device.buffer([3.0])
        y = device.empty(1)
        for padding in (0, 255):
            device.affine(y, x, scale=-2.0, bias=1.0, padding=padding)
            self.assertEqual(list(y.read(device.stream)), [-5])

    def test_errors_are_raised_by_name(self):
        with self.assertRaisesRegex(simcuda.CudaError, "CUDA_ERROR_INVALID_VALUE"):
            self.device.driver.cuMemFree(12345)

    def run_demo(self, *arguments, **environment):
        return subprocess.run(
            [sys.executable, DEMO, *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            check=False,
            timeout=60,
        )

    def test_demo_computes_the_network(self):
        done = self.run_demo("--steps", "4", "--width", "16", "--depth", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("simulated", done.stdout)
        checksum = float(done.stdout.split("checksum: ")[1])
        self.assertAlmostEqual(checksum, reference_checksum(4, 16, 2), delta=1e-3 * abs(checksum))
        self.assertGreater(abs(checksum), 0.1)

    def test_demo_without_a_driver_says_so(self):
        done = self.run_demo(LD_LIBRARY_PATH="/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("No CUDA driver", done.stderr)

    def test_demo_reports_a_failed_call(self):
        done = self.run_demo(SIMCUDA_FAULTS="cuLaunchKernel:3:719")
        self.assertEqual(done.returncode, 1)
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", done.stderr)


if __name__ == "__main__":
    unittest.main()
