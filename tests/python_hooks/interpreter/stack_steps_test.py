"""What instructions do with the stack and with local variables, against the interpreter's own module dis, over the standard
library's code."""
import argparse
import ast
import ctypes
import dis
import inspect
import json
import sys
import tarfile
import typing
import unittest

import executed

assert executed.load()
step_of = executed.declare("code_stack_step", ctypes.c_int, ctypes.py_object, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int64))
UNKNOWN, ANY_LOCAL, LOCALS, MOVES, COPY, SWAP, DROP, COMPARE, TRUTH, BRANCH = range(10)
READS, SETS, DELETES = 1, 2, 3
WORDS = ("kind", "asks", "pops", "pushes", "depth", "use", "variable", "other_use", "other_variable", "next", "target")
MODULES = (argparse, ast, dis, inspect, json.decoder, tarfile, typing)


class Step:
    def __init__(self, instructions, offset):
        words = (ctypes.c_int64 * len(WORDS))()
        self.result = step_of(instructions, offset, words)
        self.__dict__.update(zip(WORDS, words))

    def locals(self):
        uses = [(self.use, self.variable), (self.other_use, self.other_variable)]
        return [(use, variable) for use, variable in uses if use]


def codes_of(module):
    """Of its source, and of all that is within."""
    left = [compile(inspect.getsource(module), module.__file__, "exec")]
    while left:
        code = left.pop()
        yield code
        left += [constant for constant in code.co_consts if inspect.iscode(constant)]


def far(count):
    """Jumps and constants that take prefixes."""
    lines = "".join(f"  x = y = a[{i}] + {i}.5\n" for i in range(count))
    return compile(f"def f(a, b):\n if a < b:\n{lines} return not a\n", "far", "exec").co_consts[0]


def comparing(a, b):
    if a < b:
        return a if not a > b else -b
    del b
    low = a <= 3 < 5
    return low and not (a >= 1)


@unittest.skipIf(sys.version_info < (3, 12), "instructions are followed from 3.12 on")
class StackSteps(unittest.TestCase):
    def setUp(self):
        self.codes = [code for module in MODULES for code in codes_of(module)] + [far(400), comparing.__code__]

    def each(self):
        for code in self.codes:
            instructions = list(dis.get_instructions(code))
            behind, itself = {}, {}  # by offset: the following instruction, and the one that has this prefix
            following = None
            for instruction in reversed(instructions):
                behind[instruction.offset] = following
                if instruction.opname != "EXTENDED_ARG":
                    following = instruction.offset
                itself[instruction.offset] = following
            for instruction in instructions:
                step = Step(code.co_code, instruction.offset)
                target = itself.get(instruction.argval) if isinstance(instruction.argval, int) else None
                yield code, instruction, step, behind[instruction.offset], target

    def test_effects(self):
        kinds = set()
        for code, instruction, step, following, target in self.each():
            where = f"{code.co_filename}:{code.co_name} {instruction.offset} {instruction.opname} {instruction.arg}"
            if instruction.opname == "EXTENDED_ARG":
                self.assertEqual(step.result, 0, where)
                continue
            self.assertEqual(step.result, 1, where)
            kinds.add(step.kind)
            if following is not None:
                self.assertEqual(step.next, following, where)
            if step.kind in (UNKNOWN, ANY_LOCAL):
                continue
            reads = sum(use == READS for use, _ in step.locals())
            sets = sum(use == SETS for use, _ in step.locals())
            change = reads - sets if step.kind == LOCALS else step.pushes - step.pops
            for jump in (False, True):
                self.assertEqual(change, dis.stack_effect(instruction.opcode, instruction.arg, jump=jump), where)
            if step.kind == BRANCH:
                self.assertEqual(step.target, target, where)
            if step.kind in (COPY, SWAP):
                self.assertEqual(step.depth, instruction.arg, where)
            if step.kind == COMPARE:
                self.assertEqual(bool(step.asks), instruction.argrepr.startswith("bool("), where)
        self.assertEqual(kinds - {ANY_LOCAL}, set(range(10)) - {ANY_LOCAL})

    def test_local_variables(self):
        missing = {"LOAD_FAST", "STORE_FAST", "DELETE_FAST"}
        for code, instruction, step, _, _ in self.each():
            if instruction.opcode not in dis.haslocal:
                self.assertNotIn(step.kind, (LOCALS, ANY_LOCAL), instruction)
                continue
            self.assertEqual(step.kind, LOCALS, instruction)
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            self.assertEqual(len(step.locals()), len(names), instruction)
            words = [word for word in instruction.opname.split("_") if word in ("LOAD", "STORE", "DELETE")]
            for (use, variable), name, word in zip(step.locals(), names, words):
                self.assertEqual(use, {"LOAD": READS, "STORE": SETS, "DELETE": DELETES}[word], instruction)
                if variable < len(code.co_varnames):
                    self.assertEqual(code.co_varnames[variable], name, instruction)
            missing.discard(instruction.opname)
        self.assertLessEqual(missing, {"LOAD_FAST"})  # later interpreters borrow instead


if __name__ == "__main__":
    unittest.main()
