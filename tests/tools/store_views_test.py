#!/usr/bin/env python3
"""Runs `grape dump` on caches as a user would: what the views show, the formats, wrong usage, damaged files."""

import csv
import io
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli import MAKE_TRACE, grape

MAKE_CACHE = os.environ["GRAPE_TEST_MAKE_CACHE"]
VIEWS = (["summary"], ["programs"], ["families"], ["program", "2"], ["diff", "1", "2"])


class CacheTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        for kind in ("sample", "hostile", "empty", "damaged"):
            subprocess.run([MAKE_CACHE, kind, cls.root / kind], check=True)
        subprocess.run([MAKE_TRACE, "sample", cls.root / "trace"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def dump(self, *arguments, cache="sample", status=0):
        result = grape("dump", self.root / cache, *arguments)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        return result.stdout if status < 2 else result.stderr

    def json(self, *arguments, cache="sample", status=0):
        return json.loads(self.dump(*arguments, "--json", cache=cache, status=status))

    def diff(self, a, b, *arguments):
        """The diff's JSON, and its rows by what changed; each change once."""
        diff = self.json("diff", a, b, *arguments, status=0 if a == b else 1)
        rows = {row["change"]: row for row in diff["differences"]}
        self.assertEqual(len(rows), len(diff["differences"]))
        return diff, rows


class Views(CacheTest):
    def test_summary(self):
        summary = self.json()
        expected = {"view": "summary", "environment": ["python=3.12.1", "driver=13000"], "programs": 7, "unique": 6,
                    "families": 2, "bases": 3, "dictionaries": 0, "regions": 2, "padding_words": 1,
                    "padding_kernels": 1, "places": 2, "last_used": 1_700_000_007}
        self.assertEqual({key: summary[key] for key in expected}, expected)
        self.assertEqual(summary["top_regions"],
                         [{"name": "model:Net", "programs": 5, "last_used": 1_700_000_005},
                          {"name": "model:Head", "programs": 2, "last_used": 1_700_000_007}])
        self.assertEqual(summary["file_bytes"], (self.root / "sample").stat().st_size)
        sizes = [summary[f"{size}_bytes"] for size in ("compressed", "deduplicated", "raw", "resident")]
        self.assertEqual(sizes, sorted(sizes))
        self.assertGreater(sizes[0], 0)

    def test_summary_text(self):
        text = self.dump()
        for line in ("environment       python=3.12.1\n                  driver=13000\n",
                     "programs          7, 6 of them unique\n",
                     "families          2, with 3 bases and 0 dictionaries\n",
                     "padding           1 words of 1 kernels\n",
                     "last used         2023-11-14 22:13:27 UTC\n",
                     "         5  2023-11-14 22:13:25 UTC  model:Net\n"):
            self.assertIn(line, text)
        self.assertIn("environment       not known\n", self.dump(cache="empty"))

    def test_programs(self):
        programs = self.json("programs")["programs"]
        self.assertEqual([p["id"] for p in programs], [1, 2, 3, 4, 5, 6, 7])
        self.assertEqual([p["family"] for p in programs], [1, 1, 2, 1, 1, 1, 1])
        self.assertEqual([(p["nodes"], p["words"]) for p in programs[:3]], [(3, 8), (3, 8), (4, 14)])
        self.assertEqual((programs[5]["region"], programs[5]["last_used"], programs[5]["signature"]),
                         ("model:Head", 1_700_000_006, "abcdef0000000000" + "0000000000000006"))
        self.assertEqual(sum(p["raw_bytes"] for p in programs), self.json()["raw_bytes"])
        lines = self.dump("programs").splitlines()
        self.assertEqual(lines[1].split(), ["1", "1", "3", "8", str(programs[0]["raw_bytes"]), "unknown", "abcdef00",
                                            "00000000", "model:Net"])
        self.assertEqual(self.dump("programs", "--limit", 2).splitlines()[-1], "… and 5 more")

    def test_program_filters(self):
        def ids(*arguments):
            return [p["id"] for p in self.json("programs", *arguments)["programs"]]

        self.assertEqual(ids("--region", "Head"), [6, 7])
        self.assertEqual(ids("--region", "*:Net"), [1, 2, 3, 4, 5])
        self.assertEqual(ids("--region", "Net*"), [])
        self.assertEqual(len(ids("--kernel", "fill")), 7)
        self.assertEqual(ids("--kernel", "/^fill/"), [])
        self.assertEqual(ids("--kernel", "/^axpy/", "--region", "Head"), [6, 7])

    def test_families(self):
        families = self.json("families")["families"]
        keys = ("id", "example", "programs", "unique", "bases", "region")
        self.assertEqual([tuple(f[k] for k in keys) for f in families],
                         [(1, 1, 6, 5, 2, "model:Net"), (2, 3, 1, 1, 1, "model:Net")])
        for family in families:
            self.assertGreater(family["raw_bytes"], family["deduplicated_bytes"])
            self.assertGreater(family["deduplicated_bytes"], family["compressed_bytes"])

    def test_program(self):
        program = self.json("program", 3)
        self.assertEqual((program["id"], program["region"], program["edges"]), (3, "model:Net", 3))
        self.assertEqual((program["statics"], program["inputs"], program["temps"], program["outputs"]),
                         (1, [1024], [512, 512], [2048]))
        nodes = program["nodes"]
        self.assertEqual([(n["kind"], n["after"]) for n in nodes],
                         [("kernel", []), ("memset", [0]), ("kernel", [1]), ("copy from host", [2])])
        self.assertEqual((nodes[0]["name"], nodes[0]["mangled"], nodes[0]["line"], nodes[0]["block"]),
                         ("axpy(int, float, float const*, float*)", "_Z4axpyifPKfPf", "net.py:10 in Net.forward",
                          [32, 1, 1]))
        self.assertEqual((nodes[1]["bytes"], nodes[3]["bytes"], nodes[3]["line"]), (256, 16, ""))
        self.assertEqual(nodes[2]["attributes"], ["cluster 2x1x1"])
        words = [(w["place"], w["bytes"], w["role"], w.get("value", w.get("offset"))) for w in nodes[0]["parameters"]]
        self.assertEqual(words, [("p0+0x0", 4, "plain", "0x10"), ("p1+0x0", 4, "plain", "0x40000000"),
                                 ("p2+0x0", 8, "input", 64), ("p3+0x0", 8, "temp", 128),
                                 ("p4+0x0", 4, "plain", "0x5"), ("between parameters, byte 0x1c", 4, "plain", "0x0")])
        self.assertEqual([n["index"] for n in self.json("program", 3, "--kernel", "fill")["nodes"]], [2])

    def test_program_text(self):
        text = self.dump("program", 3, "--params")
        for line in ("program 3 of region model:Net\n4 nodes, 3 edges;",
                     "#0    axpy  grid 1x1x1 block 32x1x1  stream 0  after nothing\n      net.py:10 in Net.forward\n",
                     "      p2+0x0             input #0 + 0x40 of 1024 B\n",
                     "#1    memset  256 B  stream 0\n",
                     "      width              0x0000000000000100 (256)\n",
                     "#2    at::native::fill<float>  grid 8x1x1 block 32x1x1  stream 0  [cluster 2x1x1]\n",
                     "      p0+0x0             static #0 + 0x0 of 4096 B at 0x7f0000000000\n"):
            self.assertIn(line, text)
        short = self.dump("program", 3, "--limit", 1)
        self.assertNotIn("p2+0x0", short)
        self.assertEqual(short.splitlines()[-1], "… and 3 more nodes")
        self.assertIn("void at::native::fill<float>(float*)", self.dump("program", 3, "--full-names"))


class Diff(CacheTest):
    def test_launch_and_number(self):
        diff, rows = self.diff(1, 2)
        self.assertEqual(diff["verdict"], {
            "difference": "launch_shape",
            "text": "kernel at::native::fill<float> (operation 1) was launched with a grid of 8x1x1 and of 9x1x1"})
        changes = ("plain", "role", "dimensions", "attributes")
        self.assertEqual(set(rows), set(changes))
        self.assertEqual({k: v for k, v in diff["counts"].items() if v}, dict.fromkeys(changes, 1))
        plain = rows["plain"]
        self.assertEqual((plain["node_a"], plain["node_b"], plain["kind"], plain["name"], plain["line"]),
                         (0, 0, "kernel", "axpy", "net.py:10 in Net.forward"))
        self.assertEqual((plain["place"], plain["parameter"], plain["at"], plain["bytes"]), ("p1+0x0", 1, 4, 4))
        self.assertEqual((plain["a"], plain["b"]), ({"role": "plain", "value": "0x40000000"},
                                                    {"role": "plain", "value": "0x40400000"}))
        self.assertIn("grid 9x1x1", rows["dimensions"]["b"])
        self.assertEqual((rows["attributes"]["a"], rows["attributes"]["b"]), ("cluster 2x1x1", "cluster 4x1x1"))
        self.assertEqual((rows["role"]["a"]["role"], rows["role"]["b"]["role"]), ("input", "static"))

    def test_text(self):
        text = self.dump("diff", 1, 2, status=1)
        for line in ("A: program 1, region model:Net, 3 nodes, 8 words\n",
                     "signature differs: abcdef00000000000000000000000001 and abcdef00000000000000000000000002\n",
                     "a grid of 8x1x1 and of 9x1x1\n3 nodes aligned, 10 words compared\n",
                     "\n#0 axpy  at net.py:10 in Net.forward\n"
                     "  p1+0x0                   0x40000000\n    plain                  0x40400000\n"):
            self.assertIn(line, text)
        self.assertNotIn("code differs", text)
        self.assertNotIn("regions", text)
        self.assertEqual(self.dump("diff", 1, 2, "--limit", 1, status=1).splitlines()[-1], "… and 3 more")
        self.assertNotIn("p1+0x0", self.dump("diff", 1, 2, "--kernel", "fill", status=1))

    def test_a_node_more(self):
        diff, rows = self.diff(1, 3)
        self.assertEqual(diff["verdict"]["difference"], "node_count")
        self.assertEqual((diff["aligned"], set(rows)), (3, {"only_in_b"}))
        self.assertEqual((rows["only_in_b"]["node_a"], rows["only_in_b"]["node_b"], rows["only_in_b"]["kind"]),
                         (None, 1, "memset"))
        self.assertEqual(set(self.diff(3, 1)[1]), {"only_in_a"})
        # Numbers that the nodes behind it have in each.
        rows = self.diff(3, 2)[1]
        self.assertEqual((rows["dimensions"]["node_a"], rows["dimensions"]["node_b"]), (2, 1))
        self.assertIn("\n#2/#1 at::native::fill<float>", self.dump("diff", 3, 2, status=1))

    def test_another_block(self):
        diff, rows = self.diff(1, 4)
        self.assertEqual((diff["verdict"]["difference"], set(rows)), ("pointer", {"moved_pointer"}))
        moved = rows["moved_pointer"]
        self.assertEqual((moved["a"], moved["b"]), ({"role": "temp", "block": 0, "offset": 128, "block_bytes": 512},
                                                    {"role": "temp", "block": 1, "offset": 128, "block_bytes": 512}))
        self.assertEqual(self.json("diff", 1, 4, "--ignore-moved")["differences"], [])

    def test_padding_and_another_process(self):
        diff, rows = self.diff(1, 5)
        self.assertEqual((diff["verdict"]["difference"], set(rows)), ("none", {"padding", "moved_static"}))
        self.assertIn("; on 1 static blocks at other addresses", diff["verdict"]["text"])
        static = rows["moved_static"]
        self.assertEqual((static["a"]["address"], static["b"]["address"]), ("0x7f0000000000", "0x7f0000001000"))
        self.assertEqual([row["change"] for row in self.json("diff", 1, 5, "--ignore-moved", status=1)["differences"]],
                         ["padding"])
        self.assertEqual((rows["padding"]["parameter"], rows["padding"]["at"]), (None, 28))

    def test_everything_else(self):
        diff, rows = self.diff(1, 6)
        self.assertEqual(diff["verdict"]["difference"], "function")
        self.assertIn("is another one of the same name", diff["verdict"]["text"])
        self.assertEqual({change: (row["node_a"], row["place"], row["a"], row["b"]) for change, row in rows.items()
                          if change != "pointer"},
                         {"kernel": (1, "kernel", "0000000000000021", "0000000000000031"),
                          "stream": (1, "stream", "0", "1"),
                          "edges": (2, "edges", "#1", "#0"),
                          "host_data": (2, "data, byte 0x0", "0101010101010101…", "0901010101010101…"),
                          "blocks": (None, "temp #1", "512 B, from before #0 to before #2",
                                     "1024 B, from before #0 to before #2"),
                          "events": (None, "waits for events", "none", "0xe1"),
                          "random": (None, "generator's offset moves by", "0", "4")})
        self.assertEqual((rows["pointer"]["place"], rows["pointer"]["a"]["offset"], rows["pointer"]["b"]["offset"]),
                         ("p3+0x0", 128, 256))
        self.assertEqual((diff["same_region"], diff["same_signature"], diff["same_code"]), (False, False, True))
        text = self.dump("diff", 1, 6, status=1)
        self.assertIn("they are of different regions\n", text)
        self.assertIn("\nof the whole program\n  temp #1  ", text)

    def test_the_same(self):
        self.assertEqual(self.diff(2, 2)[1], {})
        diff = self.json("diff", 1, 7)
        self.assertEqual((diff["same"], diff["same_signature"], diff["differences"]), (True, False, []))
        self.assertIn("\nthe programs are the same\n", self.dump("diff", 1, 7))


class Formats(CacheTest):
    def test_csv_parses(self):
        for cache in ("sample", "hostile"):
            for view in VIEWS:
                text = self.dump(*view, "--csv", cache=cache, status=1 if view[0] == "diff" else 0)
                rows = list(csv.reader(io.StringIO(text)))
                self.assertGreater(len(rows), 1, view)
                self.assertEqual({len(row) for row in rows}, {len(rows[0])}, view)
                for row in rows:
                    for field in row:
                        self.assertFalse(re.match(r"[=+@]|-[^0-9]", field), field)

    def test_json_parses(self):
        for view in VIEWS:
            self.assertEqual(self.json(*view, cache="hostile", status=1 if view[0] == "diff" else 0)["view"], view[0])

    def test_hostile_text(self):
        for view in VIEWS:
            text = self.dump(*view, cache="hostile", status=1 if view[0] == "diff" else 0)
            self.assertFalse(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), view)

    def test_empty(self):
        self.assertEqual(self.json(cache="empty")["programs"], 0)
        for view in ("programs", "families"):
            self.assertEqual(len(self.dump(view, cache="empty").splitlines()), 1)

    def test_output_file(self):
        path = self.root / "out.json"
        self.assertEqual(self.dump("programs", "--json", "-o", path), "")
        self.assertEqual(json.loads(path.read_text())["view"], "programs")


class Trouble(CacheTest):
    def test_usage(self):
        for arguments, text in (
                (["kernels"], "sample is a cache, which has no view kernels; it has summary, programs, families, "
                              "program, diff\n"),
                (["progams"], "did you mean programs?"),
                (["program"], "the view program takes one argument, not 0"),
                (["diff", "1"], "the view diff takes two arguments, not 1"),
                (["program", "99"], "no program 99; the cache has 7"),
                (["diff", "1", "x"], "no program x"),
                (["program", "1", "--region", "Net"], "--region has no meaning here"),
                (["diff", "1", "2", "--region", "Net"], "--region has no meaning here"),
                (["--kernel", "fill"], "--kernel has no meaning here: the view summary takes no such option\n"),
                (["families", "--region", "Net"], "--region has no meaning here"),
                (["program", "1", "--stacks"], "--stacks has no meaning here: the view program takes"),
                (["programs", "--kernel", "/(/"], "--kernel /(/: "),
                (["programs", "--stream", "0"], "--stream and --line are for traces"),
                (["program", "1", "--format", "dot"], "--format dot and chrome show traces"),
                (["--format", "chrome"], "--format dot and chrome show traces")):
            self.assertIn(text, self.dump(*arguments, status=2), arguments)

    def test_views_of_the_other_kind(self):
        for view in (["programs"], ["families"], ["program", "1"]):
            self.assertIn(f"trace is a trace, which has no view {view[0]}; it has summary, regions, graphs, kernels, "
                          "graph, diff, calls, threads\n", self.dump(*view, cache="trace", status=2))
        self.assertIn("No such file", self.dump("programs", cache="missing", status=2))

    def test_versions(self):
        whole = bytearray((self.root / "sample").read_bytes())
        whole[8] = 7
        (self.root / "newer").write_bytes(whole)
        self.assertIn("newer: the store has format version 7.1; this reads versions 1.x\n",
                      self.dump(cache="newer", status=2))

    def test_cut_anywhere(self):
        whole = (self.root / "sample").read_bytes()
        for size in range(0, len(whole), max(1, len(whole) // 25)):
            (self.root / "cut").write_bytes(whole[:size])
            self.assertIn("cut: ", self.dump("programs", cache="cut", status=2), size)

    def test_a_damaged_program(self):
        self.assertEqual(self.json(cache="damaged")["programs"], 7)
        for view in (["programs"], ["program", "5"], ["diff", "1", "5"]):
            self.assertIn("damaged: program 5: the stored program is damaged\n",
                          self.dump(*view, cache="damaged", status=2))
        self.dump("program", "1", cache="damaged")

    def test_help_names_the_views(self):
        text = grape("dump", "--help").stdout
        for view in ("programs", "families", "program N"):
            self.assertRegex(text, rf"\n +{view}  ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
