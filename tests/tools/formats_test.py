#!/usr/bin/env python3
"""Runs `grape dump` as a user would: the output's formats, hostile names, damaged files, wrong usage."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import unittest

from cli import TraceTest, grape


class Formats(TraceTest):
    VIEWS = (["summary"], ["regions"], ["regions", "--calls"], ["regions", "--tree"], ["graphs"], ["kernels"],
             ["graph", "1"], ["graph", "1", "--stacks"], ["diff", "call:1", "call:2"], ["calls"], ["calls", "--stacks"],
             ["threads"])

    def test_csv_parses(self):
        for trace in ("sample", "hostile"):
            for view in self.VIEWS:
                if trace == "hostile" and view[0] == "diff":
                    continue
                text = self.dump(*view, "--csv", trace=trace, status=1 if view[0] == "diff" else 0)
                rows = list(csv.reader(io.StringIO(text)))
                self.assertGreater(len(rows), 1, view)
                self.assertEqual({len(row) for row in rows}, {len(rows[0])}, view)
                for row in rows:
                    for field in row:
                        self.assertFalse(re.match(r"[=+@]|-[^0-9]", field), field)

    def test_json_parses(self):
        for trace in ("sample", "hostile"):
            for view in self.VIEWS:
                if trace == "hostile" and view[0] == "diff":
                    continue
                parsed = self.json(*view, trace=trace, status=1 if view[0] == "diff" else 0)
                self.assertTrue(parsed["complete"])

    def test_dot(self):
        text = self.dump("graph", "1", "--format", "dot")
        self.assertIn("n1 -> n3;", text)
        self.assertEqual(text.count(" -> "), 5)
        hostile = self.dump("graph", "1", "--format", "dot", trace="hostile")
        for line in hostile.splitlines():
            self.assertEqual(len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2, 0, line)
        part = self.dump("graph", "1", "--format", "dot", "--kernel", "axpy", "--limit", 1)
        self.assertEqual(re.findall(r"^  n\d+ \[", part, re.M), ["  n0 ["])
        if shutil.which("dot"):
            for source in (text, hostile):
                subprocess.run(["dot", "-Tsvg"], input=source.encode(), stdout=subprocess.DEVNULL, check=True)

    def test_chrome(self):
        for trace in ("sample", "hostile"):
            events = json.loads(self.dump("--format", "chrome", trace=trace))["traceEvents"]
            self.assertEqual(sum(e["ph"] == "B" for e in events), sum(e["ph"] == "E" for e in events))
            self.assertTrue(all("pid" in e for e in events))
        slices = [e for e in json.loads(self.dump("--format", "chrome"))["traceEvents"] if e.get("ph") == "X"]
        self.assertEqual(sum(e["name"] == "axpy" and e["pid"] == 42 for e in slices), 5)
        self.assertTrue(any(e["pid"] != 42 for e in slices))

    def test_chrome_of_ranges(self):
        events = json.loads(self.dump("--format", "chrome", trace="ranges"))["traceEvents"]
        self.assertEqual([e["args"]["bytes"] for e in events if e["ph"] == "C"], [1024, 1024 + 64, 64])

    def test_chrome_filters(self):
        def names(*arguments):
            events = json.loads(self.dump("--format", "chrome", *arguments))["traceEvents"]
            return [e["name"] for e in events if e["ph"] == "X" and e["pid"] == 42]

        self.assertEqual(names("--kernel", "axpy"), ["axpy"] * 5)
        self.assertEqual(set(names("--stream", "0x5000", "--line", "train.py:12")), {"at::native::fill<float>"})
        self.assertIn("cuMemsetD32Async", names("--region", "Net"))
        self.assertNotIn("cuGraphLaunch", names("--region", "Net"))

    def test_hostile_text(self):
        for view in self.VIEWS:
            if view[0] == "diff":
                continue
            text = self.dump(*view, trace="hostile")
            self.assertFalse(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), view)

    def test_demangler_bomb(self):
        result = grape("dump", self.root / "bomb.grape", "kernels", "--json", timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        (kernel,) = json.loads(result.stdout)["kernels"]
        self.assertEqual(kernel["name"], kernel["mangled"][0], "left as it was")


class Trouble(TraceTest):
    def test_incomplete(self):
        for view in (["summary"], ["calls", "--limit", "2"], ["graph", "1"]):
            result = grape("dump", self.root / "unended.grape", *view)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertRegex(result.stderr, r"incomplete, \d+ records")
            self.assertTrue(result.stdout)

    def test_cut_anywhere(self):
        whole = (self.root / "sample.grape").read_bytes()
        for size in range(0, len(whole), max(1, len(whole) // 25)):
            path = self.root / "cut.grape"
            path.write_bytes(whole[:size])
            result = grape("dump", path)
            self.assertIn(result.returncode, (2, 3), size)
            self.assertTrue(result.stderr)

    def test_cut_within_the_head(self):
        whole = (self.root / "sample.grape").read_bytes()
        path = self.root / "head.grape"
        for size in (16, 17, 100):
            path.write_bytes(whole[:size])
            for view in ("summary", "regions", "graphs", "kernels", "calls", "threads"):
                for form in ("text", "json", "csv"):
                    result = grape("dump", path, view, "--format", form)
                    self.assertEqual(result.returncode, 3, (size, view, form, result.stderr))
                    self.assertIn("incomplete, 0 records", result.stderr)
            self.assertEqual(grape("dump", path, "graph", "1").returncode, 2)
        path.write_bytes(whole[:15])
        self.assertEqual(grape("dump", path).returncode, 2)

    def test_usage(self):
        trace = self.root / "sample.grape"
        for arguments, text in (
            (["dump"], "file"),
            (["dump", self.root / "missing.grape"], "missing.grape"),
            (["dump", trace, "sumary"], "did you mean summary?"),
            (["dump", trace, "graph"], "one argument"),
            (["dump", trace, "graph", "99"], "no graph 99"),
            (["dump", trace, "graph", "call:99"], "no such region call"),
            (["dump", trace, "graph", "x"], "not a graph"),
            (["dump", trace, "graph", "\x1b[31m"], "grape: \\x1b[31m: not a graph"),
            (["dump", trace, "graph", "call:\x1b"], "grape: call:\\x1b: no number"),
            (["dump", trace, "graph", "\x1b#9"], "grape: \\x1b#9: the region has 0 calls"),
            (["dump", trace, "-o", "/nonexistent/\x1b"], "grape: /nonexistent/\\x1b: No such"),
            (["dump", trace, "diff", "1"], "two arguments"),
            (["dump", trace, "diff", "Net#1", "Net#9"], "2 calls"),
            (["dump", trace, "--kernel", "/(/"], "--kernel"),
            (["dump", trace, "--stream", "x\x1b[31m"], "--stream x\\x1b[31m: not a handle, nor default or"),
            (["dump", trace, "--line", "train.py:9x"], "--line train.py:9x: not file.py:12, nor file.py\n"),
            (["dump", trace, "--line", "train.py:"], "--line train.py:: not file.py:12, nor file.py\n"),
            (["dump", trace, "--line", "train.py:12 in main"], "not file.py:12, nor file.py\n"),
            (["dump", trace, "--line", ":12"], "--line :12: no file name\n"),
            (["dump", trace, "--format", "xml"], "--format xml: not text, json, csv, dot or chrome\n"),
            (["dump", trace, "graph", "1", "--format", "3"], "--format 3: not text"),
            (["dump", trace, "--json", "--csv"], "--json excludes --csv"),
            (["dump", trace, "--format", "dot"], "dot"),
            (["dump", trace, "--limit", "-1"], "--limit"),
            (["dump", trace, "-o", "/nonexistent/x"], "/nonexistent/x"),
            (["dump", trace, "--format"], "--format: "),
            (["dump", trace, "--nosuch\x1b[31m"], "--nosuch\\x1b[31m; see grape dump --help\n"),
            (["run", "--nosuch", "--", "true"], "--nosuch; see grape run --help\n"),
            (["doctor", "--nosuch"], "--nosuch; see grape doctor --help\n"),
            (["report", trace, trace], "; see grape report --help\n"),
            (["report"], "file is required; see grape report --help\n"),
            (["reprot", trace], "no command reprot; see grape --help, did you mean report?\n"),
            (["nonsense\x1b"], "no command nonsense\\x1b; see grape --help\n"),
            (["--nosuch"], "; see grape --help\n"),
            ([], "a subcommand is required; see grape --help\n"),
        ):
            result = grape(*arguments)
            self.assertEqual(result.returncode, 2, (arguments, result.stderr))
            self.assertIn(text, result.stderr, arguments)
            self.assertTrue(result.stderr.startswith("grape: "), result.stderr)
            self.assertEqual(result.stdout, "", arguments)

    def test_numbers(self):
        trace = self.root / "sample.grape"
        for command, option in ((["dump", trace, "kernels"], "--limit"), (["report", trace], "--limit"),
                                (["dump", trace, "regions", "--tree"], "--depth")):
            for bad in ("-1", "x", "1.5", "5x", str(1 << 64)):
                result = grape(*command, option, bad)
                self.assertEqual(result.returncode, 2, (command, bad))
                self.assertEqual(result.stderr,
                                 f"grape: {option} wants a number from 0 (all) to {(1 << 64) - 1}, not {bad}\n")
        every = len(self.json("calls")["calls"])
        for limit, rows in (("0", every), ("3", 3), ("010", 10), ("0x10", 16), (str((1 << 64) - 1), every)):
            self.assertEqual(len(self.json("calls", "--limit", limit)["calls"]), rows, limit)

    def test_what_would_have_no_effect(self):
        trace = self.root / "sample.grape"
        for arguments, text in (
            (["graph", "1", "--format", "chrome"], "--format chrome takes no view"),
            (["summary", "--format", "chrome"], "--format chrome takes no view"),
            (["--format", "chrome", "--stacks"], "--format chrome takes --region, --stream, --kernel, --line\n"),
            (["graph", "1", "--format", "dot", "--params"], "--params has no meaning here: --format dot takes"),
            (["graph", "1", "--region", "Net"], "--region has no meaning here: the view graph takes --stream"),
            (["diff", "1", "2", "--region", "Net"], "--region has no meaning here"),
            (["graphs", "--kernel", "axpy"], "--kernel has no meaning here: the view graphs takes --region\n"),
            (["graphs", "--stream", "default"], "--stream has no meaning here"),
            (["graphs", "--line", "train.py"], "--line has no meaning here"),
            (["kernels", "--tree"], "--tree has no meaning here"),
            (["kernels", "--calls"], "--calls has no meaning here"),
            (["calls", "--params"], "--params has no meaning here"),
            (["calls", "--blocks"], "--blocks has no meaning here"),
            (["graph", "1", "--ignore-moved"], "--ignore-moved has no meaning here"),
            (["regions", "--depth", "2"], "--depth is for regions --tree"),
            (["regions", "--calls", "--tree"], "--calls"),
        ):
            result = grape("dump", trace, *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), (arguments, result.stderr))
            self.assertIn(text, result.stderr, arguments)

    def test_not_a_trace(self):
        for content in (b"", b"hello", b"\x7fELF" * 100, os.urandom(4096)):
            path = self.root / "junk.grape"
            path.write_bytes(content)
            self.assertEqual(grape("dump", path).returncode, 2)
        self.assertEqual(grape("dump", self.root).returncode, 2)

    def test_full_disk(self):
        result = grape("dump", self.root / "sample.grape", "calls", "-o", "/dev/full")
        self.assertEqual(result.returncode, 2)
        self.assertIn("No space left", result.stderr)

    def test_output_never_replaces_what_is_read(self):
        trace = self.root / "kept.grape"
        shutil.copy(self.root / "sample.grape", trace)
        before = trace.read_bytes()
        (self.root / "another-name.grape").symlink_to(trace)
        for output in (trace, self.root / "." / "kept.grape", self.root / "another-name.grape"):
            result = grape("dump", trace, "kernels", "-o", output)
            self.assertEqual(result.returncode, 2, output)
            self.assertIn("this is what is read", result.stderr)
            self.assertEqual(trace.read_bytes(), before, output)

    def test_output_stays_where_nothing_can_be_shown(self):
        trace, output = self.root / "sample.grape", self.root / "kept.txt"
        output.write_text("kept" * 100000)
        self.assertNotEqual(grape("dump", trace, "graph", "999", "-o", output).returncode, 0)
        self.assertEqual(output.read_text(), "kept" * 100000)
        self.assertEqual(grape("dump", trace, "summary", "-o", output).returncode, 0)
        self.assertEqual(output.read_text(), grape("dump", trace, "summary").stdout)

    def test_help_and_version(self):
        self.assertRegex(grape("--version").stdout, r"^grape \d+\.\d+\.\d+ \(trace format \d+\.\d+\)\n$")
        for command in ("run", "dump", "doctor"):
            result = grape(command, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("Examples:", result.stdout)
            self.assertIn("Exit status", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
