"""Scripts of tests/gpu/faults: each must print and end the same with Grape as without, and leave a trace that holds
what it should."""

from pathlib import Path
from typing import Any, Callable, Optional

from gpu_machine import HERE, Result, environment, observed, run
from session import Session, not_run
from trace_compare import Launch, Trace, read_trace

Check = Callable[[Trace, list[Launch], str], Optional[str]]  # what is wrong, or None


def _marked(launches: list[Launch]) -> list[Launch]:
    return [launch for launch in launches if launch.kernel == "grape_test_mark"]


def _destroyed_streams(trace: Trace, launches: list[Launch], stdout: str) -> Optional[str]:
    values = [launch.first_word for launch in _marked(launches)]
    return None if values == list(range(600)) else f"{len(values)} marks, not 0 to 599 in order"


def _own_capture(trace: Trace, launches: list[Launch], stdout: str) -> Optional[str]:
    expected = next((int(line.split()[1]) for line in stdout.splitlines() if line.startswith("captured ")), -1)
    if trace.data["captured"] != expected:
        return f"{trace.data['captured']} captured launches in the trace, {expected} kernel nodes in the graphs"
    if trace.data["graph_launches"] != 15:
        return f"{trace.data['graph_launches']} graph launches in the trace, 15 made"
    eager = [launch for launch in launches if not launch.captured and "work" in _function(trace, launch)]
    return None if eager else "no eager launches of the second thread"


def _threads_in_region(trace: Trace, launches: list[Launch], stdout: str) -> Optional[str]:
    inside = [launch for launch in launches if launch.region != 0]
    if not inside:
        return "no launch is in a region"
    main_thread = inside[0].thread
    strangers = [launch for launch in inside if launch.thread != main_thread or "erfinv" in launch.kernel]
    if strangers:
        return f"{len(strangers)} launches of the second thread stand in a region: {strangers[0]}"
    calls = len({launch.region for launch in inside})
    return None if calls == 201 else f"launches in {calls} region calls, 201 calls of the module"


def _many_threads(trace: Trace, launches: list[Launch], stdout: str) -> Optional[str]:
    marks = _marked(launches)
    if len(marks) != 3 * 64 * 100:
        return f"{len(marks)} marks, 19200 launched"
    last: dict[int, int] = {}
    for launch in marks:
        # Threads' launches mix on the shared stream: only each thread's own order is known.
        group = launch.first_word // 100
        if launch.first_word <= last.get(group, -1):
            return f"launch {launch.first_word} stands after {last[group]} in the trace"
        last[group] = launch.first_word
    return None


def _ranges(trace: Trace, launches: list[Launch], stdout: str) -> Optional[str]:
    values = [launch.first_word for launch in _marked(launches)]
    if values != list(range(150)):
        return f"{len(values)} marks, not the 150 within the ranges in order"
    in_graphs = sum(trace.data["replayed"].values())
    if trace.data["graph_launches"] != 3 or in_graphs != 6:
        return f"{trace.data['graph_launches']} graph launches of {in_graphs} kernels in all, not 3 of 6"
    others = [launch for launch in launches if launch.kernel != "grape_test_mark"]
    in_regions = [launch for launch in others if launch.region != 0]
    if len(others) != 6 or len(in_regions) != 6 or len({launch.region for launch in others}) != 3:
        return f"{len(others)} other launches, {len(in_regions)} in regions, not 6 in 3 calls of the module"
    return None


def _some_launches(trace: Trace, launches: list[Launch], stdout: str) -> Optional[str]:
    return None if launches else "no launches in the trace"


def _no_check(trace: Trace, launches: list[Launch], stdout: str) -> Optional[str]:
    return None


def _function(trace: Trace, launch: Launch) -> str:
    stack = trace.stack(launch.frame)
    return stack[0][1] if stack else ""


# Variables of the run under Grape, by name.
SETTINGS = {"ranges": {"GRAPE_TRACE_RANGE": "profiler"}}
# Name: script and arguments, must the trace be complete, what it must hold.
FAULTS: dict[str, tuple[list[str], bool, Check]] = {
    "destroyed_streams": (["destroyed_streams.py"], True, _destroyed_streams),
    "own_capture": (["own_capture.py"], True, _own_capture),
    "threads_in_region": (["threads_in_region.py"], True, _threads_in_region),
    "many_threads": (["many_threads.py"], True, _many_threads),
    "ranges": (["ranges.py"], True, _ranges),
    "crash_segv": (["crash.py", "segv"], False, _no_check),
    "crash_abort": (["crash.py", "abort"], False, _no_check),
    "crash_device": (["crash.py", "device"], True, _some_launches),
    "exit_shutdown": (["process_end.py", "shutdown"], True, _some_launches),
    "exit_now": (["process_end.py", "now"], False, _no_check),
}


class FaultTest:
    """One fault: a plain run and one under Grape, started at once."""

    alone = False

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        script, self.must_be_complete, self.check = FAULTS[name]
        command = [session.options.python, str(HERE / "faults" / script[0]), *script[1:]]

        def plain(folder: Path, limit: float) -> Result:
            return run(command, environment(), limit, folder)

        def observe(folder: Path, limit: float) -> Result:
            settings = SETTINGS.get(name, {})
            return run(*observed(session.build, folder / "run.grape", command, **settings), limit, folder)

        self.plain = session.start(f"{name}/plain", plain)
        self.observe = session.start(f"{name}/observe", observe)

    def finish(self) -> dict[str, Any]:
        plain, observe = self.plain.result(), self.observe.result()
        problems: list[str] = []
        report: dict[str, Any] = {
            "name": self.name,
            "problems": problems,
            "status": f"{plain.status}/{observe.status}",
            "stdout": [plain.stdout[-1500:], observe.stdout[-1500:]],
            "stderr": [plain.stderr[-2000:], observe.stderr[-2000:]],
        }
        if not_run(plain) or not_run(observe):
            return {**report, "verdict": "not run"}
        if plain.status is None or observe.status is None:
            problems.append("a run took too long")
        elif plain.status != observe.status:
            problems.append(f"status {observe.status} under Grape, {plain.status} without")
        if plain.stdout != observe.stdout:
            problems.append("stdout differs")
        trace, reason = read_trace(self.session.build, self.session.scratch / self.name / "observe" / "run.grape")
        if trace is None:
            # A crash may come before the first chunk reached the disk: then there is nothing to read.
            if self.must_be_complete or "no trace was written" not in reason:
                problems.append(reason)
        else:
            self._check_trace(trace, observe.stdout, report)
        report["verdict"] = "FAIL" if problems else "ok"
        return report

    def _check_trace(self, trace: Trace, stdout: str, report: dict[str, Any]) -> None:
        launches = trace.launches()
        report.update(launches=len(launches), lost=trace.data["lost"], complete=trace.data["complete"])
        if self.must_be_complete and not trace.data["complete"]:
            report["problems"].append(f"the trace is incomplete: {trace.data['damage']}")
        if self.must_be_complete and trace.data["lost"]:
            report["problems"].append(f"{trace.data['lost']} events were lost")
        problem = self.check(trace, launches, stdout)
        if problem is not None:
            report["problems"].append(problem)
