#!/usr/bin/env python3
"""What GRAPE_CACHE brings to a process that begins: GPT-2 answering prompts, without Grape, with an empty cache, with a full one.

warm_start.py [--prompts 6] [--tokens 64] [--warm 2]

demo_program.py runs in processes of its own, one after the other: plain, then with GRAPE_CACHE naming a folder that is empty,
then again --warm times. All must give the same tokens. Strings hash otherwise in each process, as they do for users.

Exit status: 0 measured (or no GPU), 1 a run failed, tokens differ, or a full cache was of no use; 2 usage.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Optional

from paths import HERE
from gpu_machine import Measurement, add_options, environment, preloaded, run, table, with_build

TIMES = re.compile(r"ms a token, answer by answer: ([\d. ]+)")
TOKENS = re.compile(r"sha256 of all tokens: (\w+)")


class WarmStart(Measurement):
    def measure(self, kind: str, env: dict[str, str], report: Path) -> Optional[dict[str, Any]]:
        command = [self.options.python, str(HERE.parent / "demo_program.py")]
        command += ["--prompts", str(self.options.prompts), "--tokens", str(self.options.tokens)]
        done = run(command, env, max(30.0, self.left()))
        times, tokens = TIMES.search(done.stdout), TOKENS.search(done.stdout)
        if done.status != 0 or times is None or tokens is None:
            self.failures.append(f"{kind}: status {done.status}\n{done.stderr.strip()[-2000:]}")
            return None
        if done.stderr.strip():
            print(f"{kind}: {done.stderr.strip()[-2000:]}")
        found: dict[str, Any] = {
            "ms_a_token": [float(text) for text in times[1].split()],
            "tokens": tokens[1],
            "seconds": done.seconds,
        }
        if report.exists():
            whole = json.loads(report.read_text())
            found["cache"] = whole.get("cache", {})
            found["regions"] = [{k: r[k] for k in ("region", "calls", "replayed", "observed")} for r in whole["regions"][:3]]
        return found

    def run(self) -> int:
        cache = self.scratch / "cache"
        for kind in ("plain", "empty cache", *(f"full cache {i + 1}" for i in range(self.options.warm))):
            report = self.scratch / f"{kind.replace(' ', '_')}.json"
            changes = {"PYTHONHASHSEED": "random"}
            grape = {"GRAPE_MODE": "replay", "GRAPE_CACHE": str(cache), "GRAPE_REPORT": str(report)}
            env = environment(**changes) if kind == "plain" else preloaded(self.build, **changes, **grape)
            found = self.measure(kind, env, report)
            if found is not None:
                self.results[kind] = found
        self.check()
        sizes = [path.stat().st_size for path in cache.glob("*.grape-cache")] if cache.exists() else []
        text = "\n".join([self.summary(), f"cache: {sum(sizes)} bytes in {len(sizes)} files", *self.failures]) + "\n"
        self.write("warm-start", text)
        print(text, end="")
        return 1 if self.failures else 0

    def check(self) -> None:
        tokens = {kind: found["tokens"] for kind, found in self.results.items()}
        if len(set(tokens.values())) > 1:
            self.failures.append(f"other tokens: {tokens}")
        for kind, found in self.results.items():
            if kind.startswith("full") and found.get("cache", {}).get("used", 0) == 0:
                self.failures.append(f"{kind}: nothing of the cache was of use: {found.get('cache')}")

    def summary(self) -> str:
        heading = ["", "process s", "programs", "used", "added", *(f"answer {i + 1}" for i in range(self.options.prompts))]
        rows = [heading]
        for kind, found in self.results.items():
            told = found.get("cache", {})
            counts = [str(told.get(name, "")) for name in ("programs", "used", "added")]
            rows.append([kind, f"{found['seconds']:.1f}", *counts, *(f"{each:.2f}" for each in found["ms_a_token"])])
        return table(rows) + "\nanswers: ms a token"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--warm", type=int, default=2, help="processes that have a full cache (default: %(default)s)")
    add_options(parser, 300)
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: WarmStart(options, build, Path(scratch)).run())


if __name__ == "__main__":
    sys.exit(main())
