#!/usr/bin/env python3
"""Runs `grape dump` as a user would: what the views show of small traces and of real models' streams, and filters."""

import csv
import io
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli import CONVERT, STREAMS, TraceTest, grape


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

    def test_summary_of_a_part(self):
        whole = self.json("summary")
        part = self.json("summary", "--kernel", whole["top_kernels"][0]["name"][:12])
        self.assertLess(part["launches"], whole["launches"])
        for key in ("regions", "region_calls", "raised_region_calls"):
            self.assertEqual(part[key], whole[key], key)
        self.assertEqual(sum(region["launches"] for region in part["top_regions"]) + part["launches_outside_regions"],
                         part["launches"])  # fmt: skip

    def test_ranges(self):
        """What was allocated in one range is not taken for what lies there in the next."""
        self.assertNotIn("ranges", self.json())
        summary = self.json(trace="ranges")
        self.assertEqual(summary["ranges"]["count"], 2)
        self.assertGreater(summary["ranges"]["seconds"], 0)
        self.assertLess(summary["ranges"]["seconds"], summary["seconds"])
        self.assertEqual(summary["blocks"]["peak_bytes"], 1024 + 64)
        self.assertEqual(self.json("summary", "--kernel", "fill", trace="ranges")["ranges"]["count"], 2)
        self.assertRegex(self.dump(trace="ranges"), r"\nranges +2 from cuProfilerStart to cuProfilerStop, 0\.\d+ s")
        first, second = (self.json("graph", number, trace="ranges")["nodes"][0] for number in (1, 2))
        self.assertEqual(first["parameters"][0]["block"]["ordinal"], 1)
        self.assertEqual(second["parameters"][0]["value"], "0x10000")
        self.assertNotIn("block", second["parameters"][0])

    def test_summary_counts_what_kernels_does(self):
        for arguments, direct, in_graphs, graphs, graph_launches in (
                (["--kernel", "axpy"], 5, 4, 1, 4), (["--kernel", "fill"], 2, 10, 2, 6),
                (["--kernel", "none"], 0, 0, 0, 0),
                (["--stream", "default"], 5, 14, 2, 6), (["--stream", "0x5000"], 2, 0, 0, 0),
                (["--region", "Net"], 6, 0, 0, 0), (["--line", "train.py"], 6, 0, 0, 0)):
            with self.subTest(arguments=arguments):
                summary = self.json("summary", *arguments)
                self.assertEqual((summary["launches"], summary["launches_in_graphs"]), (direct, in_graphs))
                self.assertEqual((summary["application_graphs"], summary["graph_launches"]), (graphs, graph_launches))
                kernels = self.json("kernels", *arguments)["kernels"]
                self.assertEqual(sum(kernel["launches"] for kernel in kernels), direct + in_graphs)
                self.assertEqual({kernel["launches"] for kernel in summary["top_kernels"]},
                                 {kernel["launches"] for kernel in kernels if kernel["launches"]})

    def test_live_blocks_of_a_part(self):
        for arguments in (["--region", "Net"], ["--line", "train.py"]):
            blocks = self.json("summary", *arguments)["blocks"]
            self.assertEqual((blocks["allocated"], blocks["freed"], blocks["peak_bytes"]), (2, 2, 4096), arguments)
            events = json.loads(self.dump("--format", "chrome", *arguments))["traceEvents"]
            self.assertEqual([e["args"]["bytes"] for e in events if e["ph"] == "C"], [4096, 0, 4096, 0], arguments)
        self.assertEqual(self.json("summary", "--kernel", "axpy")["blocks"]["allocated"], 0)

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

    STACKS = ("        from user/train.py:12 in main\n"
              "        native at::native::call (libtorch.so+0x1f2)\n"
              "        native libc.so.6+0x2724a\n")

    def test_graph_stacks(self):
        text = self.dump("graph", "1", "--stacks")
        self.assertIn("      nn/linear.py:125 in Linear.forward  —  fc1\n" + self.STACKS + "#1 ", text)
        self.assertNotIn("native at", self.dump("graph", "1"))
        nodes = self.json("graph", "1")["nodes"]
        self.assertEqual(nodes[0]["native_stack"], ["at::native::call (libtorch.so+0x1f2)", "libc.so.6+0x2724a"])
        self.assertEqual(nodes[1]["native_stack"], [])
        whole = self.json("graph", "1", "--full-names")["nodes"][0]
        self.assertEqual(whole["native_stack"][0], "at::native::call() (/opt/torch/lib/libtorch.so+0x1f2)")

    def test_graph_csv(self):
        def cells(graph):
            return [(row["grid"], row["block"], row["stream"])
                    for row in csv.DictReader(io.StringIO(self.dump("graph", graph, "--csv")))]

        self.assertEqual(cells("1"), [("1x1x1", "32x1x1", "default"), ("8x1x1", "128x1x1", "0x5000"),
                                      ("1x1x1", "32x1x1", "default"), ("", "", "default"), ("", "", "default")])
        self.assertEqual(cells("2")[:2], [("2x1x1", "64x1x1", ""), ("", "", "")])

    def test_application_graph(self):
        nodes = self.json("graph", "2")["nodes"]
        self.assertEqual({n["stream"] for n in nodes}, {None})
        self.assertEqual([(n["kind"], n["after"]) for n in nodes],
                         [("kernel", []), ("memset", [0]), ("kernel", [1]), ("kernel", [1])])
        self.assertEqual(nodes[0]["parameters"][2]["block"]["ordinal"], 1)

    def test_outside_graph(self):
        # Neither the launch that failed nor the one that was captured.
        self.assertEqual(self.dump("graphs").splitlines()[-1], "1 launches stand outside of all regions: graph call:0")
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
        few = self.dump("calls", "--limit", 3).splitlines()
        self.assertEqual((len(few), few[-1]), (5, "… and more"))
        self.assertNotIn("more", self.dump("calls", "--limit", 100000))
        copies = [c for c in calls if c["name"] == "cuMemcpyHtoDAsync_v2"]
        self.assertEqual([(c["thread"], c["detail"]) for c in copies],
                         [(2, "dst=0x10000 src=0x7fff1000 bytes=512 stream=0x0")])

    def test_call_stacks(self):
        self.assertIn("  at nn/linear.py:125 in Linear.forward\n" + self.STACKS, self.dump("calls", "--stacks"))
        calls = [c for c in self.json("calls", "--stacks")["calls"] if c["native_stack"]]
        self.assertEqual(len(calls), 2)
        self.assertEqual(calls[0]["stack"], ["nn/linear.py:125 in Linear.forward", "user/train.py:12 in main"])
        self.assertEqual(calls[0]["native_stack"][1], "libc.so.6+0x2724a")
        self.assertNotIn("stack", self.json("calls")["calls"][0])

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
        for line in ("linear.py:126", "inear.py:125", "other.py", "train.py:0", "with:colon/train.py"):
            self.assertEqual(self.json("--line", line)["launches"], 0, line)

    def test_graph_nodes(self):
        self.assertEqual([n["index"] for n in self.json("graph", "1", "--stream", "0x5000")["nodes"]], [1])
        self.assertEqual(len(self.json("graph", "1", "--kernel", "axpy")["nodes"]), 2)
        text = self.dump("graph", "1", "--kernel", "axpy", "--limit", 1)
        self.assertEqual(text.splitlines()[-1], "… and 1 more nodes")

    def test_between_graph_nodes(self):
        waits = ["host read: cuMemcpyDtoHAsync_v2", "host waits: cuStreamSynchronize"]
        block = "allocates block 2 of 4096 B at 0x20000"
        for arguments, shown in (([], [block, *waits]), (["--kernel", "axpy"], []), (["--stream", "0x5000"], []),
                                 (["--stream", "default"], waits), (["--line", "train.py"], [block])):
            with self.subTest(arguments=arguments):
                events = self.json("graph", "1", *arguments)["host_events"]
                self.assertEqual([event["text"] for event in events], shown)
                text = self.dump("graph", "1", "--blocks", *arguments)
                self.assertEqual([line[9:] for line in text.splitlines() if line.startswith("      -- ")], shown)


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


if __name__ == "__main__":
    unittest.main(verbosity=2)
