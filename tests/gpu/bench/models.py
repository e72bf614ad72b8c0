#!/usr/bin/env python3
"""Many models, plain and under GRAPE_MODE=replay: what is replayed, whether all outputs are bitwise the same, and how
long a call takes.

models.py [NAME ...] [--calls 40] [--repeats 1] [--out FOLDER]

Each model of model_zoo.py runs in two processes of its own (model_loop.py), so that one's crash, memory and report are
none of another's. Processes set up side by side, --jobs at a time, up to and including their first call; then one after
the other is timed, alone. Two processes of one program can differ in speed by tens of per cent: where that matters,
--repeats starts several of each kind, and medians over them are shown.

verdict   by the report: `replayed`: every call of the model from the sixth on; `partly`: only some, or only modules
          inside it; `eager`: none. `not here`: the installed library does not have the model
ms        median over the last half of the calls, each between two synchronisations
first 20  time of the 20 calls after the first one, replay over plain; the first (which loads kernels) is the warm-up
outputs   types, shapes, strides and bytes of all tensors of all calls

Writes models.json and models.txt to --out. With --device cpu every script only runs, plain: a check of the zoo.
Exit status: 0 all equal (or no GPU), 1 outputs differ or a run failed, 2 usage.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

from paths import HERE
from gpu_machine import (
    Build,
    Measurement,
    add_options,
    environment,
    regions_of,
    replaying,
    show,
    table,
    with_build,
)
from turns import Turns

GENERATE = ".generate"
LAST_UNREPLAYED = 5  # of a steady loop: one that loads kernels, and four of which the last settles the padding
EARLY = slice(1, 21)
VERDICTS = ("replayed", "partly", "eager")
QUIET = {"PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": "2"}
Report = dict[str, Any]


def early_ms(runs: list[Report]) -> Optional[float]:
    """The median over processes."""
    enough = all(len(run["ms"]) >= EARLY.stop for run in runs)
    return statistics.median(sum(run["ms"][EARLY]) for run in runs) if runs and enough else None


def steady_ms(runs: list[Report]) -> Optional[float]:
    medians = [statistics.median(run["ms"][len(run["ms"]) // 2 :]) for run in runs if run["ms"]]
    return statistics.median(medians) if medians else None


def ratio(above: Optional[float], below: Optional[float]) -> Optional[float]:
    return above / below if above and below else None


def verdict_of(regions: list[Report], name: str, calls: int, module_calls: int) -> tuple[str, str]:
    """What became of a model's `calls` calls, `module_calls` of the module in each, and why no more."""
    own = [region for region in regions if region["region"] == name]
    inner = [region for region in regions if region["region"] != name and region["replayed"] > 0]
    if not own:
        return ("partly" if inner else "eager"), "no region for the model"
    replayed = sum(region["replayed"] for region in own)
    reason = next((region["reason"] for region in own if region["reason"]), None) or "no reason given"
    if replayed >= max(1, (calls - LAST_UNREPLAYED) * module_calls):
        return "replayed", ""
    if replayed:
        return "partly", f"{replayed} of {calls * module_calls}: {reason}"
    if inner:
        within = f"{sum(r['replayed'] for r in inner)} calls of {len(inner)} modules inside"
        return "partly", f"{within}: {reason}"
    return "eager", reason


class ModelRuns(Measurement):
    """`build` is None where the scripts only run, plain."""

    def __init__(self, options: argparse.Namespace, build: Optional[Build], scratch: Path) -> None:
        super().__init__(options, build, scratch)
        self.rows: dict[str, Report] = {}
        self.results = self.rows

    def calls(self, name: str) -> int:
        """`generate` calls its model many times: fewer of them do."""
        calls = self.options.calls
        return max(min(calls, EARLY.stop), calls * 6 // 10) if name.endswith(GENERATE) else calls

    def start(self, name: str, kind: str, number: int) -> tuple[str, list[str], dict[str, str]]:
        label = f"{name} {kind} {number}"
        command = [self.options.python, str(HERE / "model_loop.py"), name, "--calls", str(self.calls(name))]
        if kind == "replay" and self.build is not None:
            return label, command, replaying(self.build, self.scratch / f"{name}-{number}.json", **QUIET)
        return label, [*command, "--device", self.options.device], environment(**QUIET)

    def run_together(self, names: list[str], kinds: list[tuple[str, int]]) -> None:
        """One process for each name and kind: they set up side by side, and are timed one after the other."""
        starts = [self.start(name, *kind) for name in names for kind in kinds]
        with Turns(starts, max(20.0, self.left() + 10)) as turns:
            turns.round(0, keep=False)
            turns.round(0, keep=False)
            turns.finish()
            found = {player.kind: player.summary for player in turns.players if player.summary is not None}
        for name in names:
            row = self.rows.setdefault(name, {"plain": [], "replay": []})
            for kind, number in kinds:
                label = f"{name} {kind} {number}"
                failure = next((f for f in turns.failures if f.startswith(f"{label}: ")), "gave no answer")
                lines = failure.removeprefix(f"{label}: ").splitlines()
                error = " … ".join([lines[0][:60], *lines[-1:]] if len(lines) > 1 else lines)
                row[kind].append(found.get(label) or {"error": error, "stderr": failure, "ms": []})

    def read_reports(self, name: str) -> None:
        """The verdict is the worst of all processes'."""
        row = self.rows[name]
        first = row["plain"][0]
        for number in range(len(row["replay"])):
            try:
                regions = regions_of(self.scratch / f"{name}-{number}.json")
            except (OSError, ValueError, KeyError) as error:
                row["problem"] = f"no report: {error!r}"
                return
            verdict, reason = verdict_of(regions, first["region"], len(first["ms"]), first["module_calls"])
            if number == 0 or VERDICTS.index(verdict) > VERDICTS.index(row["verdict"]):
                row.update(verdict=verdict, reason=reason)
                row["regions"] = sorted(regions, key=lambda r: -r["calls"])[:40]

    def judge(self, name: str) -> None:
        row = self.rows[name]
        row.update(verdict="", reason="", problem=None, equal="")
        for kind in ("plain", "replay"):
            error = next((run["error"] for run in row[kind] if run["error"]), None)
            if error is not None and error.startswith("not here"):
                row.update(verdict="not here", reason=error)
                return
            if error is not None:
                row["problem"] = f"{kind}: {error}"
                return
        first, *again = [run["digests"] for run in row["plain"]]
        if not row["plain"][0]["finite"] or not row["plain"][0]["tensors"] or len(set(first)) < len(first):
            row["problem"] = "outputs that are no numbers, or do not depend on the inputs: nothing is compared by them"
        if not row["replay"]:
            row["verdict"] = "runs"
            return
        self.read_reports(name)
        differing = [i for i in range(len(first)) if any(run["digests"][i] != first[i] for run in row["replay"])]
        if not differing:
            row["equal"] = "equal"
        elif any(other != first for other in again):
            row["equal"] = "self differs"
        else:
            row.update(equal="DIFFER", problem=f"the outputs of calls {differing[:10]} differ under replay")

    def run(self, names: list[str]) -> None:
        which = ("plain", "replay") if self.build is not None else ("plain",)
        kinds = [(kind, number) for number in range(self.options.repeats) for kind in which]
        together = max(1, self.options.jobs // len(kinds))
        for at in range(0, len(names), together):
            batch = names[at : at + together]
            if self.left() < 20:
                skipped = {"plain": [], "replay": [], "problem": "not run: the time budget is spent"}
                self.rows.update({name: dict(skipped) for name in batch})
                continue
            self.run_together(batch, kinds)
            for name in batch:
                self.judge(name)
            self.write("models", self.text())
            print(f"{min(at + together, len(names))} of {len(names)}, {self.left():.0f} s left", flush=True)
        # Does a model whose outputs differ differ from itself? Only other plain runs can tell.
        different = [name for name in names if self.rows[name].get("equal") == "DIFFER"]
        for at in range(0, len(different) if self.left() > 20 else 0, self.options.jobs):
            batch = different[at : at + self.options.jobs]
            self.run_together(batch, [("plain", self.options.repeats)])
            for name in batch:
                self.judge(name)
        self.write("models", self.text())

    def text(self) -> str:
        rows = [
            [
                "model",
                "verdict",
                "plain ms",
                "replay ms",
                "gain",
                "first 20",
                "outputs",
                "why not (all) replayed, or problem",
            ]
        ]
        for name, row in self.rows.items():
            ours, theirs = steady_ms(row["replay"]), steady_ms(row["plain"])
            rows.append(
                [
                    name,
                    row.get("verdict") or "?",
                    show(theirs, 3),
                    show(ours, 3),
                    show(ratio(theirs, ours), 2),
                    show(ratio(early_ms(row["replay"]), early_ms(row["plain"])), 2),
                    row.get("equal", ""),
                    ((row.get("problem") or row.get("reason") or "").splitlines() or [""])[0][:160],
                ]
            )
        return "\n".join([table(rows), *self.totals()]) + "\n"

    def totals(self) -> list[str]:
        """Over all models that ran both ways."""
        both = [row for row in self.rows.values() if row.get("equal")]
        if not both:
            return []
        counts = {verdict: sum(row["verdict"] == verdict for row in both) for verdict in VERDICTS}
        lines = [", ".join(f"{count} {verdict}" for verdict, count in counts.items())]
        equal = sum(row["equal"] == "equal" for row in both)
        lines[0] += f"; {equal} of {len(both)} equal"
        early = [(early_ms(row["replay"]), early_ms(row["plain"])) for row in both]
        early = [pair for pair in early if all(pair)]
        if early:
            total = sum(ours for ours, _ in early) / sum(theirs for _, theirs in early)
            most = max(ours / theirs for ours, theirs in early)
            lines.append(f"first 20 calls, replay over plain: {total:.3f} of all models' time, {most:.2f} at most")
        gains = [steady_ms(row["plain"]) / steady_ms(row["replay"]) for row in both]
        lines.append(f"gain: median {statistics.median(gains):.2f}, from {min(gains):.2f} to {max(gains):.2f}")
        return lines


def zoo(python: str) -> list[str]:
    """The names of all models, asked of the Python that has PyTorch."""
    import subprocess  # noqa: PLC0415

    code = "import model_zoo; print(*model_zoo.scripts())"
    done = subprocess.run([python, "-c", code], cwd=HERE, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-400:])
    return done.stdout.split()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of model_zoo.py")
    parser.add_argument("--calls", type=int, default=40, help="calls of each model; of `generate` 0.6 times as many")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--repeats", type=int, default=1, help="processes of each kind; medians over them are shown")
    parser.add_argument("--jobs", type=int, help="processes at a time (default: twice the cores)")
    parser.add_argument("--list", action="store_true", help="print the names")
    add_options(parser, 230, "build/models")
    options = parser.parse_args()
    options.jobs = options.jobs or 2 * (os.cpu_count() or 2)
    known = zoo(options.python)
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if options.list:
        print("\n".join(known))
        return 0

    def measure(build: Optional[Build], scratch: Path) -> int:
        runs = ModelRuns(options, build, scratch)
        runs.run(options.names or known)
        print(runs.text(), end="")
        return 1 if any(row.get("problem") for row in runs.rows.values()) else 0

    if options.device == "cuda":
        return with_build(options, measure)
    with tempfile.TemporaryDirectory(prefix="grape-models-") as scratch:
        return measure(None, Path(scratch))


if __name__ == "__main__":
    sys.exit(main())
