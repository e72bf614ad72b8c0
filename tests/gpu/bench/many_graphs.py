#!/usr/bin/env python3
"""What many CUDA graphs take that a program made itself: as the driver keeps them, and with GRAPE_GRAPHS=virtual.

many_graphs.py [--workload gpt2|wav2vec2|gptj|compile]... [--lengths N] [--rounds 3] [--layers N] [--cudnn]
               [--memory-budget 8M] [--only plain|virtual]

For each workload (default gpt2) captured_lengths.py runs twice, each alone on the GPU, and says what it measured; see there.
--lengths is the number of graphs, by default 1000 of gpt2, 100 of wav2vec2, 64 of gptj, 20 of compile. Both must give the
same outputs where a plain run gives the same ones twice. What torch.compile made in the first run the second one finds in
its caches: it is quicker at the start, before anything is measured, and no kernel is tuned in another way.

Exit status: 0 measured (or no GPU), 1 a run failed or outputs differ, 2 usage. Memory and times are printed, not judged.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any, Optional

from paths import HERE
from gpu_machine import Measurement, add_options, environment, json_line, preloaded, run, table, with_build

WORKLOADS = ("gpt2", "wav2vec2", "gptj", "compile")
TIMES = ("in_order", "at_random", "free_running")
MEMORY = ("graphs_device", "graphs_device_used", "graphs_host", "graphs_host_used")


class ManyGraphs(Measurement):
    def measure(self, workload: str, kind: str, env: dict[str, str]) -> Optional[dict[str, Any]]:
        command = [self.options.python, str(HERE / "captured_lengths.py"), "--workload", workload]
        for name in ("lengths", "rounds", "layers"):
            value = getattr(self.options, name)
            command += [f"--{name}", str(value)] if value is not None else []
        command += ["--cudnn"] if self.options.cudnn else []
        done = run(command, env, max(30.0, self.left()))
        summary = json_line(done.stdout) if done.status == 0 else None
        if summary is None:
            self.failures.append(f"{workload}, {kind}: status {done.status}\n{done.stderr.strip()[-2000:]}")
        elif done.stderr.strip():
            print(f"{workload}, {kind}: {done.stderr.strip()[-2000:]}")
        return summary

    def environments(self, report: Path) -> dict[str, dict[str, str]]:
        caches = {f"{name}_CACHE_DIR": str(self.scratch / name.lower()) for name in ("TORCHINDUCTOR", "TRITON")}
        changes = {
            "GRAPE_MODE": "off",
            "GRAPE_GRAPHS": "virtual",
            "GRAPE_MEMORY_BUDGET": self.options.memory_budget,
            "GRAPE_REPORT": str(report),
        }
        return {"plain": environment(**caches), "virtual": preloaded(self.build, **changes, **caches)}

    def run(self) -> int:
        lines: list[str] = []
        for workload in dict.fromkeys(self.options.workload or ["gpt2"]):
            lines += self.block(workload)
            self.write("many-graphs", "\n".join(lines + self.failures) + "\n")
        print("\n".join(lines + self.failures))
        return 1 if self.failures else 0

    def block(self, workload: str) -> list[str]:
        """Measures one workload: its rows, and what they mean."""
        report = self.scratch / f"report-{workload}.json"
        results: dict[str, Any] = {}
        self.results[workload] = results
        for kind, env in self.environments(report).items():
            if self.options.only in (None, kind):
                found = self.measure(workload, kind, env)
                if found is not None:
                    results[kind] = found
        if report.exists():
            results["report"] = json.loads(report.read_text())
        lines = [self.rows(workload, results)]
        plain, virtual = results.get("plain"), results.get("virtual")
        if plain and virtual:
            for key in ("digest", "digest_random") if plain["repeats"] else ():
                if plain[key] != virtual[key]:
                    self.failures.append(f"{workload}: the outputs differ: {key}")
            if not plain["repeats"]:
                lines.append("a plain run does not repeat itself bit by bit: outputs are not compared")
            lines.append(self.ratios(plain, virtual))
        if "report" in results:
            lines.append(f"report: {json.dumps(results['report'].get('graphs', {}))}")
        return [*lines, ""]

    def rows(self, workload: str, results: dict[str, Any]) -> str:
        times = [f"{name} us" for name in TIMES]
        rows = [[workload, "device MiB", "after use", "host MiB", "after use", "capture s", *times, "outputs"]]
        for kind in ("plain", "virtual"):
            found = results.get(kind)
            if found is None:
                continue
            memory = [f"{found[key] / 2**20:.1f}" for key in MEMORY]
            times = [f"{median(found[name]):.1f}" for name in TIMES]
            rows.append([kind, *memory, f"{found['capture_seconds']:.1f}", *times, found["digest"][:12]])
        return table(rows)

    def ratios(self, plain: dict[str, Any], virtual: dict[str, Any]) -> str:
        def ratio(key: str) -> str:
            return f"{plain[key] / virtual[key]:.1f}" if virtual[key] > 0 else "more than can be told"

        times = ", ".join(f"{name} {median(virtual[name]) / median(plain[name]):.3f}" for name in TIMES)
        return (
            f"{plain['lengths']} graphs, budget {self.options.memory_budget}: device memory {ratio('graphs_device_used')} "
            f"times less, host memory {ratio('graphs_host_used')} times less; times {times} of plain"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="may be given several times; default gpt2")
    parser.add_argument("--lengths", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--cudnn", action="store_true", help="with cuDNN's attention, which gives other bits each time")
    parser.add_argument("--memory-budget", default="8M", help="GRAPE_MEMORY_BUDGET")
    parser.add_argument("--only", choices=["plain", "virtual"])
    add_options(parser, 540)
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: ManyGraphs(options, build, Path(scratch)).run())


if __name__ == "__main__":
    sys.exit(main())
