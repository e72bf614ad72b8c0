#!/usr/bin/env python3
"""Runs `grape` as a user would: views of small traces, formats, filters, errors, and the launcher."""

import csv
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = os.environ["GRAPE_TEST_TOOL"]
MAKE_TRACE = os.environ["GRAPE_TEST_MAKE_TRACE"]
CONVERT = os.environ["GRAPE_TEST_CONVERT"]
LIBRARY = os.environ["GRAPE_TEST_LIBRARY"]
STATIC = os.environ["GRAPE_TEST_STATIC"]
STREAMS = Path(os.environ["GRAPE_TEST_STREAMS"])
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("GRAPE_") and k != "LD_PRELOAD"}


def grape(*arguments, environment=None, binary=False, timeout=120):
    result = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**CLEAN, **(environment or {})}, timeout=timeout, check=False)
    if not binary:
        result.stdout = result.stdout.decode("utf-8")
        result.stderr = result.stderr.decode("utf-8")
    return result


class TraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        for kind in ("sample", "hostile", "unended", "bomb"):
            subprocess.run([MAKE_TRACE, kind, cls.root / f"{kind}.grape"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def dump(self, *arguments, trace="sample", status=0):
        result = grape("dump", self.root / f"{trace}.grape", *arguments)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        return result.stdout

    def json(self, *arguments, trace="sample", status=0):
        return json.loads(self.dump(*arguments, "--json", trace=trace, status=status))


class Views(TraceTest):
    def test_summary(self):
        summary = self.json()
        expected = {
            "pid": 42, "command": "python train.py", "python": "3.12.1", "driver": 13000, "threads": 2, "streams": 2,
            "launches": 7, "launches_in_graphs": 14, "captured_launches": 1, "failed_launches": 1,
            "launches_with_line": 6, "launches_outside_regions": 1, "kernels": 2, "host_reads": 2, "syncs": 2,
            "regions": 1, "region_calls": 2, "application_graphs": 2, "graph_launches": 6,
            "unhandled": {"cuSomethingNew": 3}, "notices": ["a notice"], "complete": True,
        }
        self.assertEqual({key: summary[key] for key in expected}, expected)
        self.assertEqual(summary["copies"]["to_host"], {"count": 2, "bytes": 8})
        self.assertEqual(summary["copies"]["to_device"], {"count": 1, "bytes": 512})
        self.assertEqual(summary["memsets"], {"count": 2, "bytes": 32})
        self.assertEqual(summary["blocks"]["allocated"], 3)
        self.assertEqual(summary["blocks"]["peak_bytes"], 1024 + 4096)

    def test_summary_text(self):
        text = self.dump()
        for line in ("command           python train.py",
                     "launches          21 of 2 kernels, on 2 streams, 14 of them in graphs; 1 captured into graphs; "
                     "1 failed",
                     "regions           1, 2 calls; 1 launches outside",
                     "not handled       cuSomethingNew (3 calls)",
                     "notice            a notice",
                     "complete          yes",
                     "  launches  calls  region\n         6      2  model:Net"):
            self.assertIn(line, text)

    def test_regions(self):
        (region,) = self.json("regions")["regions"]
        self.assertEqual((region["kind"], region["type"], region["calls"], region["launches"], region["graphs"]),
                         ("module", "model:Net", 2, 6, 1))
        self.assertEqual(region["launches_per_call"], {"min": 3, "median": 3, "max": 3})
        self.assertEqual((region["host_reads"], region["syncs"]), (2, 2))
        self.assertEqual(region["first_line"], "user/train.py:12 in main")
        self.assertGreater(region["milliseconds_per_call"]["median"], 0.1)

    def test_region_calls(self):
        calls = self.json("regions", "--calls")["calls"]
        self.assertEqual([(c["call"], c["ordinal"], c["launches"], c["status"]) for c in calls],
                         [(1, 1, 3, "returned"), (2, 2, 3, "returned")])
        self.assertEqual(calls[0]["shape"], calls[1]["shape"])

    def test_region_tree(self):
        modules = self.json("regions", "--tree")["modules"]
        self.assertEqual([(m["module"], m["launches"], m["own"], m["calls"]) for m in modules],
                         [("", 6, 2, 2), ("fc1", 2, 2, 2), ("fc2", 2, 2, 2)])
        self.assertEqual(len(self.json("regions", "--tree", "--depth", 1)["modules"]), 1)

    def test_graphs(self):
        graphs = self.json("graphs")["graphs"]
        keys = ("id", "origin", "calls", "nodes", "kernels", "copies", "memsets", "edges")
        self.assertEqual([tuple(g[k] for k in keys) for g in graphs],
                         [(1, "region", 2, 5, 3, 1, 1, 5), (2, "application", 4, 4, 3, 0, 1, 3),
                          (3, "application", 2, 1, 1, 0, 0, 0)])
        self.assertEqual(graphs[0]["streams"], 2)

    def test_kernels_count_what_ran(self):
        kernels = {k["name"]: k for k in self.json("kernels")["kernels"]}
        axpy = kernels["axpy(int, float, float const*, float*)"]
        fill = kernels["void at::native::fill<float>(float*)"]
        # Direct launches, and kernel nodes times launches of their graph.
        self.assertEqual((axpy["launches"], axpy["direct"], axpy["in_graphs"]), (5 + 4, 5, 4))
        self.assertEqual((fill["launches"], fill["direct"], fill["in_graphs"]), (2 + 2 * 4 + 2, 2, 10))
        self.assertEqual((fill["captured"], fill["failed"]), (1, 1))
        self.assertEqual(axpy["mangled"], ["_Z4axpyifPKfPf"])
        self.assertEqual(fill["variants"], [{"grid": [8, 1, 1], "block": [128, 1, 1], "launches": 2}])
        self.assertEqual(axpy["lines"], [{"line": "nn/linear.py:125 in Linear.forward", "launches": 4}])

    def test_graph(self):
        graph = self.json("graph", "1")
        self.assertEqual([(n["kind"], n["after"]) for n in graph["nodes"]],
                         [("kernel", []), ("kernel", [0]), ("kernel", [0]), ("memset", [1, 2]), ("copy", [3])])
        first = graph["nodes"][0]
        self.assertEqual((first["line"], first["module"], first["stream"]),
                         ("nn/linear.py:125 in Linear.forward", "fc1", "default"))
        self.assertEqual(first["stack"], ["nn/linear.py:125 in Linear.forward", "user/train.py:12 in main"])
        self.assertEqual(graph["nodes"][1]["attributes"], ["cluster 2x1x1"])
        words = {w["place"]: w for w in first["parameters"]}
        self.assertEqual(words["p0+0x0"]["value"], "0x10")
        self.assertEqual(words["p0+0x0"]["bytes"], 4)
        self.assertEqual(words["p2+0x0"]["block"], {"ordinal": 1, "driver": False, "offset": 0, "bytes": 1024})
        self.assertEqual(words["p3+0x0"]["block"], {"ordinal": 2, "driver": False, "offset": 64, "bytes": 4096})
        self.assertIn("host waits: cuStreamSynchronize", [e["text"] for e in graph["host_events"]])

    def test_graph_text(self):
        text = self.dump("graph", "1", "--params", "--blocks")
        for line in ("5 nodes, 5 edges",
                     "      -- allocates block 2 of 4096 B at 0x20000\n#0    axpy  grid 1x1x1 block 32x1x1",
                     "      nn/linear.py:125 in Linear.forward  —  fc1\n",
                     "      p3+0x0       0x0000000000020040  block 2+0x40 of 4096 B\n",
                     "#3    cuMemsetD32Async  16 B  stream default  after #1 #2\n",
                     "      -- host waits: cuStreamSynchronize\n"):
            self.assertIn(line, text)
        self.assertNotIn("allocates", self.dump("graph", "1"))

    def test_application_graph(self):
        nodes = self.json("graph", "2")["nodes"]
        self.assertEqual([(n["kind"], n["after"]) for n in nodes],
                         [("kernel", []), ("memset", [0]), ("kernel", [1]), ("kernel", [1])])
        self.assertEqual(nodes[0]["parameters"][2]["block"]["ordinal"], 1)

    def test_outside_graph(self):
        kinds = [n["kind"] for n in self.json("graph", "call:0")["nodes"]]
        self.assertEqual(kinds.count("kernel"), 1)
        self.assertEqual(kinds.count("graph"), 6)

    def test_diff(self):
        diff = self.json("diff", "call:1", "Net#2", status=1)
        counts = {key: value for key, value in diff["counts"].items() if value}
        # Pointers into the output moved (two axpy, fill, memset, copy); the factor of the first axpy changed.
        self.assertEqual(counts, {"moved_pointer": 5, "plain": 1})
        (plain,) = [d for d in diff["differences"] if d["change"] == "plain"]
        self.assertEqual((plain["node_a"], plain["name"], plain["parameter"], plain["in_parameter"], plain["bytes"]),
                         (0, "_Z4axpyifPKfPf", 1, 0, 4))
        self.assertEqual((plain["a"]["value"], plain["b"]["value"]), ("0x40000000", "0x40400000"))
        moved = next(d for d in diff["differences"] if d["change"] == "moved_pointer")
        self.assertEqual((moved["a"]["block"], moved["b"]["block"], moved["a"]["block_offset"]), (2, 3, 64))

    def test_diff_status(self):
        self.assertIn("the same", self.dump("diff", "call:1", "1"))
        self.dump("diff", "1#1", "1#2", "--ignore-moved", status=1)
        unlike = self.json("diff", "1", "2", status=1)["counts"]
        self.assertGreater(unlike["only_in_a"] + unlike["only_in_b"], 0)

    def test_calls(self):
        calls = self.json("calls")["calls"]
        self.assertEqual([c["sequence"] for c in calls], sorted(c["sequence"] for c in calls))
        (failed,) = [c for c in calls if "failed with CUresult 700" in c["detail"]]
        self.assertEqual(failed["kind"], "launch")
        self.assertEqual(len(self.dump("calls", "--limit", 3).splitlines()), 4)
        copies = [c for c in calls if c["name"] == "cuMemcpyHtoDAsync_v2"]
        self.assertEqual([(c["thread"], c["detail"]) for c in copies],
                         [(2, "dst=0x10000 src=0x7fff1000 bytes=512 stream=0x0")])

    def test_threads(self):
        threads = self.json("threads")["threads"]
        self.assertEqual([(t["thread"], t["os_thread"], t["launches"]) for t in threads], [(1, 1001, 9), (2, 1002, 0)])

    def test_output_file(self):
        path = self.root / "out.json"
        self.assertEqual(self.dump("--json", "-o", str(path)), "")
        self.assertEqual(json.loads(path.read_text())["view"], "summary")


class Filters(TraceTest):
    def launches(self, *arguments):
        return sum(k["launches"] for k in self.json("kernels", *arguments)["kernels"])

    def test_kernel(self):
        self.assertEqual(self.launches("--kernel", "axpy"), 9)
        self.assertEqual(self.launches("--kernel", "/^void at::.*fill</"), 12)
        self.assertEqual(self.launches("--kernel", "nothing"), 0)

    def test_region(self):
        for pattern in ("1", "Net", "model:*"):
            self.assertEqual(self.launches("--region", pattern), 6, pattern)
        self.assertEqual(self.launches("--region", "2"), 0)
        self.assertEqual(len(self.json("graphs", "--region", "Net")["graphs"]), 1)

    def test_stream(self):
        self.assertEqual(self.json("--stream", "0x5000")["launches"], 2)
        self.assertEqual(self.json("--stream", "default")["launches"], 5)

    def test_line(self):
        for line in ("linear.py:125", "nn/linear.py", "train.py:12", "/home/user/train.py:12"):
            self.assertEqual(self.json("--line", line)["launches"], 6, line)
        for line in ("linear.py:126", "inear.py:125", "other.py"):
            self.assertEqual(self.json("--line", line)["launches"], 0, line)

    def test_graph_nodes(self):
        self.assertEqual([n["index"] for n in self.json("graph", "1", "--stream", "0x5000")["nodes"]], [1])
        self.assertEqual(len(self.json("graph", "1", "--kernel", "axpy")["nodes"]), 2)


class Formats(TraceTest):
    VIEWS = (["summary"], ["regions"], ["regions", "--calls"], ["regions", "--tree"], ["graphs"], ["kernels"],
             ["graph", "1"], ["diff", "call:1", "call:2"], ["calls"], ["threads"])

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
            (["dump", trace, "diff", "1"], "two arguments"),
            (["dump", trace, "diff", "Net#1", "Net#9"], "2 calls"),
            (["dump", trace, "--kernel", "/(/"], "--kernel"),
            (["dump", trace, "--stream", "x"], "--stream"),
            (["dump", trace, "--format", "xml"], "--format"),
            (["dump", trace, "--format", "dot"], "dot"),
            (["dump", trace, "--limit", "-1"], "--limit"),
            (["dump", trace, "-o", "/nonexistent/x"], "/nonexistent/x"),
            (["nonsense"], ""),
            ([], ""),
        ):
            result = grape(*arguments)
            self.assertEqual(result.returncode, 2, (arguments, result.stderr))
            self.assertIn(text, result.stderr + result.stdout, arguments)

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

    def test_help_and_version(self):
        self.assertRegex(grape("--version").stdout, r"^grape \d+\.\d+\.\d+ \(trace format \d+\.\d+\)\n$")
        for command in ("run", "dump", "doctor"):
            result = grape(command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("Examples:", result.stdout)
            self.assertIn("Exit status", result.stdout)


class MovedStreams(unittest.TestCase):
    """One forward of a real model, five times with other addresses: the same kernels, and pointers that moved."""

    def check(self, name, nodes):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "moved.grape"
            subprocess.run([CONVERT, STREAMS / f"{name}-moved-5x.bin.gz", trace,
                            STREAMS / f"{name}-moved-5x.blocks.json"], check=True, stdout=subprocess.DEVNULL)
            (graph,) = json.loads(grape("dump", trace, "graphs", "--json").stdout)["graphs"]
            self.assertEqual((graph["calls"], graph["nodes"]), (5, nodes))
            for call in range(2, 6):
                result = grape("dump", trace, "diff", "call:1", f"call:{call}", "--json")
                self.assertEqual(result.returncode, 1)
                counts = json.loads(result.stdout)["counts"]
                self.assertGreater(counts["moved_pointer"], 100)
                for change in ("only_in_a", "only_in_b", "dimensions", "stream", "edges", "attributes", "pointer"):
                    self.assertEqual(counts[change], 0, change)
                # What is no pointer differs little: padding, and the counter of the random numbers.
                self.assertLess(counts["plain"], 0.02 * json.loads(result.stdout)["words"])

    def test_gpt2(self):
        self.check("gpt2", 283)

    def test_bert(self):
        self.check("bert", 178)

    def test_resnet(self):
        self.check("resnet", 228)


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def run_(self, *arguments, **options):
        return grape("run", "--library", LIBRARY, *arguments, **options)

    def script(self, name, text, mode=0o755):
        path = self.root / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def test_environment(self):
        result = self.run_("-o", "x-%p.grape", "-f", "--stacks", "leaf", "--", "env",
                           environment={"LD_PRELOAD": LIBRARY})
        variables = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        library = os.path.realpath(LIBRARY)
        self.assertEqual(variables["LD_PRELOAD"], f"{library}:{LIBRARY}")
        self.assertEqual(variables["GRAPE_TRACE"], "x-%p.grape")
        self.assertEqual(variables["GRAPE_TRACE_REPLACE"], "1")
        self.assertEqual(variables["GRAPE_STACKS"], "leaf")
        self.assertEqual(variables["GRAPE_LOG"], "info")
        self.assertNotIn("GRAPE_MODE", variables)

    def test_quiet_and_own_log_level(self):
        self.assertNotIn("GRAPE_LOG", self.run_("-q", "env").stdout)
        self.assertIn("GRAPE_LOG=error", self.run_("env", environment={"GRAPE_LOG": "error"}).stdout)

    def test_program_options_are_its_own(self):
        self.assertEqual(self.run_("echo", "-q", "--help").stdout, "-q --help\n")

    def test_same_process(self):
        with subprocess.Popen([TOOL, "run", "--library", LIBRARY, "--", "sh", "-c", "echo $$"], env=CLEAN,
                              stdout=subprocess.PIPE) as process:
            self.assertEqual(int(process.stdout.read()), process.pid)

    def test_status(self):
        self.assertEqual(self.run_("--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.run_("--", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_not_found_and_not_executable(self):
        self.assertEqual(self.run_("no-such-program-here").returncode, 127)
        self.assertEqual(self.run_("/no/such/program").returncode, 127)
        self.assertEqual(self.run_(self.script("plain", "#!/bin/sh\n", 0o644)).returncode, 126)
        self.assertEqual(self.run_(self.root).returncode, 126)
        self.assertEqual(self.run_().returncode, 2)

    def not_loaded(self, program, why):
        result = self.run_("--", program)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("not loaded", result.stderr)
        self.assertIn(why, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_static_program(self):
        self.not_loaded(STATIC, "static")

    def test_script_of_a_static_interpreter(self):
        self.not_loaded(self.script("script", f"#!{STATIC}\n"), "static")

    def test_scripts_run(self):
        self.assertEqual(self.run_(self.script("a", "#!/bin/sh\necho yes\n")).stdout, "yes\n")
        self.assertEqual(self.run_(self.script("b", "#!/usr/bin/env -S sh -e\necho yes\n")).stdout, "yes\n")

    def elf_with(self, **changes):
        data = bytearray(Path(os.path.realpath(shutil.which("true"))).read_bytes())
        for at, value in changes.values():
            data[at] = value
        path = self.root / "changed"
        path.write_bytes(data)
        path.chmod(0o755)
        return path

    def test_wrong_architecture(self):
        self.not_loaded(self.elf_with(machine=(18, 183)), "another machine")
        self.not_loaded(self.elf_with(bits=(4, 1)), "32-bit")

    def test_setuid(self):
        program = next((p for p in ("/bin/su", "/usr/bin/passwd", "/bin/mount") if os.path.exists(p)
                        and os.stat(p).st_mode & stat.S_ISUID), None)
        if os.getuid() == 0:
            program = self.root / "setuid"
            shutil.copy(shutil.which("true"), program)
            os.chown(program, 65534, 65534)
            program.chmod(0o4755)
        if program is None:
            self.skipTest("no setuid program here")
        self.not_loaded(program, "setuid")

    def test_library(self):
        for library, why in ((self.root / "missing.so", "No such file"), (self.script("text.so", "x"), "not a shared"),
                             (self.elf_with(machine=(18, 183)), "another machine")):
            result = grape("run", "--library", library, "true")
            self.assertEqual(result.returncode, 2)
            self.assertIn("not loaded", result.stderr)
            self.assertIn(why, result.stderr)
        spaced = self.root / "a b.so"
        shutil.copy(LIBRARY, spaced)
        self.assertIn("space", grape("run", "--library", spaced, "true").stderr)

    def test_a_library_that_does_not_load(self):
        broken = self.root / "broken.so"
        data = bytearray(Path(LIBRARY).read_bytes())
        # Program headers beyond the end of the file: the loader passes it over.
        data[32:40] = (1 << 40).to_bytes(8, "little")
        broken.write_bytes(data)
        result = grape("run", "--library", broken, "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("not loaded", result.stderr)

    def test_bad_variables(self):
        for variable, value, text in (("GRAPE_MODE", "obsrve", "did you mean observe?"),
                                      ("GRAPE_MOED", "off", "did you mean GRAPE_MODE?"),
                                      ("GRAPE_STACKS", "-1", "GRAPE_STACKS"),
                                      ("GRAPE_TRACE", "a\x1b[31m", "GRAPE_TRACE"),
                                      ("GRAPE_TRACE", "x" * 100_000, "GRAPE_TRACE"),
                                      ("GRAPE_REGIONS", "nonsense", "GRAPE_REGIONS")):
            result = self.run_("true", environment={variable: value})
            self.assertEqual(result.returncode, 2, variable)
            self.assertIn(text, result.stderr)
            self.assertNotIn("\x1b", result.stderr)

    def test_bad_options(self):
        for arguments in (["--mode", "x"], ["--stacks", "x"], ["--regions", "x"], ["--nonsense"]):
            self.assertEqual(self.run_(*arguments, "--", "true").returncode, 2, arguments)
        self.assertEqual(self.run_("-o").returncode, 2)


class Doctor(unittest.TestCase):
    def test_no_library(self):
        result = grape("doctor", "--library", "/no/such.so", "--json")
        self.assertEqual(result.returncode, 1)
        report = json.loads(result.stdout)
        self.assertFalse(report["works"])
        self.assertEqual(report["checks"][0]["state"], "FAIL")

    def test_library_that_records_nothing(self):
        result = grape("doctor", "--library", LIBRARY, "--python", sys.executable, "--json", timeout=300)
        self.assertEqual(result.returncode, 1, "an empty library records nothing")
        checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
        self.assertEqual(checks["library"]["state"], "ok")
        self.assertIn("driver", checks)
        self.assertIn("Python", checks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
