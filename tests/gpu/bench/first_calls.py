#!/usr/bin/env python3
"""What the first calls of a program cost under GRAPE_MODE=replay, when it observes and proves: never more than 1.05 of
what they cost without, over all workloads together.

Each workload of speed.py runs in fresh processes, --repeats plain and as many replaying ones. They set up side by side,
up to and including one call for warming up: CUDA's and cuBLAS's initialisation and the loading of kernels fall into
it, and under Grape its observation. It is not counted. Then one process after the other, alone, makes its next 20
calls, each between two synchronisations; their total is what counts. A call is what the user's script calls: the
model, or one whole `generate` of --tokens tokens.

Prints a table and writes first_calls.json and first_calls.txt to --out.
Exit status: 0 measured (or no GPU), 1 a run failed or outputs differ, 2 usage.
"""

import argparse
import statistics
import sys

import paths  # noqa: F401
from gpu_machine import Measurement, add_options, environment, replaying, table, with_build
from replay_bench import LARGE, NAMED
from replay_bench import WORKLOADS as BENCHED
from turns import Player, Turns

GENERATING = ("gpt2", "gpt2_beams", "gpt2_sample", "gptj", "t5")
WORKLOADS = tuple(name for name in BENCHED if name not in NAMED)
LIMIT = 1.05


class FirstCalls(Measurement):
    def rounds_of_one(self, workload: str) -> int:
        """What speed.py is to do in one round, so that a round is one call."""
        return self.options.tokens if workload in GENERATING else 1

    def starts(self, workload: str) -> list[tuple[str, list[str], dict[str, str]]]:
        command = self.speed(workload, self.rounds_of_one(workload), "--serve")
        starts = []
        for number in range(min(self.options.repeats, 2) if workload in LARGE else self.options.repeats):
            report = self.scratch / f"{workload}-{number}.json"
            pair = [("plain", command, environment()), ("replay", command, replaying(self.build, report))]
            # Which of the two goes first changes.
            starts += pair if number % 2 == 0 else pair[::-1]
        return starts

    def calls(self, turns: Turns, player: Player, workload: str) -> None:
        for _ in range(self.options.calls):
            taken = turns.turn(player)
            if taken is None:
                return
            player.times.append(taken * self.rounds_of_one(workload))

    def measure(self, workload: str) -> list[str]:
        with Turns(self.starts(workload), max(10.0, self.left())) as turns:
            turns.round(0, keep=False)
            for player in list(turns.players):
                self.calls(turns, player, workload)
            turns.finish()
            self.failures += [f"{workload} {failure}" for failure in turns.failures]
            players = [player for player in turns.players if player.summary is not None]
        digests = {player.summary["digest"] for player in players}
        if len(digests) != 1:
            self.failures.append(f"{workload}: the outputs of plain and replay differ: {sorted(digests)}")
        times = {kind: [p.times for p in players if p.kind == kind] for kind in ("plain", "replay")}
        regions = self.regions(workload, self.scratch / f"{workload}-0.json")
        self.results[workload] = {"ms": times, "regions": sorted(regions, key=lambda region: -region["calls"])[:10]}
        if not times["plain"] or not times["replay"]:
            return [workload, *[""] * 6, "failed"]
        totals = {kind: [sum(calls) for calls in runs] for kind, runs in times.items()}
        plain, replay = (statistics.median(totals[kind]) for kind in ("plain", "replay"))
        self.results[workload].update(plain_ms=plain, replay_ms=replay)
        return [
            workload,
            f"{plain:.1f}",
            f"{replay:.1f}",
            f"{replay / plain:.3f}",
            f"{min(totals['replay']) / plain:.3f} to {max(totals['replay']) / plain:.3f}",
            f"{max(totals['plain']) / min(totals['plain']):.3f}",
            self.slowest(times["replay"]),
            "equal" if len(digests) == 1 else "DIFFER",
        ]

    def slowest(self, runs: list[list[float]]) -> str:
        """Where in the loop the proofs fall."""
        by_call = [statistics.median(calls) for calls in zip(*runs)]
        worst = max(range(len(by_call)), key=lambda i: by_call[i])
        return f"{by_call[worst]:.1f} (call {worst + 2})"

    def total(self) -> str:
        done = [result for result in self.results.values() if "plain_ms" in result]
        plain, replay = (sum(result[key] for result in done) for key in ("plain_ms", "replay_ms"))
        if not plain:
            return "nothing was measured"
        each = statistics.geometric_mean(result["replay_ms"] / result["plain_ms"] for result in done)
        kept = "within" if replay / plain <= LIMIT else "OVER"
        return (
            f"first {self.options.calls} calls of all {len(done)} workloads: "
            f"{replay:.0f} ms replay, {plain:.0f} ms plain, ratio {replay / plain:.3f}, {kept} {LIMIT}; geometric mean of the ratios {each:.3f}"
        )

    def run(self) -> int:
        heading = f"ms, {self.options.calls} calls"
        rows = [[heading, "plain", "replay", "ratio", "replays' range", "plains' spread", "slowest call", "bytes"]]
        text = ""
        for workload in self.options.only or WORKLOADS:
            if self.left() < 30:
                self.failures.append(f"{workload}: no time left")
                continue
            rows.append(self.measure(workload))
            print(f"{workload}: {self.left():.0f} s left", flush=True)
            text = "\n".join([table(rows), self.total(), *self.failures]) + "\n"
            self.write("first_calls", text)
        print(text or "\n".join(self.failures))
        return 1 if self.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=WORKLOADS, metavar="NAME")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=16, help="of one `generate`")
    parser.add_argument("--repeats", type=int, default=3, help="plain processes and replaying ones, of each so many")
    add_options(parser, 400)
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: FirstCalls(options, build, scratch).run())


if __name__ == "__main__":
    sys.exit(main())
