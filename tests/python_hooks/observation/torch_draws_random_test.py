"""Random functions that draw numbers on the host, compare them, and use them in other ways: where the watch says that it knows
what became of all numbers, a call that decides the same must do the same.

torch_draws_random_test.py [COUNT [FIRST]]: so many functions, from that seed on."""
import random
import sys
import unittest

import torch

import executed
from executed import Observation

assert executed.load_torch()
COUNT, FIRST = 300, 0
CALLS = 12  # of each function, with other numbers

NUMBERS, OUTCOMES, PLAIN = ("p", "q", "r"), ("low", "high"), ("a", "b")
LIMITS = ("0.5", "0.3", "self.limit", "self.limit * 0.5", "self.half()", "b_limit", "-1", "2", "LIMIT")
COMPARISONS = ("<", "<=", ">", ">=")
DRAWS = ("torch.rand([])", "torch.rand(1)", "torch.rand((), dtype=torch.float64)", "draw()")
# What looks at a number, or passes it on.
LOOKS = ("seen.append({n}.item())", "seen.append(float({n}))", "seen.append(str({n}))", "seen.append({n} + 1)",
         "seen.append([{n}])", "seen.append((lambda: {n})().item())", "seen.append({n} == 0.5)",
         "seen.append(bool({o}))", "seen.append({o}.item())", "seen.append({o} is None)", "self.kept = {n}",
         "globals()['GLOBAL'] = {n}; seen.append(GLOBAL.item())", "seen.append(locals().get('{n}') is None)",
         "seen.append(f'{{{n}}}')", "{n} += 1", "seen.append(max({n}, torch.tensor(0.5)).item())",
         "seen.append([x.item() for x in ({n},)])", "seen.append({n}.new_tensor(1).item())")  # fmt: skip


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines, self.count = [], 0
        self.looks = self.random.random() < 0.5

    def one_of(self, options):
        return self.random.choice(options)

    def mark(self):
        self.count += 1
        return f"seen.append({self.count})"

    def comparison(self):
        number, limit, by = self.one_of(NUMBERS), self.one_of(LIMITS), self.one_of(COMPARISONS)
        return self.one_of((f"{number} {by} {limit}", f"{limit} {by} {number}", f"{self.one_of(DRAWS)} {by} {limit}",
                            f"({number} := {self.one_of(DRAWS)}) {by} {limit}"))  # fmt: skip

    def condition(self):
        one, other = self.comparison(), self.one_of((self.comparison(), "self.training", self.one_of(PLAIN)))
        forms = [one, f"not {one}", f"{one} and {other}", f"{other} and {one}", f"{other} or {one}", self.one_of(OUTCOMES),
                 f"not {self.one_of(OUTCOMES)}", f"0.1 < {self.one_of(NUMBERS)} < {self.one_of(LIMITS)}",
                 f"(True if {one} else False)"]  # fmt: skip
        return self.one_of(forms)

    def block(self, depth, indent, loop):
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, indent, loop)

    def add(self, indent, text):
        self.lines.append("    " * indent + text)

    def statement(self, depth, indent, loop):
        number, outcome, plain = self.one_of(NUMBERS), self.one_of(OUTCOMES), self.one_of(PLAIN)
        simple = [f"{number} = {self.one_of(DRAWS)}", f"{number} = {self.one_of(NUMBERS)}", f"{outcome} = {self.comparison()}",
                  f"{outcome} = self.training and {self.comparison()}", f"{plain} = not {self.comparison()}",
                  f"{number}, {self.one_of(NUMBERS)} = {self.one_of(NUMBERS)}, {self.one_of(NUMBERS)}", self.mark(),
                  f"{plain} = 1 if {self.condition()} else 0", self.mark(), f"{self.one_of(DRAWS)}",
                  f"{outcome} = {plain} = False", f"{plain} = helper(self)", f"{number} = {outcome} = torch.zeros(())"]  # fmt: skip
        if loop:
            simple += ["continue", "break"]
        if self.looks:
            simple.append(self.one_of(LOOKS).format(n=number, o=outcome))
        if depth == 0 or self.random.random() < 0.6:
            return self.add(indent, self.one_of(simple))
        kind = self.one_of(("if", "else", "for", "while", "try", "with"))
        if kind in ("if", "else"):
            self.add(indent, f"if {self.condition()}:")
            self.block(depth - 1, indent + 1, loop)
            if kind == "else":
                self.add(indent, "else:")
                self.block(depth - 1, indent + 1, loop)
        elif kind == "for":
            self.add(indent, f"for i in range({self.random.randint(1, 3)}):")
            self.block(depth - 1, indent + 1, True)
        elif kind == "while":
            self.count += 1
            self.add(indent, f"n{self.count} = 3")
            self.add(indent, f"while (n{self.count} := n{self.count} - 1) and ({self.condition()}):")
            self.block(depth - 1, indent + 1, True)
        elif kind == "try":
            self.add(indent, "try:")
            self.block(depth - 1, indent + 1, loop)
            self.add(indent, self.one_of(("finally:", "except ValueError:")))
            self.add(indent + 1, self.mark())
        else:
            self.add(indent, "with nothing:")
            self.block(depth - 1, indent + 1, loop)

    def source(self):
        self.add(0, "def function(self, seen):")
        # In some functions numbers go into a variable before any other value does.
        self.add(1, f"p = q = r = {self.one_of(('torch.rand([])', 'torch.zeros(())'))}")
        self.add(1, "low = high = a = b = self.off")
        self.add(1, "b_limit = 0.4")
        self.block(3, 1, False)
        self.block(3, 1, False)
        self.add(1, self.one_of(("return a, b", "return a and 1", "return seen")))
        return "\n".join(self.lines)


class Holder:
    limit, training, off = 0.6, True, False

    def half(self):
        return self.limit / 2


class Nothing:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def helper(self):
    p = torch.rand([])
    return 1 if p < self.limit else 2


def outcome_of(function):
    seen = []
    try:
        result = function(Holder(), seen)
    except Exception as error:  # the same one each time
        result = repr(error)
    return repr(result), repr(seen)


class Random(unittest.TestCase):
    def test_what_is_known_holds(self):
        known = decided = same = 0
        for seed in range(FIRST, FIRST + COUNT):
            source = Generator(seed).source()
            names = {"torch": torch, "draw": torch.rand, "LIMIT": 0.7, "nothing": Nothing(), "helper": helper}
            names["draw"] = lambda: torch.rand([])
            exec(source, names)
            torch.manual_seed(seed)
            random_before, observation = executed.host_random_new(), Observation()
            observed = []
            observation.run(lambda: observed.append(outcome_of(names["function"])))
            if executed.code_followed_draws(observation.handle) >= 0:
                known += 1
                self.assertTrue(executed.host_random_moved_by(random_before, observation.handle), source)
                for call in range(CALLS):
                    torch.manual_seed(1000 * seed + call)
                    decides = bool(executed.code_decide_the_same(observation.handle))
                    again = outcome_of(names["function"])
                    decided += decides
                    same += again == observed[0]
                    if decides:
                        self.assertEqual(again, observed[0], f"seed {seed}, call {call}\n{source}")
            executed.host_random_delete(random_before)
        print(f"{COUNT} functions: of {known} it is known what became of the numbers; of {known * CALLS} calls {decided} "
              f"decide the same, {same} do the same", file=sys.stderr)  # fmt: skip
        if sys.version_info >= (3, 12):
            self.assertGreater(known, COUNT // 10)
            self.assertGreater(decided, 0)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    COUNT, FIRST = (numbers + [COUNT, FIRST][len(numbers):])[:2]
    unittest.main(argv=sys.argv[:1])
