#!/usr/bin/env python3
"""Runs unmodified PyTorch scripts with and without Grape on a GPU, and compares all that they do.

For each script of tests/gpu/workloads:
  plain      twice, without the library: what the script does, and whether it does it twice alike
  observe    under `grape run`, with a trace
  off        preloaded with GRAPE_MODE=off
  replay     preloaded with GRAPE_MODE=replay, its report read
  profiled   under `grape run` and torch.profiler, for the launch counts, kernel by kernel name
Outputs must be bitwise equal, stdout and exit status the same, each trace complete with nothing lost and readable by
`grape dump`. For GPT-2 two more runs check the Python positions. The fault scripts of tests/gpu/faults run as well, and
replay_cases.py plain and in mode replay.

Exit status: 0 all passed (or no GPU), 1 something failed, 2 usage.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Optional, Union

import fault_checks
from gpu_machine import (
    HERE,
    WORKLOADS,
    Build,
    Result,
    environment,
    find_build,
    gpu_problem,
    observed,
    preloaded,
    run,
    table,
)
from trace_compare import compare_with_dispatch, compare_with_profiler, kernel_differences, read_trace

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
DUMP_VIEWS = ("summary", "regions", "graphs", "kernels")


class Session:
    """One run of the tests: the build, the folders, the pool of processes and the time that is left."""

    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        self.options = options
        self.build = build
        self.scratch = scratch
        self.deadline = time.monotonic() + options.budget
        self.pool = ThreadPoolExecutor(options.jobs)

    def start(self, label: str, action: Callable[[Path, float], Result]) -> "Future[Result]":
        """Queues one process; `action` gets a folder of its own and the seconds it may take."""

        def work() -> Result:
            left = self.deadline - time.monotonic()
            if left < 5:
                return Result(None, "", "not run: the time budget is spent", 0.0)
            folder = self.scratch / label
            folder.mkdir(parents=True)
            return action(folder, min(left, self.options.timeout))

        return self.pool.submit(work)

    def variables(self, folder: Path) -> dict[str, str]:
        """Compilers' caches of the run's own, so that each run compiles all that it needs, and few CPU threads, since
        several runs share the machine."""
        return {
            "OMP_NUM_THREADS": "4",
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }

    def script(self, folder: Path, name: str, arguments: list[str], wrapper: Optional[list[str]] = None) -> list[str]:
        return [
            self.options.python,
            *(wrapper or []),
            str(WORKLOADS / f"{name}.py"),
            str(folder / "output.bin"),
            *arguments,
        ]

    def start_plain(self, label: str, name: str, arguments: list[str]) -> "Future[Result]":
        return self.start(
            label,
            lambda folder, limit: run(
                self.script(folder, name, arguments), environment(**self.variables(folder)), limit, folder
            ),
        )

    def start_preloaded(self, label: str, name: str, arguments: list[str], mode: str) -> "Future[Result]":
        def action(folder: Path, limit: float) -> Result:
            settings = {"GRAPE_MODE": mode, **self.variables(folder)}
            if mode == "replay":
                settings["GRAPE_REPORT"] = str(folder / "report.json")
            return run(self.script(folder, name, arguments), preloaded(self.build, **settings), limit, folder)

        return self.start(label, action)

    def start_observe(
        self, label: str, name: str, arguments: list[str], wrapper: Optional[list[str]] = None
    ) -> "Future[Result]":
        """Under Grape; `wrapper` is a script of this folder with options, given `result.json` as its result file."""

        def action(folder: Path, limit: float) -> Result:
            inner = [str(HERE / wrapper[0]), *wrapper[1:], str(folder / "result.json")] if wrapper else None
            command, env = observed(
                self.build, folder / "run.grape", self.script(folder, name, arguments, inner), **self.variables(folder)
            )
            return run(command, env, limit, folder)

        return self.start(label, action)


def last_line(result: Result) -> str:
    """The last line of stderr that is not Grape's summary: an exception's message."""
    lines = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith("grape")]
    return lines[-1][-300:] if lines else "nothing on stderr"


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

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.folder = session.scratch / name
        self.runs: dict[str, Future[Result]] = {}
        self.runs["observe"] = session.start_observe(f"{name}/observe", name, [])
        self.runs["plain"] = session.start_plain(f"{name}/plain", name, [])
        self.runs["profiled"] = session.start_observe(f"{name}/profiled", name, [], ["profiled.py"])
        if not session.options.quick:
            self.runs["plain2"] = session.start_plain(f"{name}/plain2", name, [])
            for mode in ("off", "replay"):
                self.runs[mode] = session.start_preloaded(f"{name}/{mode}", name, [], mode)
        if name == POSITION_WORKLOAD:
            self.runs["stacks"] = session.start_observe(
                f"{name}/stacks", name, POSITION_ARGUMENTS, ["profiled.py", "--stacks"]
            )
            self.runs["dispatched"] = session.start_observe(
                f"{name}/dispatched", name, POSITION_ARGUMENTS, ["dispatched.py"]
            )

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
            regions = json.loads((self.folder / "replay" / "report.json").read_text())["regions"]
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


class ReplayCasesTest:
    """replay_cases.py: programs that lie in wait for a replayer must print the same lines under it."""

    name = "replay_cases"

    def __init__(self, session: Session) -> None:
        script = [session.options.python, str(HERE / "replay_cases.py")]
        self.plain = session.start(
            "replay_cases/plain", lambda folder, limit: run(script, environment(), limit, folder)
        )
        self.replay = session.start(
            "replay_cases/replay",
            lambda folder, limit: run(script, preloaded(session.build, GRAPE_MODE="replay"), limit, folder),
        )

    def finish(self) -> dict[str, Any]:
        plain, replay = self.plain.result(), self.replay.result()
        problems = [
            f"{label}: exit status {result.status}: {last_line(result)}"
            for label, result in (("plain", plain), ("replay", replay))
            if result.status != 0
        ]
        lines, others = plain.stdout.splitlines(), replay.stdout.splitlines()
        problems += [
            f"{ours.split()[0]}: differs under replay" for ours, theirs in zip(lines, others) if ours != theirs
        ]
        if len(lines) != len(others) or not lines:
            problems.append(f"{len(lines)} lines plain, {len(others)} under replay")
        status = f"{plain.status}/{replay.status}"
        return {"name": self.name, "status": status, "problems": problems, "verdict": "FAIL" if problems else "ok"}


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
        rows = [["fault", "status plain/grape", "launches", "verdict"]]
        rows += [[f["name"], f["status"], str(f.get("launches", "?")), f["verdict"]] for f in faults]
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
    failed = sum(report["verdict"] == "FAIL" for report in [*reports, *faults])
    parts.append(f"{len(reports) + len(faults) - failed} passed, {failed} failed")
    return "\n".join(parts)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs the GPU tests and prints a table.")
    names = [*WORKLOAD_NAMES, *fault_checks.names(), ReplayCasesTest.name]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="without the second plain run and without GRAPE_MODE=off")
    parser.add_argument(
        "--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)), help="processes at a time"
    )
    parser.add_argument("--timeout", type=float, default=150, help="seconds for one process")
    parser.add_argument("--budget", type=float, default=480, help="seconds after which no process is started")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-tests"), help="folder for the reports")
    parser.add_argument("--keep", type=Path, help="folder for all runs' files (default: a temporary one)")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    return parser.parse_args()


def run_all(options: argparse.Namespace, build: Build, scratch: Path) -> int:
    session = Session(options, build, scratch)
    chosen = options.only or [*WORKLOAD_NAMES, *fault_checks.names(), ReplayCasesTest.name]
    tests = [WorkloadTest(session, name) for name in WORKLOAD_NAMES if name in chosen]
    fault_tests = [fault_checks.FaultTest(session, name) for name in fault_checks.names() if name in chosen]
    case_tests = [ReplayCasesTest(session)] if ReplayCasesTest.name in chosen else []
    reports: list[dict[str, Any]] = []
    faults: list[dict[str, Any]] = []
    every: list[Union[WorkloadTest, fault_checks.FaultTest, ReplayCasesTest]] = [*tests, *fault_tests, *case_tests]
    for test in every:
        try:
            report = test.finish()
        except Exception as error:  # a fault of this program must not hide what the other tests found
            report = {"name": test.name, "verdict": "FAIL", "problems": [repr(error)], "traces": {}, "status": "?"}
        (reports if isinstance(test, WorkloadTest) else faults).append(report)
        print(f"{report['verdict']:>5}  {report['name']}", flush=True)
        # Written after each, so that a run that is cut short still leaves what it found.
        write_reports(options.out, reports, faults, describe(reports, faults))
    session.pool.shutdown()
    print(describe(reports, faults))
    return 1 if any(report["verdict"] == "FAIL" for report in [*reports, *faults]) else 0


def main() -> int:
    options = parse_options()
    problem = gpu_problem(options.python)
    if problem is not None:
        print(f"skipped: {problem}")
        return 0
    with tempfile.TemporaryDirectory(prefix="grape-gpu-") as temporary:
        scratch = options.keep or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            build = find_build(scratch)
        except FileNotFoundError as error:
            print(error)
            return 2
        return run_all(options, build, scratch.resolve())


if __name__ == "__main__":
    sys.exit(main())
