#!/usr/bin/env python3
"""Training, a step at a time: plain, under Grape, and in the ways one has without it.

For each program of train_programs.py, processes that take turns: plain PyTorch; Grape with the caller's GRAPE_... variables;
torch.cuda.make_graphed_callables, where it can be used; torch.compile(mode="reduce-overhead"), with the time that compiling
took; and the GPU's own time, by the profiler, in a plain process when all turns are done. A turn is a block of steps
between two synchronisations. Each step's batch is in new tensors. "memory": Grape's peak in such a turn, of plain's.

train.py [--only NAME]... [--columns plain,grape,busy,graph,compile] [--out FOLDER]
train.py --check [--steps 300]     two plain processes and one under Grape, deterministic: are losses and gradients of each
                                   step, weights, buffers, optimizer and random numbers drawn afterwards equal bit by bit?
train.py --first 30                the total time of steps 1 to 30, plain and under Grape, once another process has run them

A column that fails or takes too long is left empty and told above the table. Writes train.json and train.txt to --out.
Exit status: 0 measured (or no GPU), 1 a plain process or one under Grape failed, or differs, 2 usage.
"""

import argparse
import statistics
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

from paths import HERE
from gpu_machine import (Build, Measurement, Result, add_columns, add_options, environment, json_line, replaying, run,
                         settings_of_caller, show, table, with_build)  # fmt: skip
from turns import Player, Turns

PROGRAMS = ("lora", "gpt", "bert", "resnet18", "wav2vec2", "wav2vec2_masked", "dynamics")
NOT_BY_HAND = ("wav2vec2", "wav2vec2_masked")  # their loss reads lengths on the host
COLUMNS = ("plain", "grape", "busy", "graph", "compile")
TITLES = {"plain": "plain", "grape": "Grape", "busy": "GPU busy", "graph": "by hand", "compile": "compiled"}
OWN = ("plain", "grape")  # a failure of one of these is Grape's, or leaves nothing to compare with
WARM_TURNS = 4
LONG_WARM_TURNS = {"wav2vec2": 40, "wav2vec2_masked": 80}  # each of 20 lengths a few times, for each layer
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
SEEN = ("losses", "gradients", "number of gradients")  # in each step
Start = tuple[str, list[str], dict[str, str]]
Runs = dict[str, "Future[Result]"]  # by plain, again, grape


def ratio(above: Optional[float], below: Optional[float]) -> Optional[float]:
    return above / below if above and below else None


def first_difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """What differs first between two runs of --check, in words; empty if nothing does."""
    for number, (ours, theirs) in enumerate(zip(one["steps"], other["steps"]), 1):
        for name, a, b in zip(SEEN, ours, theirs):
            if a != b:
                return f"{name} from step {number} on"
    return difference_at_end(one["state"], other["state"])


def difference_at_end(one: dict[str, dict[str, int]], other: dict[str, dict[str, int]]) -> str:
    """Which kind of tensors that a run left behind differs first, in words; empty if none does."""
    for kind, tensors in one.items():
        unequal = [name for name in {**tensors, **other[kind]} if tensors.get(name) != other[kind].get(name)]
        if unequal:
            return f"{kind}: {len(unequal)} of {len(tensors)}, {unequal[0]}"
    return ""


class TrainBench(Measurement):
    name = "train"
    programs: tuple[str, ...] = PROGRAMS
    difference = staticmethod(first_difference)

    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        super().__init__(options, build, scratch)
        self.notes: list[str] = []
        self.tables: list[list[list[str]]] = []

    def command(self, program: str, *more: str) -> list[str]:
        small = ["--small"] if self.options.small else []
        return [self.options.python, str(HERE / "train_loop.py"), program, *small, *more]

    def grape(self, label: str, **more: str) -> dict[str, str]:
        """The environment under Grape, with what the caller has set for it."""
        return {**replaying(self.build, self.scratch / f"{label}.json"), **settings_of_caller(), **more}

    def replayed(self, label: str) -> tuple[str, str]:
        """How many calls of how many were replayed, and the reason that most calls that were not had."""
        regions = self.regions(label, self.scratch / f"{label}.json")
        self.results[f"{label} regions"] = sorted(regions, key=lambda region: -region["calls"])[:20]
        reasons: dict[str, int] = {}
        for reason in [reason for region in regions for reason in region["reasons"]]:
            reasons[reason["text"]] = reasons.get(reason["text"], 0) + reason["count"]
        calls, replayed = (sum(region[key] for region in regions) for key in ("calls", "replayed"))
        return f"{replayed}/{calls}", max(reasons, key=lambda text: reasons[text], default="")[:60]

    def note(self, program: str, turns: Turns) -> None:
        for failure in turns.failures:
            own = failure.partition(":")[0] in OWN
            (self.failures if own else self.notes).append(f"{program}, {failure}")

    # How long a step takes.

    def starts(self, program: str, steps: int, kinds: list[str]) -> list[Start]:
        """Plain and Grape's several times each, the others once."""
        starts: list[Start] = []
        for number in range(self.options.processes):
            for kind in kinds if number == 0 else [kind for kind in kinds if kind in OWN]:
                how = ["--how", kind] if kind in ("graph", "compile") else []
                # One process is asked for the GPU's time, once all turns are done.
                busy = ["--busy"] if kind == "plain" and number == 0 and steps > 1 and "busy" in self.options.columns else []
                env = self.grape(f"{program}-{number}") if kind == "grape" else environment()
                starts.append((kind, self.command(program, "--steps", str(steps), *how, *busy), env))
        return starts

    def compile_seconds(self, player: Player, warm: int) -> Optional[float]:
        """What the first turns took more than as many later ones."""
        if player.summary is None or not player.times:
            return None
        more = sum(player.summary["blocks_ms"][:warm]) - warm * statistics.median(player.times)
        return more * self.options.block / 1000

    @staticmethod
    def peak(turns: Turns, kind: str, warm: int) -> Optional[float]:
        """The most memory that PyTorch had in use in a turn that counts."""
        peaks = [peak for player in turns.of(kind) if player.summary for peak in player.summary["peaks_mib"][warm:]]
        return max(peaks, default=None)

    def measure(self, program: str) -> list[str]:
        kinds = [kind for kind in COLUMNS if kind in self.options.columns and kind != "busy"]
        kinds = [kind for kind in kinds if kind != "graph" or program not in NOT_BY_HAND]
        limits = {"compile": min(self.options.compile_limit, 0.6 * self.left()), "graph": 120.0}
        warm = LONG_WARM_TURNS.get(program, WARM_TURNS)
        with Turns(self.starts(program, self.options.block, kinds), max(10.0, self.left()), limits) as turns:
            for number in range(warm + self.options.turns):
                turns.round(number, keep=number >= warm)
                if self.left() < 40:
                    self.notes.append(f"{program}: {number + 1} of {warm + self.options.turns} turns: no time left")
                    break
            turns.finish()
        self.note(program, turns)
        medians: dict[str, Optional[float]] = {kind: turns.median(kind) for kind in COLUMNS}
        summaries = [player.summary for player in turns.players if player.summary is not None]
        medians["busy"] = next((summary["busy_ms"] for summary in summaries if summary.get("busy_ms")), None)
        if "busy" in self.options.columns and medians["busy"] is None:
            self.notes.append(f"{program}, busy: torch.profiler saw no GPU work")
        compiled = next((self.compile_seconds(player, warm) for player in turns.of("compile")), None)
        self.results[program] = {
            "medians_ms": medians, "compile_s": compiled,
            "processes": [{"kind": p.kind, "ms": p.times, "summary": p.summary} for p in turns.players],
        }  # fmt: skip
        replayed = self.replayed(f"{program}-0") if "grape" in kinds else ("", "")
        cells = [show(medians[kind], 2) for kind in COLUMNS]
        memory = ratio(self.peak(turns, "grape", warm), self.peak(turns, "plain", warm))
        gain = ratio(medians["plain"], medians["grape"])
        return [program, *cells, show(compiled, 0), show(gain, 2), show(memory, 2), *replayed]

    # Are the bits the same?

    def check_command(self, program: str) -> list[str]:
        return self.command(program, "--check", "--steps", str(self.options.steps))

    def start_check(self, pool: ThreadPoolExecutor, program: str) -> Runs:
        """Two plain processes and one under Grape, side by side as far as the pool allows."""
        plain = environment(**DETERMINISTIC)
        kinds = {"plain": plain, "again": plain, "grape": self.grape(f"{program}-check", **DETERMINISTIC)}
        command = self.check_command(program)

        def ended(env: dict[str, str]) -> Result:
            return run(command, env, max(10.0, self.left()))

        return {kind: pool.submit(ended, env) for kind, env in kinds.items()}

    def check(self, program: str) -> list[str]:
        with ThreadPoolExecutor(3) as pool:
            return self.compared(program, self.start_check(pool, program))

    def compared(self, program: str, runs: Runs) -> list[str]:
        label = f"{program}-check"
        ended = {kind: future.result() for kind, future in runs.items()}
        answers = {kind: json_line(result.stdout) if result.status == 0 else None for kind, result in ended.items()}
        for kind, answer in answers.items():
            if answer is None:
                self.failures.append(f"{program}, {kind}: status {ended[kind].status}: {ended[kind].stderr.strip()[-600:]}")
        if None in answers.values():
            return [program, str(self.options.steps), "", "failed", "", ""]
        again = self.difference(answers["plain"], answers["again"])
        under = self.difference(answers["plain"], answers["grape"])
        if under and not again:
            self.failures.append(f"{program}: plain and Grape differ: {under}")
        self.results[label] = {"again": again, "grape": under, "last_loss": answers["plain"]["last_loss"]}
        replayed = self.replayed(label)
        return [program, str(self.options.steps), again or "equal", under or "equal", *replayed]

    # What the first steps cost.

    def first(self, program: str) -> list[str]:
        # Whoever comes first on a machine reads PyTorch's kernels from the disk. That is neither's time.
        warm: Start = ("unmeasured", self.command(program, "--steps", "1"), environment())
        with Turns([warm, *self.starts(program, 1, list(OWN))], max(10.0, self.left())) as turns:
            for player in list(turns.players):
                for _ in range(self.options.first):
                    taken = turns.turn(player)
                    if taken is None:
                        break
                    player.times.append(taken)
            turns.finish()
        self.note(program, turns)
        times = {kind: [player.times for player in turns.of(kind)] for kind in OWN}
        self.results[f"{program}-first"] = times
        if not all(times.values()):
            return [program, "", "", "", "", "failed"]
        all_of = {kind: statistics.median(sum(one) for one in times[kind]) for kind in OWN}
        later = {kind: statistics.median(sum(one[1:]) for one in times[kind]) for kind in OWN}
        by_step = [statistics.median(steps) for steps in zip(*times["grape"])]
        slowest = max(range(1, len(by_step)), key=lambda i: by_step[i], default=0)
        return [program, show(all_of["plain"], 1), show(all_of["grape"], 1), show(ratio(all_of["grape"], all_of["plain"])),
                show(ratio(later["grape"], later["plain"])), f"{by_step[slowest]:.1f} (step {slowest + 1})"]  # fmt: skip

    def parts(self) -> list[tuple[Any, list[str]]]:
        chosen: list[tuple[Any, list[str]]] = []
        if self.options.check:
            chosen.append((self.check, ["bits", "steps", "plain, again", "Grape", "replayed", "most frequent reason"]))
        if self.options.first:
            steps = f"ms, steps 1 to {self.options.first}"
            chosen.append((self.first, [steps, "plain", "Grape", "ratio", "ratio without step 1", "slowest later step"]))
        titles = [TITLES[kind] for kind in COLUMNS]
        speed = ["ms a step", *titles, "compile s", "gain", "memory", "replayed", "most frequent reason"]
        return chosen or [(self.measure, speed)]

    def text(self) -> str:
        return "\n".join([*self.notes, *self.failures, *map(table, self.tables)]) + "\n"

    def run(self) -> int:
        for part, heading in self.parts():
            self.tables.append([heading])
            for program in self.options.only or self.programs:
                if self.left() < 30:
                    self.failures.append(f"{program}: no time left")
                    continue
                begin = time.monotonic()
                self.tables[-1].append(part(program))
                self.write(self.name, self.text())
                print(f"{program}: {time.monotonic() - begin:.0f} s, {self.left():.0f} s left", flush=True)
        print(self.text(), end="")
        return 1 if self.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PROGRAMS, metavar="NAME")
    add_columns(parser, COLUMNS)
    parser.add_argument("--block", type=int, default=10, help="steps of one turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2, help="of plain and of Grape")
    parser.add_argument("--compile-limit", type=float, default=300, help="seconds that one compilation may take")
    parser.add_argument("--check", action="store_true", help="compare bits")
    parser.add_argument("--steps", type=int, default=300, help="of --check")
    parser.add_argument("--first", type=int, metavar="N", help="time the first N steps")
    parser.add_argument("--small", action="store_true", help="tiny models, to try it without a GPU")
    add_options(parser, 3600)
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: TrainBench(options, build, scratch).run())


if __name__ == "__main__":
    sys.exit(main())
