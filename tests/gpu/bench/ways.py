"""Ways of calling models, each run plain and under GRAPE_MODE=replay: the time of a call or a token, and whether the outputs
have the same bits. The frame of benchmarks whose rows are such ways; processes of both kinds run one after the other, in
turns, and all ways of a benchmark in each of them."""

import argparse
import hashlib
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import paths  # noqa: F401
from gpu_machine import Measurement, add_options, environment, json_line, regions_of, replaying, run, show, table, with_build

WARM, MEASURED = 6, 7


@dataclass
class Way:
    """`make(torch)` gives what is measured: a call of it does `units` calls or tokens, and returns a tensor."""

    name: str
    make: Callable[[Any], Callable[[], Any]]
    units: int


def _ms(part: Callable[[], Any], units: int, torch: Any) -> float:
    for _ in range(WARM):
        part()
    times = []
    for _ in range(MEASURED):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        part()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3 / units)
    return statistics.median(times)


def _program(ways: list[Way]) -> None:
    import torch

    result: dict[str, Any] = {}
    for way in ways:
        torch.manual_seed(0)
        part = way.make(torch)
        took = _ms(part, way.units, torch)
        digest = hashlib.sha256(part().detach().float().cpu().numpy().tobytes()).hexdigest()
        result[way.name] = {"ms": took, "digest": digest}
    print(json.dumps(result))


def _compare(measurement: Measurement, script: Path) -> int:
    command = [measurement.options.python, str(script.resolve()), "--program"]
    report = measurement.scratch / "report.json"
    settings = {"plain": environment(), "replay": replaying(measurement.build, report)}
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in settings}
    for _ in range(measurement.options.processes):
        for kind, env in settings.items():
            done = run(command, env, max(measurement.left(), 1))
            answer = json_line(done.stdout)
            if done.status != 0 or answer is None:
                print(f"{kind}: exit status {done.status}\n{done.stderr[-2000:]}")
                return 1
            found[kind].append(answer)
    rows, same = [["ms a call", "plain", "replay", "gain", "outputs"]], True
    for name in found["plain"][0]:
        plain, replay = (statistics.median(one[name]["ms"] for one in found[kind]) for kind in settings)
        equal = len({one[name]["digest"] for kind in settings for one in found[kind]}) == 1
        same = same and equal
        rows.append([name, show(plain), show(replay), show(plain / replay, 1), "equal" if equal else "differ"])
    measurement.results = {**found, "regions": regions_of(report)}
    measurement.write(script.stem, table(rows) + "\n")
    print(table(rows))
    return 0 if same else 1


def main(ways: list[Way], script: str, doc: str) -> int:
    """Measures; the files of --out have the script's name. Exit status: 0 measured (or no GPU), 1 outputs differ or a
    process did not end well, 2 without a build."""
    if sys.argv[1:] == ["--program"]:
        _program(ways)
        return 0
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, 400)
    parser.add_argument("--processes", type=int, default=2, help="of each kind, in turns")
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: _compare(Measurement(options, build, scratch), Path(script)))
