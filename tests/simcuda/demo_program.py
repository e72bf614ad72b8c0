#!/usr/bin/env python3
"""An ordinary CUDA program in Python, for machines without a GPU: the forward pass of a small MLP, several times.

Nothing here knows of Grape. It needs the simulated driver (LD_LIBRARY_PATH=build/<preset>/lib/simcuda), since its
kernels are that driver's; with a real libcuda it says so and ends with status 1.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import simcuda  # noqa: E402


def numbers(count, seed):
    """The same floats everywhere: a linear congruential generator, in [-0.5, 0.5)."""
    values = []
    state = seed * 2654435761 % 2**32 or 1
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        values.append(state / 2**32 - 0.5)
    return values


class Linear:
    """y = relu(x W + b)."""

    def __init__(self, device, inputs, outputs, seed):
        self.device = device
        self.inputs = inputs
        self.outputs = outputs
        self.weight = device.buffer(numbers(inputs * outputs, seed))
        self.bias = device.buffer(numbers(outputs, seed + 1))

    def __call__(self, x, rows):
        y = self.device.empty(rows * self.outputs)
        self.device.matmul(y, x, self.weight, rows, self.outputs, self.inputs)
        self.device.bias_relu(y, self.bias, rows, self.outputs)
        return y


class Residual:
    """x + layer(x) / 2, the layer on the way through a struct parameter with padding."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x, rows):
        y = self.layer(x, rows)
        device = self.layer.device
        scaled = device.empty(y.count)
        device.affine(scaled, y, scale=0.5, bias=0.0, padding=rows * 37)
        device.axpy(scaled, x, 1.0)
        device.synchronize()
        y.free()
        return scaled


class Network:
    def __init__(self, device, width, depth):
        self.layers = [Linear(device, width, width, 100)]
        self.layers += [Residual(Linear(device, width, width, 200 + 10 * i)) for i in range(depth)]
        self.head = Linear(device, width, 8, 900)
        self.device = device

    def forward(self, x, rows):
        temporaries = []
        for layer in self.layers:
            x = layer(x, rows)
            temporaries.append(x)
        y = self.head(x, rows)
        total = self.device.empty(1)
        self.device.reduce_sum(total, y)
        result = total.read(self.device.stream)[0]
        for buffer in temporaries + [y, total]:
            buffer.free()
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="forward passes (default: %(default)s)")
    parser.add_argument("--width", type=int, default=32, help="features of a layer (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=4, help="residual layers (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        device = simcuda.Device()
    except OSError as error:
        sys.exit(f"No CUDA driver: {error}\nSet LD_LIBRARY_PATH to the simulated one, build/<preset>/lib/simcuda.")
    print(f"device: {device.name}")
    network = Network(device, arguments.width, arguments.depth)
    checksum = 0.0
    for step in range(arguments.steps):
        rows = 2 + step % 3
        x = device.buffer(numbers(rows * arguments.width, step + 1))
        checksum += network.forward(x, rows)
        x.free()
    print(f"checksum: {checksum:.4f}")
    device.close()


if __name__ == "__main__":
    main()
