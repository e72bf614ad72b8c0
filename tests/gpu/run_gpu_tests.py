#!/usr/bin/env python3
"""Runs unmodified PyTorch scripts with and without Grape on a GPU, and compares all that they do.

For each script of tests/gpu/workloads:
  plain      twice, without the library: what the script does, and whether it does it twice alike
  observe    under `grape run`, with a trace
  off        preloaded with GRAPE_MODE=off
  replay     preloaded with GRAPE_MODE=replay, its report read
  profiled   under `grape run` and torch.profiler, for the launch counts, kernel by kernel name
Outputs must be bitwise equal, stdout and exit status the same, each trace complete with nothing lost and readable by
`grape dump`. For GPT-2 two more runs check the Python positions. The fault scripts of tests/gpu/faults run as well
(fault_checks.py), and the checks of mode replay alone (replay_checks.py).

No process is started after --budget seconds, and those that run then are ended; what was left out is printed as the --only
options of the next run.

Exit status: 0 all passed (or no GPU), 1 something failed or was not run, 2 usage.
"""

import argparse
import json
import os
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Union

sys.path.insert(0, str(Path(__file__).resolve().parent / "checks"))
from fault_checks import FAULTS, FaultTest  # noqa: E402
from gpu_machine import (  # noqa: E402
    CHECKS,
    WORKLOADS,
    Build,
    Result,
    add_options,
    environment,
    observed,
    preloaded,
    regions_of,
    run,
    table,
    with_build,
)
from replay_checks import REPLAY_CHECKS, ReplayCheck  # noqa: E402
from session import Session, last_line, not_run  # noqa: E402
from trace_compare import (  # noqa: E402
    compare_with_dispatch,
    compare_with_profiler,
    kernel_differences,
    read_trace,
)

Test = Union["WorkloadTest", FaultTest, ReplayCheck]
# The slowest first, so that they do not stand alone at the end.
WORKLOAD_NAMES = [
    "compile_reduce_overhead",
    "wav2vec2_train",
    "gpt2_generate",
    "gpt2_beams",
    "t5_generate",
    "gpt_train",
    "resnet50",
    "vit",
    "bert",
    "dataloader",
    "lstm",
    "triton_kernel",
    "cuda_graph",
]
POSITION_WORKLOAD, POSITION_ARGUMENTS = "gpt2_generate", ["--tokens", "12"]
POSITION_SHARE = 0.95
VERDICTS = ("FAIL", "not run", "skipped")  # whatever else is said passed
DUMP_VIEWS = ("summary", "regions", "graphs", "kernels")


def same_bytes(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.stat().st_size == b.stat().st_size and a.read_bytes() == b.read_bytes()


def check_dumps(build: Build, trace: Path) -> tuple[dict[str, float], list[str]]:
    """Seconds that each view of `grape dump` took, and what was wrong."""
    seconds: dict[str, float] = {}
    problems: list[str] = []
    if build.tool is None:
        return seconds, problems
    for view in DUMP_VIEWS:
        for arguments in ([], ["--json"]):
            done = run([str(build.tool), "dump", str(trace), view, *arguments], environment(), 60)
            seconds[" ".join([view, *arguments])] = round(done.seconds, 3)
            command = " ".join(["dump", view, *arguments])
            if done.status != 0:
                problems.append(f"{command}: status {done.status}: {done.stderr.strip()[-300:]}")
            elif not done.stdout.strip():
                problems.append(f"{command}: printed nothing")
            elif arguments:
                try:
                    json.loads(done.stdout)
                except ValueError as error:
                    problems.append(f"{command}: {error}")
    return seconds, problems


def check_trace(build: Build, path: Path, report: dict[str, Any], problems: list[str]) -> Optional[Any]:
    trace, reason = read_trace(build, path)
    if trace is None:
        problems.append(f"{path.parent.name}: {reason}")
        return None
    numbers = ("events", "captured", "failed", "graph_launches", "block_allocs", "regions", "lost", "file_bytes")
    report[path.parent.name] = {
        **{name: trace.data[name] for name in numbers},
        "launches": sum(trace.executed().values()),
        "unhandled": trace.data["unhandled"],
        "notices": trace.data["notices"],
    }
    if not trace.data["complete"]:
        problems.append(f"{path.parent.name}: the trace is incomplete: {trace.data['damage']}")
    if trace.data["lost"]:
        problems.append(f"{path.parent.name}: {trace.data['lost']} events were lost")
    return trace


def read_result(folder: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return json.loads((folder / "result.json").read_text())
    except (OSError, ValueError) as error:
        problems.append(f"{folder.name}: no result: {error}")
        return {}


class WorkloadTest:
    """One script: its runs, started at once, and what comes of comparing them."""

    alone = False

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.folder = session.scratch / name
        self.runs = {"observe": self.observe("observe"), "plain": self.plain("plain")}
        self.runs["profiled"] = self.observe("profiled", wrapper=["profiled.py"])
        if not session.options.quick:
            self.runs["plain2"] = self.plain("plain2")
            for mode in ("off", "replay"):
                self.runs[mode] = self.preloaded(mode)
        if name == POSITION_WORKLOAD:
            self.runs["stacks"] = self.observe("stacks", POSITION_ARGUMENTS, ["profiled.py", "--stacks"])
            self.runs["dispatched"] = self.observe("dispatched", POSITION_ARGUMENTS, ["dispatched.py"])

    def variables(self, folder: Path) -> dict[str, str]:
        """Compilers' caches of the run's own, so that each run compiles all that it needs, and few CPU threads, since
        several runs share the machine."""
        return {
            "OMP_NUM_THREADS": "4",
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }

    def script(self, folder: Path, arguments: Sequence[str] = (), wrapper: Sequence[str] = ()) -> list[str]:
        script, output = str(WORKLOADS / f"{self.name}.py"), str(folder / "output.bin")
        return [self.session.options.python, *wrapper, script, output, *arguments]

    def start(self, label: str, action: Callable[[Path, float], Result]) -> "Future[Result]":
        return self.session.start(f"{self.name}/{label}", action)

    def plain(self, label: str) -> "Future[Result]":
        def action(folder: Path, limit: float) -> Result:
            return run(self.script(folder), environment(**self.variables(folder)), limit, folder)

        return self.start(label, action)

    def preloaded(self, mode: str) -> "Future[Result]":
        def action(folder: Path, limit: float) -> Result:
            settings = {"GRAPE_MODE": mode, **self.variables(folder)}
            if mode == "replay":
                settings["GRAPE_REPORT"] = str(folder / "report.json")
            return run(self.script(folder), preloaded(self.session.build, **settings), limit, folder)

        return self.start(mode, action)

    def observe(
        self, label: str, arguments: Sequence[str] = (), wrapper: Optional[list[str]] = None
    ) -> "Future[Result]":
        """Under Grape; `wrapper` is a script of this folder with options, given `result.json` as its result file."""

        def action(folder: Path, limit: float) -> Result:
            inner = [str(CHECKS / wrapper[0]), *wrapper[1:], str(folder / "result.json")] if wrapper else []
            script = self.script(folder, arguments, inner)
            command, env = observed(self.session.build, folder / "run.grape", script, **self.variables(folder))
            return run(command, env, limit, folder)

        return self.start(label, action)

    def finish(self) -> dict[str, Any]:
        results = {label: future.result() for label, future in self.runs.items()}
        problems: list[str] = []
        report: dict[str, Any] = {"name": self.name, "problems": problems, "traces": {}}
        report["runs"] = {
            label: {
                "status": result.status,
                "seconds": round(result.seconds, 2),
                "stdout": result.stdout[-600:],
                "stderr": result.stderr[-3000:],
            }
            for label, result in results.items()
        }
        if any(not_run(result) for result in results.values()):
            return {**report, "verdict": "not run"}
        self._compare_runs(results, report)
        self._compare_traces(report)
        if "replay" in results:
            self._read_report(report)
        if self.name == POSITION_WORKLOAD:
            self._compare_positions(report)
        nondeterministic = report["bitwise"] == "self differs"
        report["verdict"] = "FAIL" if problems else ("nondeterministic itself" if nondeterministic else "ok")
        return report

    def _compare_runs(self, results: dict[str, Result], report: dict[str, Any]) -> None:
        problems = report["problems"]
        plain = results["plain"]
        expected = self.folder / "plain" / "output.bin"
        statuses = [str(result.status) for result in results.values()]
        report["exit"] = "/".join(statuses if len(set(statuses)) > 1 else statuses[:1])
        for label, result in results.items():
            if result.status is None:
                problems.append(f"{label}: {'timeout' if result.seconds else result.stderr}")
            elif result.status != plain.status:
                problems.append(f"{label}: exit status {result.status}, plain {plain.status}: {last_line(result)}")
        if plain.status != 0:
            problems.append(f"plain: exit status {plain.status}: {last_line(plain)}")
        repeatable = "plain2" not in results or same_bytes(expected, self.folder / "plain2" / "output.bin")
        different = [
            label
            for label in ("observe", "off", "replay", "profiled")
            if label in results and not same_bytes(expected, self.folder / label / "output.bin")
        ]
        if not repeatable:
            report["bitwise"] = "self differs"
            return
        report["bitwise"] = "differs: " + ",".join(different) if different else "equal"
        problems.extend(f"{label}: the output differs from plain" for label in different)
        for label in ("observe", "off", "replay"):
            if label in results and results[label].stdout != plain.stdout:
                problems.append(f"{label}: stdout differs from plain")

    def _compare_traces(self, report: dict[str, Any]) -> None:
        problems, traces = report["problems"], report["traces"]
        observe = self.folder / "observe" / "run.grape"
        trace = check_trace(self.session.build, observe, traces, problems)
        if trace is not None:
            report["dump_seconds"], dump_problems = check_dumps(self.session.build, observe)
            problems.extend(dump_problems)
        profiled = check_trace(self.session.build, self.folder / "profiled" / "run.grape", traces, problems)
        kernels = read_result(self.folder / "profiled", problems).get("kernels", {})
        if profiled is None or not kernels:
            problems.append("no launch counts to compare")
            return
        report["profiler_launches"] = sum(kernels.values())
        report["kernel_names"] = len(kernels)
        report["differences"] = kernel_differences(profiled, kernels)
        if report["differences"]:
            problems.append(f"launch counts differ from the profiler's for {len(report['differences'])} kernel names")

    def _read_report(self, report: dict[str, Any]) -> None:
        """What became of the regions; that something was replayed is not for this script to demand."""
        try:
            regions = regions_of(self.folder / "replay" / "report.json")
        except (OSError, ValueError, KeyError) as error:
            report["problems"].append(f"replay: no report: {error}")
            return
        report["regions"] = sorted(regions, key=lambda r: -r["calls"])[:20]
        report["replayed"] = sum(region["replayed"] for region in regions)

    def _compare_positions(self, report: dict[str, Any]) -> None:
        problems, traces = report["problems"], report["traces"]
        positions: dict[str, Any] = {}
        report["positions"] = positions
        stacks = check_trace(self.session.build, self.folder / "stacks" / "run.grape", traces, problems)
        launches = read_result(self.folder / "stacks", problems).get("launches", [])
        if stacks is not None and launches:
            functions, lines = compare_with_profiler(stacks, launches)
            positions["profiler_functions"], positions["profiler_lines"] = functions.summary(), lines.summary()
        dispatched = check_trace(self.session.build, self.folder / "dispatched" / "run.grape", traces, problems)
        recorded = read_result(self.folder / "dispatched", problems)
        if dispatched is not None and recorded:
            positions["whole_stacks"] = compare_with_dispatch(dispatched, recorded).summary()
        for name in ("profiler_functions", "profiler_lines", "whole_stacks"):
            share = positions.get(name, {}).get("share", 0.0)
            if share < POSITION_SHARE:
                problems.append(f"positions: {name} agree for {100 * share:.2f}% of the launches")


def workload_rows(reports: list[dict[str, Any]]) -> str:
    rows = [["workload", "bitwise", "exit", "launches trace/profiler", "graphs", "trace MB", "replayed", "verdict"]]
    for report in reports:
        profiled, observe = report["traces"].get("profiled", {}), report["traces"].get("observe", {})
        rows.append(
            [
                report["name"],
                report.get("bitwise", "?"),
                report.get("exit", "?"),
                f"{profiled.get('launches', '?')}/{report.get('profiler_launches', '?')}",
                str(observe.get("graph_launches", "?")),
                f"{observe['file_bytes'] / 1e6:.3f}" if "file_bytes" in observe else "?",
                str(report.get("replayed", "?")),
                report["verdict"],
            ]
        )
    return table(rows)


def write_reports(out: Path, reports: list[dict[str, Any]], faults: list[dict[str, Any]], text: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu-tests.json").write_text(json.dumps({"workloads": reports, "faults": faults}, indent=1))
    (out / "gpu-tests.txt").write_text(text + "\n")


def describe(reports: list[dict[str, Any]], faults: list[dict[str, Any]]) -> str:
    parts = []
    if reports:
        parts.append(workload_rows(reports))
    if faults:
        rows = [["fault", "status plain/grape", "launches", "replayed", "verdict"]]
        for fault in faults:
            more = [str(fault.get(key, "")) for key in ("launches", "replayed")]
            why = f" ({fault['skipped']})" if "skipped" in fault else ""
            rows.append([fault["name"], fault["status"], *more, fault["verdict"] + why])
        parts.append(table(rows))
    for report in [*reports, *faults]:
        parts.extend(f"{report['name']}: {problem}" for problem in report["problems"][:6])
        parts.extend(
            f"    {d['trace']} in the trace, {d['profiler']} in the profiler: {d['kernel'][:120]}"
            for d in report.get("differences", [])[:4]
        )
        for name, position in report.get("positions", {}).items():
            parts.append(
                f"{report['name']}: positions, {name}: {position['agreed']} of {position['compared']} launches "
                f"({100 * position['share']:.2f}%), {position['unknown']} more without a reference"
            )
    names = {verdict: [r["name"] for r in [*reports, *faults] if r["verdict"] == verdict] for verdict in VERDICTS}
    counts = {verdict: len(found) for verdict, found in names.items()}
    passed = len(reports) + len(faults) - sum(counts.values())
    parts.append(", ".join([f"{passed} passed", *(f"{count} {verdict}" for verdict, count in counts.items() if count)]))
    if names["not run"]:
        parts.append("the rest: " + " ".join(f"--only {name}" for name in names["not run"]))
    return "\n".join(parts)


def tests_of() -> dict[str, Callable[[Session, str], Test]]:
    """All there are, in the order in which they start."""
    tests: dict[str, Callable[[Session, str], Test]] = {name: WorkloadTest for name in WORKLOAD_NAMES}
    tests.update({name: FaultTest for name in FAULTS})
    tests.update(REPLAY_CHECKS)
    return tests


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(tests_of())
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="plain, observe and profiled alone")
    parser.add_argument(
        "--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)), help="processes at a time"
    )
    parser.add_argument("--timeout", type=float, default=150, help="seconds for one process")
    parser.add_argument("--keep", type=Path, help="folder for all runs' files (default: a temporary one)")
    add_options(parser, 480, "build/gpu-tests")
    return parser.parse_args()


def run_all(options: argparse.Namespace, build: Build, scratch: Path) -> int:
    session = Session(options, build, scratch)
    chosen = {name: make for name, make in tests_of().items() if name in (options.only or tests_of())}
    # What shares the machine starts at once; the others wait for the end of these.
    started = {name: make(session, name) for name, make in chosen.items() if not make.alone}
    reports: list[dict[str, Any]] = []
    faults: list[dict[str, Any]] = []
    for name in [*started, *(name for name in chosen if name not in started)]:
        try:
            report = (started.get(name) or chosen[name](session, name)).finish()
        except Exception as error:  # a fault of this program must not hide what the other tests found
            report = {"name": name, "verdict": "FAIL", "problems": [repr(error)], "traces": {}, "status": "?"}
        (reports if name in WORKLOAD_NAMES else faults).append(report)
        print(f"{report['verdict']:>5}  {report['name']}", flush=True)
        # Written after each, so that a run that is cut short still leaves what it found.
        write_reports(options.out, reports, faults, describe(reports, faults))
    session.pool.shutdown()
    print(describe(reports, faults))
    return 1 if any(report["verdict"] in ("FAIL", "not run") for report in [*reports, *faults]) else 0


def main() -> int:
    options = parse_options()
    return with_build(options, lambda build, scratch: run_all(options, build, scratch))


if __name__ == "__main__":
    sys.exit(main())
