#!/usr/bin/env python3
"""What GRAPE_REPORT and a trace say of virtual graphs, in a process without Python.

Usage: report_test.py VIRTUAL_EXECS_TEST LIBRARY TOOL [unittest's arguments]; TOOL may be empty
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, LIBRARY, TOOL = sys.argv[1:4]


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.report = Path(self.folder.name) / "report.json"

    def run_program(self, tests, **settings):
        env = {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_")}
        env.update(LD_PRELOAD=LIBRARY, GRAPE_GRAPHS="virtual", GRAPE_MEMORY_BUDGET="180K", **settings)
        done = subprocess.run([PROGRAM, f"--gtest_filter={tests}"], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stderr

    def test_what_became_of_graphs(self):
        for mode in ("off", "replay"):
            self.run_program("Launch.InOrder", GRAPE_MODE=mode, GRAPE_REPORT=str(self.report))
            graphs = json.loads(self.report.read_text())["graphs"]
            self.assertEqual((graphs["virtual"], graphs["launches"], graphs["left"]), (120, 360, []))
            self.assertGreaterEqual(graphs["taken_over"] + graphs["built"], 350)
            self.assertGreater(graphs["ahead"], 300)
            self.assertLessEqual(graphs["built"], 3)
            self.assertEqual(graphs["store"]["programs"], 120)
            if TOOL:
                text = subprocess.run([TOOL, "report", self.report], check=True, capture_output=True, text=True).stdout
                self.assertIn("120 virtual", text)

    def test_launches_by_node(self):
        for tests, graphs in ("ByNode.NothingIsSetForGraphsInAnyOrder", 120), ("Forks.GraphsInAnyOrder", 60):
            self.run_program(tests, GRAPE_REPORT=str(self.report))
            report = json.loads(self.report.read_text())["graphs"]
            self.assertEqual((report["virtual"], report["launches"]), (graphs, 3 * graphs))
            self.assertGreaterEqual(report["by_node"], 3 * graphs - 8)

    def test_what_stays_with_the_driver_and_why(self):
        tests = "Kinds.*StayWithTheDriver:Kinds.*StaysWithTheDriver"
        self.run_program(tests, GRAPE_REPORT=str(self.report), SIMCUDA_DEVICES="2")
        left = {item["reason"]: item["count"] for item in json.loads(self.report.read_text())["graphs"]["left"]}
        self.assertEqual(left["has a node that is no kernel, copy, memset or empty one"], 24)
        self.assertEqual(left["may be launched from the device"], 6)
        self.assertEqual(left["keeps objects of the program alive"], 7)
        self.assertEqual(left["has a node that the device may change"], 6)
        self.assertEqual(left["has no nodes, or very many"], 6)
        self.assertEqual(left["copies from or to an array"], 6)
        self.assertEqual(left["copies or sets memory of another device"], 12)
        self.assertEqual(left["has a kernel whose parameters the driver does not describe"], 6)
        self.assertEqual(left["the driver does not tell enough of it"], 6)
        self.assertEqual(left["is not the same when it is built anew"], 1)

    def test_a_line_at_the_end(self):
        lines = self.run_program("Launch.InOrder", GRAPE_LOG="info").splitlines()
        self.assertIn("grape: graphs of the program: 120 virtual, 360 launches of them; 0 left to the driver", lines)
        self.assertNotIn("graphs of the program", self.run_program("Launch.InOrder"))

    def test_nothing_is_written_where_there_are_no_graphs(self):
        self.run_program("NoSuchTest.*", GRAPE_REPORT=str(self.report))
        self.assertFalse(self.report.exists())

    @unittest.skipUnless(TOOL, "the tool is not built")
    def test_a_trace_has_the_handles_of_the_program(self):
        trace = Path(self.folder.name) / "run.grape"
        self.run_program("Launch.AnotherExecIsNotBuiltForEachLaunch", GRAPE_TRACE=str(trace))
        dumped = subprocess.run([TOOL, "dump", trace, "calls", "--json"], check=True, capture_output=True, text=True)
        calls = [event for event in json.loads(dumped.stdout)["calls"] if event["kind"] == "call"]
        made = [event["detail"].split()[0] for event in calls if event["name"] == "cuGraphInstantiateWithFlags"]
        launched = [event["detail"].split()[0] for event in calls if event["name"] == "cuGraphLaunch"]
        # What the program did, and nothing of what was done for it.
        self.assertEqual(len(set(made)), 120)
        self.assertEqual(launched, 2 * made)
        self.assertEqual([event["name"] for event in calls if "ExecDestroy" in event["name"] or "SetParams" in event["name"]],
                         [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
