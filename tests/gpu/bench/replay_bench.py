#!/usr/bin/env python3
"""How fast models run when Grape replays them, side by side with the ways one has without it.

For each workload of speed.py, processes that take turns: plain PyTorch, GRAPE_MODE=replay, a hand-written torch.cuda.graph
where it can be written, torch.compile(mode="reduce-overhead"); and the GPU's own time, by the profiler, in one of the
plain processes when all turns are done. Plain and replay must give the same bytes in every call. A second table has
training loops, where nothing is replayed, in every mode.

replay_bench.py [--only NAME]... [--columns plain,replay,graph,compile,busy] [--out FOLDER]

A column that fails or takes too long is left empty and told below the table; the others go on. All of it takes half an hour,
most of that torch.compile's; --only and --columns choose a part, --budget says when to stop. Writes replay.json and replay.txt to --out, with all
turns of all processes.

Exit status: 0 measured (or no GPU), 1 a plain or a replaying run failed or outputs differ, 2 usage.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Optional

import paths  # noqa: F401
from gpu_machine import Build, Measurement, add_columns, add_options, environment, preloaded, replaying, show, table, with_build
from turns import Turns

WORKLOADS = ("gpt2", "resnet50", "vit", "bert", "t5", "gpt2_beams", "wav2vec2", "gptj", "gpt2_sample", "gpt2_dropout",
             "gpt2_beams_named", "gpt2_beams_modules")
BEAM_SEARCH = ("_get_top_k_continuations", "_get_running_beams_for_next_iteration", "_update_finished_beams",
               "_check_early_stop_heuristic", "_beam_search_has_unfinished_sequences")
# The same workload with functions outside of its model as regions that are named, and with none, not even found ones.
NAMED = {
    "gpt2_beams_named": (
        "gpt2_beams", ",".join(f"transformers.generation.utils:GenerationMixin.{name}" for name in BEAM_SEARCH)
    ),
    "gpt2_beams_modules": ("gpt2_beams", "modules"),
}
TRAINING = ("gpt_train", "wav2vec2_train", "dataloader")
NOT_BY_HAND = ("gpt2_beams", *NAMED, "gpt2_sample")  # the host decides, in each step, what the next one works on
LARGE = ("gptj",)  # so many gigabytes that there is one process of each kind
OWN = ("plain", "off", "observe", "replay")  # a failure of one of these is Grape's, or leaves nothing to compare with
COLUMNS = ("plain", "replay", "graph", "compile", "busy")
MODES = ("plain", "off", "observe", "replay")
WARM_TURNS = 3
# Each of its 50 lengths has to come a few times; for each function what it gains is measured, and at each length proven.
LONG_WARM_TURNS = {"wav2vec2": 12, "gpt2_beams_named": 16, "gpt2_beams": 24}
TRAINING_LIMIT = 1.05
Start = tuple[str, list[str], dict[str, str]]
Row = list[str]


class ReplayBench(Measurement):
    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        super().__init__(options, build, scratch)
        self.notes: list[str] = []
        self.rows: list[Row] = []
        self.training_rows: list[Row] = []

    def environment_of(self, kind: str, label: str, workload: str) -> dict[str, str]:
        if kind == "replay":
            named = {"GRAPE_REGIONS": NAMED[workload][1]} if workload in NAMED else {}
            return replaying(self.build, self.scratch / f"{label}.json", **named)
        if kind == "observe":
            return preloaded(self.build, GRAPE_MODE=kind, GRAPE_TRACE=str(self.scratch / f"{label}.grape"))
        return preloaded(self.build, GRAPE_MODE=kind) if kind == "off" else environment()

    def starts(self, workload: str, kinds: list[str]) -> list[Start]:
        """Plain and Grape's several times each, the others once."""
        starts, script = [], NAMED[workload][0] if workload in NAMED else workload
        for number in range(1 if workload in LARGE else self.options.processes):
            for kind in kinds if number == 0 else [kind for kind in kinds if kind in OWN]:
                how = ["--how", kind] if kind in ("graph", "compile") else []
                # One process is asked for the GPU's time, once all turns are done.
                busy = ["--busy"] if kind == "plain" and number == 0 and "busy" in self.options.columns else []
                command = self.speed(script, self.options.calls, "--serve", *how, *busy)
                label = f"{workload}-{number}-{kind}"
                starts.append((kind, command, self.environment_of(kind, label, workload)))
        return starts

    def play(self, workload: str, kinds: list[str]) -> Turns:
        """All turns of all processes; what failed is noted."""
        begin = time.monotonic()
        # The first turn of a compiled model is its compilation.
        limits = {"compile": min(self.options.compile_limit, 0.6 * self.left())}
        with Turns(self.starts(workload, kinds), max(10.0, self.left()), limits) as turns:
            warm = LONG_WARM_TURNS.get(workload, WARM_TURNS)
            for number in range(warm + self.options.turns):
                turns.round(number, keep=number >= warm)
                if self.left() < 40:
                    self.notes.append(f"{workload}: {number + 1} of {warm + self.options.turns} turns: no time left")
                    break
            turns.finish()
        for failure in turns.failures:
            kind = failure.partition(":")[0]
            (self.failures if kind in OWN else self.notes).append(f"{workload}, {failure}")
        self.results[workload] = [{"kind": p.kind, "ms": p.times, "summary": p.summary} for p in turns.players]
        print(f"{workload}: {time.monotonic() - begin:.0f} s", flush=True)
        return turns

    def outputs(self, workload: str, turns: Turns) -> str:
        """Are the bytes of all calls the same, in every process that is plain or Grape's?"""
        players = [player for player in turns.players if player.summary and player.kind in OWN]
        if len({player.kind for player in players}) < 2:
            return ""
        digests = {player.summary["digest"] for player in players}
        if len(digests) == 1:
            return "equal"
        found = sorted((player.kind, player.summary["digest"]) for player in players)
        self.failures.append(f"{workload}: the outputs differ: {found}")
        return "DIFFER"

    def measure(self, workload: str) -> None:
        unwritten = ("graph",) if workload in NOT_BY_HAND else ()
        kinds = [kind for kind in COLUMNS if kind in self.options.columns and kind not in ("busy", *unwritten)]
        turns = self.play(workload, kinds)
        medians: dict[str, Optional[float]] = {kind: turns.median(kind) for kind in COLUMNS}
        summaries = [player.summary for player in turns.players if player.summary is not None]
        medians["busy"] = next((summary["busy_ms"] for summary in summaries if summary.get("busy_ms")), None)
        if "busy" in self.options.columns and medians["busy"] is None:
            self.notes.append(f"{workload}, busy: torch.profiler saw no GPU work")
        gain = medians["plain"] / medians["replay"] if medians["plain"] and medians["replay"] else None
        regions: list[dict[str, Any]] = []
        if "replay" in kinds:
            regions = self.regions(workload, self.scratch / f"{workload}-0-replay.json")
            self.results[f"{workload} regions"] = regions
        main = max(regions, key=lambda r: r["replayed"], default={})
        reason = " ".join(str(main.get("reason") or "").split())[:80]
        replayed = f"{main.get('replayed', '?')}/{main.get('calls', '?')}" if regions else ""
        cells = [show(medians[kind]) for kind in COLUMNS]
        self.rows.append([workload, *cells, show(gain, 2), self.outputs(workload, turns), replayed, reason])

    def measure_training(self, workload: str) -> None:
        turns = self.play(workload, list(MODES))
        medians = {mode: turns.median(mode) for mode in MODES}
        ratios = {
            mode: medians[mode] / medians["plain"] if medians[mode] and medians["plain"] else None for mode in MODES
        }
        spread = turns.ratios("replay", "plain")
        self.training_rows.append(
            [workload]
            + [show(medians[mode]) for mode in MODES]
            + [show(ratios[mode]) for mode in MODES[1:]]
            + [f"{min(spread):.3f} to {max(spread):.3f}" if spread else "", self.outputs(workload, turns)]
        )

    def text(self) -> str:
        parts = []
        if self.rows:
            more = ["gain", "bytes", "replayed", "last reason for eager"]
            parts.append(table([["ms a call", *COLUMNS, *more], *self.rows]))
        if self.training_rows:
            more = [f"{mode}/plain" for mode in MODES[1:]] + ["replay/plain, turn by turn", "losses"]
            parts.append(table([["training, ms a step", *MODES, *more], *self.training_rows]))
            parts[-1] += f"\nreplay must stay at or under {TRAINING_LIMIT} of plain"
        turns = [
            f"{workload:15} {player['kind']:8} " + " ".join(f"{ms:.3f}" for ms in player["summary"]["rounds_ms"])
            for workload in (*WORKLOADS, *TRAINING)
            for player in self.results.get(workload, [])
            if player["summary"] is not None
        ]
        parts.append("\n".join(["every turn, warm-up first, ms a call:", *turns]))
        return "\n\n".join(parts + ["\n".join(self.notes + self.failures)] * bool(self.notes + self.failures)) + "\n"

    def run(self) -> int:
        for workload in self.options.only or (*WORKLOADS, *TRAINING):
            if self.left() < 80:
                self.failures.append(f"{workload}: no time left")
            else:
                (self.measure_training if workload in TRAINING else self.measure)(workload)
            self.write("replay", self.text())
        print(self.text(), end="")
        return 1 if self.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=(*WORKLOADS, *TRAINING), metavar="NAME")
    add_columns(parser, COLUMNS)
    parser.add_argument("--calls", type=int, default=50, help="calls (tokens, steps) a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2, help="of plain and of each of Grape's modes")
    parser.add_argument("--compile-limit", type=float, default=200, help="seconds that one compilation may take")
    add_options(parser, 3600)
    options = parser.parse_args()
    return with_build(options, lambda build, scratch: ReplayBench(options, build, scratch).run())


if __name__ == "__main__":
    sys.exit(main())
