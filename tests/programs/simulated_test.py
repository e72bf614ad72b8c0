"""Runs the cases in simulated/ plain and with libgrape.so preloaded, and compares all that the programs saw.

simulated_test.py --python VERSION --grape LIBRARY --simcuda FOLDER --sim-torch FOLDER [--together | --validated | --cached]
                   [NAME ...]

NAME: a file cases_NAME.py; without any, all. --together: all cases in one process, instead of one for each. --validated: the
same, every replay checked by GRAPE_VALIDATE. --cached: the same, in two processes, of which the second has what the first
left in GRAPE_CACHE. Exits 77 (skipped) where there is no such interpreter.
"""
import argparse
import json
import os
import re
import sys
import tempfile
import unittest

import compare

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "python_hooks", "probes"), os.path.join(HERE, "..", "sim_torch")]
import simulated  # noqa: E402
from interpreters import SKIPPED, interpreter  # noqa: E402

OPTIONS = None
SECONDS = 240  # for a process; on a busy machine
NAMED = (
    "cases_function*:region_*", "cases_function*:*.region_*", "__main__:region_*",
    "installed_helper:region_*", "installed_package.regions:region_*",
)
REGIONS = {"GRAPE_REGIONS": ",".join(NAMED)}


def run(names, grape, environment=None):
    """One run of main.py."""
    command = [OPTIONS.path, compare.MAIN, *names]
    settings = {"LD_PRELOAD": OPTIONS.grape, "GRAPE_MODE": "replay"} if grape else None
    taken = simulated.environment(OPTIONS, PYTHONHASHSEED="0", **(environment or {}))
    return compare.Process(command, taken, SECONDS, settings)


def reasons_of(case, regions):
    """Why calls were not replayed, of the regions that may be the case's: of classes in its file or the bed's."""
    lines = []
    for region in regions:
        if region["reasons"] and region["region"].startswith((f"cases_{case['file']}:", "tiny:")):
            reasons = "; ".join(f"{reason['count']} x {reason['text']}" for reason in region["reasons"])
            lines.append(f"{region['region']}, {region['calls']} calls, {region['replayed']} replayed: {reasons}")
    return "\n".join(lines)


class Cases(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.told = set()  # files, of whose regions the reasons were told

    def same(self, plain, under_grape, name):
        self.assertEqual(compare.difference(plain.results[name], under_grape.results[name]), "")

    def compare(self, case, plain, under_grape):
        expected, seen = (process.results.get(case["name"]) for process in (plain, under_grape))
        self.assertIsNotNone(expected, plain.stderr)
        self.assertIsNotNone(seen, under_grape.stderr)
        self.assertEqual(compare.difference(expected, seen), "")
        self.assertEqual(seen["stdout"], expected["stdout"])
        self.assertEqual(len(seen["calls"]), len(expected["calls"]))
        pattern = compare.pattern_of(expected, seen)
        if not re.match(f"^(?:{case['pattern']})$", pattern):
            reasons = "as above" if case["file"] in self.told else reasons_of(case, under_grape.regions)
            self.told.add(case["file"])
            self.fail(f"{pattern} is not {case['pattern']}; reasons:\n{reasons}")
        return pattern

    def compare_alone(self, case, plain, under_grape):
        pattern = self.compare(case, plain, under_grape)
        self.assertEqual(under_grape.status, 0, under_grape.stderr)
        at_end = case["stderr"] if case["stderr_at_end"] is None else case["stderr_at_end"]
        said = re.escape(plain.results[case["name"]]["stderr"]) + case["stderr"] + "END_OF_CASE\n" + at_end
        self.assertRegex(under_grape.stderr, re.compile(f"^{said}$", re.DOTALL))
        # Regions whose modules are gone are not reported any more.
        self.assertLessEqual("r" in pattern, sum(region["replayed"] for region in under_grape.regions))
        refusals = {reason["id"] for region in under_grape.regions for reason in region["reasons"]}
        self.assertLessEqual(set(case["refusals"]), refusals)
        if case["reason"] is not None:
            self.assertIn(case["reason"], " | ".join(str(region["reason"]) for region in under_grape.regions))


def declared_cases():
    lines = run(["--list", "--group", "all"], grape=False).stdout.splitlines()
    major, minor = (int(part) for part in OPTIONS.python.split("."))
    for case in map(json.loads, lines):
        if tuple(case["least_python"]) <= (major, minor) and (not OPTIONS.names or case["file"] in OPTIONS.names):
            yield case


def environment_of(case):
    return {**(REGIONS if case["file"].startswith("function") else {}), **case["environment"]}


def alone(case):
    return case["alone"] or case["environment"]


class Plain:
    """The plain run of a case; most share a process, which runs when it is first asked for."""

    def __init__(self, cases):
        self.names = [case["name"] for case in cases if not alone(case)]
        self.shared = None

    def of(self, case):
        if alone(case):
            return run([case["name"]], False, environment_of(case))
        if self.shared is None:
            self.shared = run(self.names, False)
        return self.shared


def add_test(case, plain):
    def test(self):
        self.compare_alone(case, plain.of(case), run([case["name"]], True, environment_of(case)))

    setattr(Cases, "test_" + case["name"], test)


def add_test_of_all(cases, plain):
    def test(self):
        under_grape = run(plain.names, True, REGIONS)
        self.assertEqual(under_grape.status, 0, under_grape.stderr)
        for case in cases:
            if not alone(case):
                with self.subTest(case["name"]):
                    self.compare(case, plain.of(case), under_grape)

    Cases.test_together = test


def add_test_of_validation(cases, plain):
    def test(self):
        names = [case["name"] for case in cases if case["validated"] and not alone(case)]
        under_grape = run(names, True, {"GRAPE_VALIDATE": "1", **REGIONS})
        self.assertEqual(under_grape.status, 0, under_grape.stderr)
        self.assertNotIn("differs from the call itself", under_grape.stderr)
        for name in names:
            with self.subTest(name):
                self.same(plain.of(of_name(cases, name)), under_grape, name)
        self.assertEqual(sum(region["replayed"] for region in under_grape.regions), 0)
        # Some cases' calls are not replayed. The report leaves out modules that are gone, from the 257th on, so that how
        # many it tells of does not grow with the cases.
        self.assertGreater(sum(region["validated"] for region in under_grape.regions), 4 * len(under_grape.regions))

    Cases.test_validated = test


def add_test_of_cache(cases, plain):
    def test(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = {"GRAPE_CACHE": folder, **REGIONS}
            first, second = (run(plain.names, True, settings) for _ in range(2))
        for process in (first, second):
            self.assertEqual(process.status, 0, process.stderr)
            for name in plain.names:
                with self.subTest(name):
                    self.same(plain.of(of_name(cases, name)), process, name)
        # Each of these saves a call that is observed. How many calls run as always hangs on the machine's load besides.
        self.assertEqual(first.cache["used"], 0)
        self.assertGreater(second.cache["used"], len(plain.names) // 2)

    Cases.test_cached = test


def of_name(cases, name):
    return next(case for case in cases if case["name"] == name)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("python", "grape", "simcuda", "sim-torch"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--validated", action="store_true")
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("names", nargs="*")
    OPTIONS = parser.parse_args()
    OPTIONS.path = interpreter(OPTIONS.python)
    if OPTIONS.path is None:
        print(f"skipped: no Python {OPTIONS.python} on this machine")
        return SKIPPED
    cases = list(declared_cases())
    if not cases:
        print("no such cases")
        return 1
    plain = Plain(cases)
    if OPTIONS.validated:
        add_test_of_validation(cases, plain)
    elif OPTIONS.cached:
        add_test_of_cache(cases, plain)
    elif OPTIONS.together:
        add_test_of_all(cases, plain)
    else:
        for case in cases:
            add_test(case, plain)
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Cases)
    return 0 if unittest.TextTestRunner().run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
