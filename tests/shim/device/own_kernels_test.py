#!/usr/bin/env python3
"""Runs the PTX of Grape's own kernels, instruction by instruction, and compares with what they should do.

The simulated driver only knows the kernels' names, so without this the text itself would run on GPUs alone. Knows the
few instructions that the text has; the threads run one after another, from one barrier to the next.

Usage: own_kernels_test.py PROGRAM-THAT-PRINTS-THE-PTX
"""
import fractions
import math
import random
import re
import struct
import subprocess
import sys

MASK = (1 << 64) - 1
BASE = 0x700000000000  # where memory begins: a multiple of 512
SHARED_BASE = 0x1000
GUARD = 0xA5


FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def number(bits, kind):
    form = FORMATS[kind]
    return struct.unpack(form, (bits & ((1 << 8 * struct.calcsize(form)) - 1)).to_bytes(struct.calcsize(form), "little"))[0]


def bits_of(value, kind):
    """Rounded to the nearest."""
    try:
        return int.from_bytes(struct.pack(FORMATS[kind], value), "little")
    except OverflowError:
        return bits_of(math.copysign(math.inf, value), kind)


def bits_rounded_up(value, kind):
    """Of a number that is not negative."""
    bits = bits_of(value, kind)
    return bits + 1 if number(bits, kind) < value else bits


def fused(a, b, c):
    """a b + c, rounded once."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    try:
        return float(fractions.Fraction(a) * fractions.Fraction(b) + fractions.Fraction(c))
    except OverflowError:
        return math.inf  # a square


class Memory:
    def __init__(self, size, base=BASE):
        self.bytes = bytearray([GUARD]) * size
        self.base = base
        self.adds, self.widest = 0, 0

    def place(self, address, size):
        assert address % size == 0, f"misaligned access of {size} bytes at {address:#x}"
        assert self.base <= address and address + size <= self.base + len(self.bytes), f"access to {address:#x}"
        return address - self.base

    def load(self, address, size):
        at = self.place(address, size)
        return int.from_bytes(self.bytes[at:at + size], "little")

    def store(self, address, size, value):
        at = self.place(address, size)
        self.bytes[at:at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


class Kernel:
    def __init__(self, name, parameters, body):
        self.name = name
        self.parameters = re.findall(r"\.param \.u64 (\w+)", parameters)
        self.code, self.labels, self.shared, self.shared_bytes = [], {}, {}, 0
        for statement in re.sub(r"//.*", "", body).replace(":", ":;").split(";"):
            statement = " ".join(statement.split())
            if statement.endswith(":"):
                self.labels[statement[:-1]] = len(self.code)
            elif statement.startswith(".shared"):
                name, size = re.fullmatch(r"\.shared \.align 8 \.b8 (\w+)\[(\d+)\]", statement).groups()
                self.shared[name] = SHARED_BASE + self.shared_bytes
                self.shared_bytes += int(size)
            elif statement and not statement.startswith(".reg"):
                self.code.append(statement)

    def launch(self, memory, grid, threads, *arguments):
        assert len(arguments) == len(self.parameters)
        for y in range(grid[1]):
            for x in range(grid[0]):
                shared = Memory(self.shared_bytes, SHARED_BASE)
                block = []
                for thread in range(threads):
                    special = {"%ctaid.x": x, "%ctaid.y": y, "%nctaid.x": grid[0], "%nctaid.y": grid[1],
                               "%ntid.x": threads, "%tid.x": thread, **self.shared}
                    block.append(Thread(self, memory, shared, dict(zip(self.parameters, arguments)), special).run())
                self.run(block)

    @staticmethod
    def run(block):
        """From barrier to barrier, each time in another order."""
        while block:
            barriers = {next(thread, None) for thread in block}
            assert len(barriers) == 1, "threads of a block wait at different barriers"
            if barriers == {None}:
                return
            block.reverse()


class Thread:
    def __init__(self, kernel, memory, shared, parameters, registers):
        self.kernel, self.memory, self.shared = kernel, memory, shared
        self.parameters, self.registers = parameters, registers

    def value(self, operand):
        if operand in self.registers:
            return self.registers[operand]
        return int(operand, 0) & MASK

    def address(self, operand):
        register, _, offset = operand[1:-1].partition("+")
        return self.value(register) + int(offset or 0)

    def put(self, register, value):
        bits = {"%h": 16, "%r": 32, "%d": 64, "%p": 1}[register[:2]]
        self.registers[register] = value & ((1 << bits) - 1)

    def run(self):
        """Yields at each barrier, which one it is."""
        at, steps = 0, 0
        while True:
            steps += 1
            assert steps < 100_000, "does not end"
            statement = self.kernel.code[at]
            at += 1
            guard = re.match(r"@(!?)(%p\d+) (.*)", statement)
            if guard:
                if bool(self.registers[guard[2]]) == bool(guard[1]):
                    continue
                statement = guard[3]
            operation, _, rest = statement.partition(" ")
            if operation == "ret":
                return
            if operation in ("bra", "bra.uni"):
                at = self.kernel.labels[rest]
            elif operation == "bar.sync":
                yield at
            else:
                self.execute(operation.split("."), rest)

    def execute(self, operation, rest):
        operands = re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s]+", rest)
        name, kind = operation[0], operation[-1]
        size = int(kind[1:]) // 8 if kind[1:].isdigit() else 1
        if name in ("ld", "st", "red"):
            return self.access(operation, operands, size)
        target, values = operands[0], [self.value(operand) for operand in operands[1:]]
        if kind in FORMATS or operation[-2] in FORMATS:
            return self.put(target, self.floating(operation, values))
        mask = (1 << 8 * size) - 1
        if name != "cvta":
            values = [value & mask for value in values] if name not in ("mul", "cvt", "shl", "shr") else values
        if name in ("mov", "cvta", "cvt"):
            result = values[0]
        elif name == "add":
            result = values[0] + values[1]
        elif name == "sub":
            result = values[0] - values[1]
        elif name == "min":
            result = min(values)
        elif name == "mul":
            assert operation[1] in ("lo", "wide")
            result = values[0] * values[1]
        elif name == "and":
            result = values[0] & values[1]
        elif name == "or":
            result = values[0] | values[1]
        elif name == "xor":
            result = values[0] ^ values[1]
        elif name == "shl":
            result = values[0] << values[1]
        elif name == "shr":
            assert kind[0] == "u"
            result = values[0] >> values[1]
        elif name == "setp":
            assert kind[0] == "u"
            result = {"eq": values[0] == values[1], "ne": values[0] != values[1], "lt": values[0] < values[1],
                      "ge": values[0] >= values[1]}[operation[1]]
        else:
            raise AssertionError(f"unknown instruction {'.'.join(operation)}")
        return self.put(target, int(result))

    @staticmethod
    def floating(operation, bits):
        """The bits of an instruction's result, or a truth value."""
        kind = operation[-1]
        values = [number(each, kind) for each in bits]
        simple = {"abs": lambda a: abs(a), "max": max, "fma.rn": fused, "sub.rn": lambda a, b: a - b,
                  "add.rn": lambda a, b: a + b}
        name = ".".join(operation[:-1])
        if name in simple:
            assert name != "max" or not any(map(math.isnan, values)), "the hardware's maximum is another one"
            return bits_of(simple[name](*values), kind)
        if name == "setp.eq":
            return values[0] == values[1]
        if name == "setp.nan":
            return any(map(math.isnan, values))
        if name in ("cvt.f32", "cvt.f64"):
            assert kind in ("f16", "f32"), "narrows without a rounding"
            return bits_of(values[0], operation[1])
        if name == "cvt.rn.f32":
            return bits_of(values[0], "f32")
        assert name == "cvt.rp.f32" and values[0] >= 0, f"unknown instruction {'.'.join(operation)}"
        return bits_rounded_up(values[0], "f32")

    def access(self, operation, operands, size):
        if operation[:2] == ["ld", "param"]:
            return self.put(operands[0], self.parameters[operands[1][1:-1]])
        memory = {"global": self.memory, "shared": self.shared}[operation[1]]
        if operation[0] == "red":
            address = self.address(operands[0])
            memory.adds += 1
            before, value = memory.load(address, size), self.value(operands[1])
            after = {"add.u64": lambda: before + value, "max.u32": lambda: max(before, value),
                     "add.f32": lambda: bits_of(number(before, "f32") + number(value, "f32"), "f32")}
            return memory.store(address, size, after[".".join(operation[2:])]())
        load = operation[0] == "ld"
        register, place = (operands[0], operands[1]) if load else (operands[1], operands[0])
        registers = re.findall(r"%\w+", register)
        assert len(registers) == (4 if "v4" in operation else 2 if "v2" in operation else 1)
        address = self.address(place)
        memory.place(address, size * len(registers))  # vectors are aligned as a whole
        memory.widest = max(memory.widest, size * len(registers))
        for i, each in enumerate(registers):
            if load:
                self.put(each, memory.load(address + i * size, size))
            else:
                memory.store(address + i * size, size, self.value(each))
        return None


def parse(text):
    entries = re.findall(r"\.visible \.entry (\w+)\(([^)]*)\)\s*\{(.*?)\n\}", text, re.S)
    return {name: Kernel(name, parameters, body) for name, parameters, body in entries}


def mixed(index, word):
    word ^= (index + 1) * 0x9E3779B97F4A7C15 & MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def hash_of(content, first=0):
    words = [int.from_bytes(content[i:i + 8], "little") for i in range(0, len(content), 8)]
    return sum(mixed(first + i, word) for i, word in enumerate(words)) & MASK


def check_copy(kernel, rng):
    for _ in range(300):
        memory = Memory(2048)
        memory.bytes[:1024] = rng.randbytes(1024)
        size, source, target = rng.choice([0, 1, 15, 16, 17, rng.randrange(300)]), rng.randrange(64), rng.randrange(64)
        if rng.random() < 0.6:
            align = rng.choice([4, 16])
            source, target = source // align * align, target // align * align
        expected = bytearray(memory.bytes)
        expected[1024 + target:1024 + target + size] = memory.bytes[source:source + size]
        kernel.launch(memory, (rng.randrange(1, 4), 1), rng.randrange(1, 9), BASE + 1024 + target, BASE + source, size)
        assert memory.bytes == expected, f"copy of {size} bytes from {source} to {target}"


def check_fill(kernel, rng):
    for _ in range(300):
        memory = Memory(2048)
        element = rng.choice([1, 2, 4])
        width, height = rng.randrange(0, 60), rng.randrange(0, 5)
        target = rng.randrange(0, 64) // element * element
        pitch = width * element + rng.randrange(0, 30) // element * element if height > 1 else rng.choice([0, 77])
        value = rng.getrandbits(64)
        expected = bytearray(memory.bytes)
        for row in range(height):
            for i in range(width):
                at = target + row * pitch + i * element
                expected[at:at + element] = (value & ((1 << 8 * element) - 1)).to_bytes(element, "little")
        kernel.launch(memory, (rng.randrange(1, 4), rng.randrange(1, 4)), rng.randrange(1, 9), BASE + target, value,
                      element, width, height, pitch)
        assert memory.bytes == expected, f"fill of {height} rows of {width} times {element} bytes at {target}"


def check_hash(kernel, rng):
    """Ranges cut into chunks, with and without a copy, added to what is there; one addition for each chunk."""
    for _ in range(80):
        memory = Memory(10 << 10)
        memory.bytes[:2048] = rng.randbytes(2048)
        threads, at, size, before = 1 << rng.randrange(5), rng.randrange(64), rng.randrange(1, 1700), rng.getrandbits(64)
        align = rng.choice([1, 8, 16, 16])
        at = at // align * align
        copy = rng.choice([0, BASE + 2048 + rng.randrange(64) // align * align])
        chunk = rng.choice([16, 64, 256, 2048])
        memory.store(BASE + 4096, 8, before)
        table = 4104
        for start in range(0, size, chunk):
            entry = [BASE + at + start, min(chunk, size - start), start // 8, BASE + 4096, copy and copy + start]
            for word in entry:
                memory.store(BASE + table, 8, word)
                table += 8
        expected = bytearray(memory.bytes)
        content = bytes(memory.bytes[at:at + size])
        expected[4096:4104] = (before + hash_of(content) & MASK).to_bytes(8, "little")
        if copy:
            expected[copy - BASE:copy - BASE + size] = content
        blocks = (size + chunk - 1) // chunk
        kernel.launch(memory, (blocks, 1), threads, BASE + 4104)
        assert memory.bytes == expected, f"hash of {size} bytes at {at} by {threads} threads, copied to {copy:#x}"
        assert memory.adds == blocks
        assert memory.widest == 16 or align < 16 or min(size, chunk) < 64 * threads
    # As it is launched: a range of several rounds and a rest.
    memory = Memory(64 << 10)
    memory.bytes[:40000] = rng.randbytes(40000)
    for place, word in enumerate([BASE, 40000, 3, BASE + 65000, 0]):
        memory.store(BASE + 50000 + 8 * place, 8, word)
    memory.store(BASE + 65000, 8, 0)
    kernel.launch(memory, (1, 1), 256, BASE + 50000)
    assert memory.load(BASE + 65000, 8) == hash_of(bytes(memory.bytes[:40000]), 3), "hash by 256 threads"


def random_number(element, rng):
    """The bits of one."""
    size = (4, 8, 2, 2)[element]
    if rng.random() < 0.2:
        return rng.getrandbits(8 * size)  # anything, NaN and subnormals too
    kind = ("f32", "f64", "f16", "f32")[element]
    bits = bits_of(rng.choice([0.0, -0.0, math.inf, -math.inf, math.nan, *(rng.gauss(0, 3) for _ in range(15))]), kind)
    return bits >> 16 if element == 3 else bits


def spread_of(one, other):
    """Count, bits of the greatest difference, sums of squares."""
    different = [(a, b) for a, b in zip(one, other) if a != b and not (math.isnan(a) and math.isnan(b))]
    differences = [math.inf if math.isnan(a - b) else abs(a - b) for a, b in different]
    return (len(different), bits_rounded_up(max(differences, default=0.0), "f32"), sum(d * d for d in differences),
            sum(a * a for a in one if not math.isnan(a)))


def is_sum(bits, expected):
    return math.isclose(number(bits, "f32"), number(bits_of(expected, "f32"), "f32"), rel_tol=1e-5, abs_tol=1e-37)


def check_spread(kernel, rng):
    """Numbers of all types, of which some differ, by any number of threads."""
    for turn in range(600):
        element, threads, blocks = turn % 4, rng.choice([1, 2, 4, 8]), rng.randrange(1, 4)
        size, count = (4, 8, 2, 2)[element], rng.choice([0, 1, threads * blocks, rng.randrange(100)])
        similar = rng.choice([0, 0.5, 0.9, 1])
        one = [random_number(element, rng) for _ in range(count)]
        other = [each if rng.random() < similar else random_number(element, rng) for each in one]
        memory = Memory(2048)
        for i in range(count):
            memory.store(BASE + 8 + i * size, size, one[i])
            memory.store(BASE + 1024 + i * size, size, other[i])
        out = BASE + 2016
        memory.bytes[2016:2036] = bytes(20)
        expected = bytearray(memory.bytes)
        kernel.launch(memory, (blocks, 1), threads, BASE + 8, BASE + 1024, count, element, out)
        results = [memory.load(out, 8)] + [memory.load(out + at, 4) for at in (8, 12, 16)]
        kind, shift = ("f32", "f64", "f16", "f32")[element], 16 if element == 3 else 0
        numbers = [[number(each << shift, kind) for each in values] for values in (one, other)]
        model = spread_of(*numbers)
        what = f"spread of {count} elements of type {element} by {blocks} times {threads} threads"
        assert results[:2] == list(model[:2]), f"{what}: {results} is not {model}"
        assert is_sum(results[2], model[2]) and is_sum(results[3], model[3]), f"{what}: {results} is not {model}"
        assert model[0] > 0 or results[1:3] == [0, 0], what
        assert memory.adds <= 4 * blocks, what
        memory.bytes[2016:2036] = bytes(20)
        assert memory.bytes == expected, f"{what}: wrote elsewhere"


def main():
    kernels = parse(subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout)
    checks = {"grape_copy": check_copy, "grape_fill": check_fill, "grape_hash": check_hash,
              "grape_spread": check_spread}
    assert set(kernels) == set(checks), sorted(kernels)
    rng = random.Random(5)
    for name, check in checks.items():
        check(kernels[name], rng)
        print(f"{name}: as it should be")


if __name__ == "__main__":
    main()
