#!/usr/bin/env python3
"""Runs `grape report` as a user would: on a good report, on hostile ones, and on what is none."""

import copy
import json
import tempfile
import unittest
from pathlib import Path

from cli import TraceTest, grape

MODULE = {
    "region": "app.models:Net", "state": "replayed", "seconds": 2.5, "share": 0.25, "share_of_run": 0.2, "calls": 1000,
    "replayed": 990, "observed": 2, "validated": 0, "fell_back": 0,
    "signatures": {"seen": 0, "observed": 0, "proven": 9, "given_up": 0}, "eager_ms": 5.0, "observed_ms": 9.5,
    "replay_ms": 0.25, "eager_interval_ms": 5.5, "replay_interval_ms": 1.1, "gain": 5.0,
    "replay_us": {"signature": 1.0}, "arena_bytes": 4096, "reason": None, "reasons": [], "other_reasons": 0,
}
REASON = {"count": 3, "kind": "host_read", "text": "reads device memory to the host (cuMemcpyDtoH)",
          "place": "app/models.py:31 in Head.forward", "advice": "Keep it on the GPU. " + "More words. " * 20}
HEAD = {**MODULE, "region": "app.models:Head", "state": "given up", "share": 0.75, "calls": 1200, "replayed": 0,
        "eager_ms": None, "replay_ms": None, "eager_interval_ms": None, "replay_interval_ms": None, "gain": None,
        "reason": "reads ...", "reasons": [REASON, {**REASON, "count": 1, "text": "odd", "place": None, "advice": None}],
        "other_reasons": 7}
IDLE = {**MODULE, "region": "app.models:Tokens", "state": "no GPU work", "share": 0.0}
REPORT = {"version": 1, "seconds": 12.5, "region_seconds": 10.0, "regions_left_out": 0, "regions": [MODULE, HEAD, IDLE]}


class Report(TraceTest):
    def setUp(self):
        self.folder_here = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder_here.cleanup)
        self.file = Path(self.folder_here.name) / "run.json"

    def report(self, content, *arguments, status=0):
        if isinstance(content, bytes):
            self.file.write_bytes(content)
        else:
            self.file.write_text(json.dumps(content))
        result = grape("report", self.file, *arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result.stdout if status == 0 else result.stderr

    def changed(self, **values):
        report = copy.deepcopy(REPORT)
        report["regions"][1].update(values)
        return report

    def test_modules_by_their_share(self):
        lines = self.report(REPORT).splitlines()
        self.assertEqual(lines[0], f"{self.file}: 12.5 s, 80.0% of it in modules' calls")
        self.assertEqual(lines[2].split(),
                         "share state calls replayed cpu eager cpu replay loop eager loop replay gain module".split())
        self.assertEqual(lines[3].split(), "75.0% given up 1200 0 <9.500 app.models:Head".split())
        self.assertEqual(lines[4].split(),
                         "25.0% replayed 1000 990 5.000 0.250 5.500 1.100 5.00x app.models:Net".split())
        self.assertNotIn("Tokens", "\n".join(lines))

    def test_output_never_replaces_what_is_read(self):
        self.assertIn("this is what is read", self.report(REPORT, "-o", self.file, status=2))
        self.assertEqual(json.loads(self.file.read_text()), REPORT)

    def test_reasons_with_lines_and_advice(self):
        text = self.report(REPORT)
        self.assertIn("\napp.models:Head (75.0%), calls that were not replayed:\n"
                      "       3  reads device memory to the host (cuMemcpyDtoH)\n"
                      "          at app/models.py:31 in Head.forward\n"
                      "          -> Keep it on the GPU. More words.", text)
        self.assertIn("\n       1  odd\n       7  for other reasons\n", text)
        self.assertNotIn("app.models:Net (", text)
        self.assertLessEqual(max(map(len, text.splitlines()[5:])), 120)

    def test_all(self):
        self.assertIn("Tokens", self.report(REPORT, "--all"))
        many = self.changed(reasons=[{**REASON, "text": f"reason {i}", "count": 2} for i in range(16)])
        self.assertNotIn("reason 4", self.report(many))
        self.assertIn(f"{7 + 12 * 2}  for other reasons", self.report(many))
        self.assertIn("reason 15", self.report(many, "--all"))

    def test_limit(self):
        text = self.report(REPORT, "--limit", 1)
        self.assertIn("… and 1 more", text)
        self.assertNotIn("app.models:Net", text)

    def test_nothing_to_show(self):
        self.assertIn("no module was called", self.report({**REPORT, "regions": []}))
        self.assertIn("--all", self.report({**REPORT, "regions": [IDLE]}))
        self.assertIn("and 3 whose modules are gone", self.report({**REPORT, "regions_left_out": 3}))

    def test_store(self):
        store = {"programs": 1000, "unique": 990, "families": 14, "raw_bytes": 190 << 20, "deduplicated_bytes": 5 << 20,
                 "stored_bytes": 1 << 20, "resident_bytes": 7 << 20}
        text = self.report({**REPORT, "store": store})
        self.assertIn("1000 programs of 14 shapes were kept in the end: 190.0 MiB; 5.0 MiB as differences, 1.0 MiB", text)
        self.assertNotIn("shapes", self.report(REPORT))
        self.assertIn("store", self.report({**REPORT, "store": {**store, "raw_bytes": "many"}}, status=2))

    def test_cache(self):
        cache = {"file": "/somewhere/0123.grape-cache", "programs": 100, "used": 90, "added": 7}
        text = self.report({**REPORT, "cache": cache})
        self.assertIn("0123.grape-cache: 100 programs of earlier processes, 90 of them used; 7 added", text)
        self.assertNotIn("earlier", self.report(REPORT))
        self.assertIn("cache", self.report({**REPORT, "cache": {**cache, "used": "many"}}, status=2))

    def test_outside_of_modules(self):
        function = {"region": "app.search:Search.top", "share": 0.41, "place": "app/search.py:12"}
        outside = {"launches": 3000, "share": 0.66, "named": "", "found": None,
                   "functions": [function, {**function, "region": "app:f", "share": 0.05}]}
        text = self.report({**REPORT, "outside": outside})
        self.assertIn("\noutside of modules: 3000 launches, 66.0% of all that the program made itself; of these in calls "
                      "of:\n   41.0%  app.search:Search.top (app/search.py:12)\n    5.0%  app:f", text)
        self.assertIn("\nGRAPE_REGIONS=app.search:Search.top,app:f\n", text)
        self.assertIn("\nGRAPE_REGIONS=app:*,app.search:Search.top,app:f\n",
                      self.report({**REPORT, "outside": {**outside, "named": "app:*"}}))
        self.assertIn("\nGRAPE_REGIONS=", self.report({**REPORT, "regions": [], "outside": outside}))
        text = self.report({**REPORT, "outside": {**outside, "found": "app:g,app:h"}})
        self.assertIn("\nregions that were found: app:g,app:h\n", text)
        self.assertNotIn("make them regions", text)
        self.assertNotIn("GRAPE_REGIONS", self.report({**REPORT, "outside": {**outside, "found": ""}}))
        text = self.report({**REPORT, "outside": {**outside, "functions": []}})
        self.assertIn("66.0% of all that the program made itself\n", text)
        self.assertNotIn("GRAPE_REGIONS", text)
        self.assertNotIn("outside", self.report(REPORT))
        self.assertNotIn("\x1b", self.report({**REPORT, "outside": {**outside, "named": "a\x1b[31m"}}))
        self.assertIn("outside", self.report({**REPORT, "outside": {**outside, "launches": -1}}, status=2))
        self.assertIn("function 0", self.report({**REPORT, "outside": {**outside, "functions": [3]}}, status=2))

    def test_graphs(self):
        graphs = {"virtual": 1000, "destroyed": 2, "pinned": 3, "launches": 5000, "taken_over": 4990, "ahead": 4000, "by_node": 7,
                  "built": 4, "evicted": 996, "execs": 8, "device_bytes": 5 << 19,
                  "store": {"programs": 998, "unique": 998, "raw_bytes": 190 << 20, "stored_bytes": 1 << 20,
                            "resident_bytes": 7 << 20},
                  "left": [{"count": 12, "reason": "has a\x1b[31m node"}]}
        text = self.report({**REPORT, "regions": [], "graphs": graphs})
        self.assertIn("1000 virtual (3 of them", text)
        self.assertIn("    5000  launches, 7 of them node by node; for 4990 another graph's exec was taken over (for 4000 ", text)
        self.assertIn("       8  execs at the end, about 2.5 MiB of the device; 190.0 MiB of programs in 7.0 MiB", text)
        self.assertIn("      12  left to the driver: has a", text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("no module was called", text)
        self.assertNotIn("graphs", self.report(REPORT))
        self.assertIn("graphs", self.report({**REPORT, "graphs": {**graphs, "execs": -1}}, status=2))
        self.assertIn("graphs", self.report({**REPORT, "graphs": 3}, status=2))

    def test_json_is_passed_through(self):
        report = {**REPORT, "more": [1, {"x": "ä"}]}
        self.assertEqual(json.loads(self.report(report, "--json")), report)

    def test_output(self):
        target = Path(self.folder_here.name) / "out.txt"
        self.assertEqual(self.report(REPORT, "-o", target), "")
        self.assertIn("app.models:Net", target.read_text())

    def test_hostile_text(self):
        text = self.report(self.changed(region="a\x1b[31m\u202eb\n", reasons=[{**REASON, "place": "x\x07", "text": "\r"}]))
        for bad in "\x1b\u202e\x07\r":
            self.assertNotIn(bad, text)

    def test_what_is_no_report(self):
        for content, why in ((b"", "not JSON"), (b"{", "not JSON"), (b"\x00\xff", "not JSON"), ([], "no report"),
                             ({"regions": []}, "no report"), ({"version": "1", "regions": []}, "no report"),
                             ({**REPORT, "version": 2}, "version 2"), (b"[" * 200_000, "not JSON"),
                             ({**REPORT, "regions": {}}, '"regions" is no list'),
                             ({**REPORT, "regions": [3]}, "module 0 is no object"),
                             (self.changed(calls="x"), 'module 1: "calls" is no count'),
                             (self.changed(calls=-1), 'module 1: "calls" is no count'),
                             (self.changed(share="x"), '"share" is no number'),
                             (self.changed(region=None), '"region" is no text'),
                             (self.changed(reasons=[{}]), 'reason 0: there is no "count"')):
            error = self.report(content, status=2)
            self.assertTrue(error.startswith("grape: "), error)
            self.assertIn(why, error)
            self.assertIn(str(self.file), error)
        missing = self.changed()
        del missing["regions"][1]["gain"]
        self.assertIn('there is no "gain"', self.report(missing, status=2))

    def test_a_trace(self):
        result = grape("report", self.root / "sample.grape")
        self.assertEqual(result.returncode, 2)
        self.assertIn("grape dump", result.stderr)

    def test_files_that_cannot_be_read(self):
        for path, why in ((self.root / "none.json", "No such file"), (self.root, "directory")):
            result = grape("report", path)
            self.assertEqual(result.returncode, 2)
            self.assertIn(why, result.stderr)
        self.assertEqual(grape("report").returncode, 2)

    def test_help(self):
        result = grape("report", "--help")
        self.assertEqual(result.returncode, 0)
        for part in ("Examples:", "Exit status:", "GRAPE_REPORT", "--json"):
            self.assertIn(part, result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
