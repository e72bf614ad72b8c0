#!/usr/bin/env python3
"""What a thousand CUDA graphs take that a program captured itself: as the driver keeps them, and with GRAPE_GRAPHS=virtual.

many_graphs.py [--lengths 1000] [--rounds 3] [--layers 12] [--cudnn] [--memory-budget 8M] [--only plain|virtual]

captured_lengths.py runs twice, each alone on the GPU, and says what it measured; see there. Both must give the same
logits where a plain run gives the same ones twice.

Exit status: 0 measured (or no GPU), 1 a run failed or outputs differ, 2 usage. Memory and times are printed, not judged.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any, Optional

from gpu_machine import HERE, Measurement, add_options, environment, json_line, preloaded, run, table, with_build

TIMES = ("in_order", "at_random", "free_running")


class ManyGraphs(Measurement):
    def measure(self, kind: str, env: dict[str, str]) -> Optional[dict[str, Any]]:
        command = [self.options.python, str(HERE / "captured_lengths.py")]
        for name in ("lengths", "rounds", "layers"):
            command += [f"--{name}", str(getattr(self.options, name))]
        command += ["--cudnn"] if self.options.cudnn else []
        done = run(command, env, max(30.0, self.left()))
        summary = json_line(done.stdout) if done.status == 0 else None
        if summary is None:
            self.failures.append(f"{kind}: status {done.status}\n{done.stderr.strip()[-2000:]}")
        elif done.stderr.strip():
            print(f"{kind}: {done.stderr.strip()[-2000:]}")
        return summary

    def run(self) -> int:
        report = self.scratch / "report.json"
        changes = {
            "GRAPE_MODE": "off",
            "GRAPE_GRAPHS": "virtual",
            "GRAPE_MEMORY_BUDGET": self.options.memory_budget,
            "GRAPE_REPORT": str(report),
        }
        environments = {"plain": environment(), "virtual": preloaded(self.build, **changes)}
        wanted = [self.options.only] if self.options.only else list(environments)
        for kind in wanted:
            found = self.measure(kind, environments[kind])
            if found is not None:
                self.results[kind] = found
        if report.exists():
            self.results["report"] = json.loads(report.read_text())
        lines = [self.summary()]
        plain, virtual = self.results.get("plain"), self.results.get("virtual")
        if plain and virtual:
            for key in ("digest", "digest_random") if plain["repeats"] else ():
                if plain[key] != virtual[key]:
                    self.failures.append(f"the logits differ: {key}")
            if not plain["repeats"]:
                lines.append("a plain run does not repeat itself bit by bit: logits are not compared")
            lines.append(self.ratios(plain, virtual))
        if "report" in self.results:
            lines.append(f"report: {json.dumps(self.results['report'].get('graphs', {}))}")
        text = "\n".join(lines + self.failures) + "\n"
        self.write("many-graphs", text)
        print(text, end="")
        return 1 if self.failures else 0

    def summary(self) -> str:
        rows = [["", "device MiB", "after use", "host MiB", "after use", "capture s", *(f"{name} us" for name in TIMES), "logits"]]
        for kind in ("plain", "virtual"):
            found = self.results.get(kind)
            if found is None:
                continue
            memory = [f"{found[key] / 2**20:.1f}" for key in ("graphs_device", "graphs_device_used", "graphs_host", "graphs_host_used")]
            times = [f"{median(found[name]):.1f}" for name in TIMES]
            rows.append([kind, *memory, f"{found['capture_seconds']:.1f}", *times, found["digest"][:12]])
        return table(rows)

    def ratios(self, plain: dict[str, Any], virtual: dict[str, Any]) -> str:
        def ratio(key: str) -> str:
            return f"{plain[key] / virtual[key]:.1f}" if virtual[key] > 0 else "more than can be told"

        times = ", ".join(f"{name} {median(virtual[name]) / median(plain[name]):.3f}" for name in TIMES)
        return (
            f"{self.options.lengths} graphs, budget {self.options.memory_budget}: device memory {ratio('graphs_device_used')} "
            f"times less, host memory {ratio('graphs_host_used')} times less; times {times} of plain"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--cudnn", action="store_true", help="with cuDNN's attention, which gives other bits each time")
    parser.add_argument("--memory-budget", default="8M", help="GRAPE_MEMORY_BUDGET")
    parser.add_argument("--only", choices=["plain", "virtual"])
    add_options(parser, 540)
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: ManyGraphs(options, build, Path(scratch)).run())


if __name__ == "__main__":
    sys.exit(main())
