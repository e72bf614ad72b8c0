"""Checks of mode replay by scripts that print what the program sees: the lines under Grape must be those without it.

usual_programs  models in loops, as programs have them (tests/programs, group "usual")
random_programs programs made at random (tests/random_programs)
virtual_graphs  a program with CUDA graphs of its own, under GRAPE_GRAPHS=virtual with room for a few of them
memcheck        some of the first under compute-sanitizer
nsys            some of them under nsys profile: both work, or Grape steps aside (row 23)
cuda_gdb        the same under cuda-gdb, which stops in the driver's first launch and goes on
many_shapes     thousands of shapes, and
many_launches   ten million launches: memory stays within bounds (row 30); alone on the GPU, since the device tells the
                use of all processes together
"""

import glob
import json
import re
import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Callable, Optional

from gpu_machine import CHECKS, HERE, Result, environment, preloaded, regions_of, run
from session import Session, last_line, not_run

Action = Callable[[Path, float], Result]  # a folder of its own, the seconds that it may take

MAIN = str(HERE.parent / "programs" / "main.py")
CASES = ["plain_loop", "outputs_kept", "dropout", "value_read_by_host", "shapes_in_turn", "weight_swapped"]
FOLDERS = (
    "/usr/local/cuda*/bin",
    "/usr/local/cuda*/compute-sanitizer",
    "/opt/nvidia/nsight-systems/*/bin",
    "/opt/nvidia/nsight-systems*/*/target-linux-x64",
)


def compare(problems: list[str], plain: str, replay: str) -> None:
    """What a script printed, line by line."""
    lines, others = plain.splitlines(), replay.splitlines()
    problems += [f"{ours.split()[0]}: differs under replay" for ours, theirs in zip(lines, others) if ours != theirs]
    if len(lines) != len(others) or not lines:
        problems.append(f"{len(lines)} lines plain, {len(others)} under replay")


class ReplayCheck:
    """Some runs of one script, by name; `judge` says what is wrong."""

    alone = False

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.runs = {} if self.alone else {label: self.start(label, run) for label, run in self.actions().items()}

    def start(self, label: str, action: Action) -> "Future[Result]":
        return self.session.start(f"{self.name}/{label}", action)

    def script(self) -> list[str]:
        return [MAIN, "--digests", "--group", "usual"]

    def actions(self) -> dict[str, Action]:
        command = [self.session.options.python, *self.script()]
        return {
            "plain": lambda folder, limit: run(command, environment(), limit, folder),
            "replay": lambda folder, limit: run(command, self.replaying(folder), limit, folder),
        }

    def replaying(self, folder: Path, **more: str) -> dict[str, str]:
        report = str(folder / "report.json")
        settings = {"GRAPE_MODE": "replay", "GRAPE_REPORT": report, "GRAPE_LOOK_BUDGET": "unlimited", **more}
        return preloaded(self.session.build, **settings)

    def folder(self, label: str) -> Path:
        return self.session.scratch / self.name / label

    def replayed(self) -> Optional[int]:
        try:
            return sum(region["replayed"] for region in regions_of(self.folder("replay") / "report.json"))
        except (OSError, ValueError, KeyError):
            return None

    def judge(self, results: dict[str, Result], report: dict[str, Any]) -> None:
        for label, result in results.items():
            if result.status != 0:
                report["problems"].append(f"{label}: exit status {result.status}: {last_line(result)}")
        compare(report["problems"], results["plain"].stdout, results["replay"].stdout)
        if not self.replayed():
            report["problems"].append("nothing was replayed")

    def finish(self) -> dict[str, Any]:
        if self.alone:
            results = {label: self.start(label, action).result() for label, action in self.actions().items()}
        else:
            results = {label: future.result() for label, future in self.runs.items()}
        report: dict[str, Any] = {"name": self.name, "problems": []}
        report["status"] = "/".join(str(result.status) for result in results.values())
        report["stdout"] = {label: result.stdout[-3000:] for label, result in results.items()}
        report["stderr"] = {label: result.stderr[-3000:] for label, result in results.items()}
        if any(not_run(result) for result in results.values()):
            return {**report, "verdict": "not run"}
        self.judge(results, report)
        if "skipped" in report:
            return {**report, "verdict": "skipped", "problems": []}
        report["replayed"] = self.replayed()
        report["verdict"] = "FAIL" if report["problems"] else "ok"
        return report


def find_tool(name: str) -> Optional[str]:
    found = shutil.which(name)
    places = [path for folder in FOLDERS for path in sorted(glob.glob(f"{folder}/{name}"), reverse=True)]
    return found or next((path for path in places if Path(path).is_file()), None)


class ToolCheck(ReplayCheck):
    """A few cases plain, under the tool, and under the tool with replay."""

    TOOLS = {"memcheck": "compute-sanitizer", "nsys": "nsys", "cuda_gdb": "cuda-gdb"}
    STOPPED = "#0 "  # the innermost frame, where the debugger has stopped

    def command(self, tool: str, folder: Path) -> list[str]:
        if self.name == "nsys":
            return [tool, "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "-o", str(folder / "profile")]
        if self.name == "cuda_gdb":
            stop = ["set breakpoint pending on", "tbreak cuLaunchKernel", "run"]
            steps = [part for command in [*stop, "backtrace 3", "continue"] for part in ("-ex", command)]
            return [tool, "-nx", "-batch", "-return-child-result", *steps, "--args"]
        options = ["--tool", "memcheck", "--report-api-errors", "no", "--target-processes", "all"]
        return [tool, *options, "--error-exitcode", "99", "--log-file", str(folder / "memcheck.txt")]

    def actions(self) -> dict[str, Action]:
        tool = find_tool(self.TOOLS[self.name])
        if tool is None:
            return {}
        script = [self.session.options.python, MAIN, "--digests", *CASES]
        return {
            "plain": lambda folder, limit: run(script, environment(), limit, folder),
            "tool": lambda folder, limit: run(self.command(tool, folder) + script, environment(), limit, folder),
            "replay": lambda folder, limit: run(
                self.command(tool, folder) + script, self.replaying(folder), limit, folder
            ),
        }

    def judge(self, results: dict[str, Result], report: dict[str, Any]) -> None:
        if not results:
            report["skipped"] = "the tool is not installed here"
            return
        # What the tool itself prints is not the program's.
        lines = {label: self.lines(result.stdout) for label, result in results.items()}
        if results["tool"].status is None or lines["tool"] != lines["plain"]:
            words = (results["tool"].stderr or results["tool"].stdout).strip().splitlines()[-1:]
            report["skipped"] = f"the tool does not work here without Grape: {results['tool'].status}, {words}"
            return
        if results["replay"].status != results["tool"].status:
            found = f"{results['replay'].status}, {results['tool'].status} without Grape"
            report["problems"].append(f"exit status {found}: {last_line(results['replay'])}")
        compare(report["problems"], lines["plain"], lines["replay"])
        if self.name == "memcheck":
            errors = {label: self.errors(label) for label in ("tool", "replay")}
            if errors["replay"] != errors["tool"]:
                report["problems"].append(f"{errors['replay']} with Grape, {errors['tool']} without")
        stopped = {label: self.STOPPED in results[label].stdout for label in ("tool", "replay")}
        if stopped["replay"] != stopped["tool"]:
            report["problems"].append("the debugger stopped with Grape alone, or without it alone")
        if self.name == "cuda_gdb" and not self.replayed():
            report["problems"].append("nothing was replayed under the debugger")
        if self.name == "nsys" and not (self.folder("replay") / "profile.nsys-rep").exists():
            report["problems"].append("nsys wrote no profile of the run with Grape")

    def lines(self, stdout: str) -> str:
        return "\n".join(line for line in stdout.splitlines() if line.split(" ")[0] in CASES)

    def errors(self, label: str) -> str:
        try:
            text = (self.folder(label) / "memcheck.txt").read_text(errors="replace")
        except OSError as error:
            return repr(error)
        found = re.findall(r"ERROR SUMMARY: .*", text)
        return found[-1] if found else "no summary"


class RandomPrograms(ReplayCheck):
    """Some of what random_programs.py runs more of."""

    SEEDS = range(200)

    def script(self) -> list[str]:
        program = HERE.parent / "random_programs" / "run.py"
        return [str(program), ".", *map(str, self.SEEDS)]


class VirtualGraphs(ReplayCheck):
    """What counts as replayed is what is not on an exec of its own: launches node by node and on other graphs' execs."""

    def script(self) -> list[str]:
        return [str(CHECKS / "virtual_graphs.py")]

    def replaying(self, folder: Path, **more: str) -> dict[str, str]:
        report = str(folder / "report.json")
        changes = {"GRAPE_GRAPHS": "virtual", "GRAPE_MEMORY_BUDGET": "600K", **more}
        return preloaded(self.session.build, GRAPE_MODE="off", GRAPE_REPORT=report, **changes)

    def replayed(self) -> Optional[int]:
        try:
            graphs = json.loads((self.folder("replay") / "report.json").read_text())["graphs"]
            return min(graphs["by_node"], graphs["taken_over"]) and graphs["by_node"] + graphs["taken_over"]
        except (OSError, ValueError, KeyError):
            return None


class MemoryCheck(ReplayCheck):
    """The script prints digests, and writes what it uses to a file: replay may use so many MiB more than plain."""

    alone = True
    BUDGET, SLACK = 64, 64  # the slack: modules, and what the driver rounds up
    HOST, GROWTH = 512, 32  # of the host's memory: in all, and while the same is done again and again

    def actions(self) -> dict[str, Action]:
        kind = self.name.removeprefix("many_")
        script = [self.session.options.python, str(HERE / "faults" / "many.py"), kind, "memory.json"]
        budget = {"GRAPE_MEMORY_BUDGET": f"{self.BUDGET}M"}
        return {
            "plain": lambda folder, limit: run(script, environment(), limit, folder),
            "replay": lambda folder, limit: run(script, self.replaying(folder, **budget), limit, folder),
        }

    def judge(self, results: dict[str, Result], report: dict[str, Any]) -> None:
        super().judge(results, report)
        problems = report["problems"]
        try:
            texts = {label: (self.folder(label) / "memory.json").read_text() for label in ("plain", "replay")}
        except OSError as error:
            problems.append(repr(error))
            return
        report["memory"] = memory = {label: json.loads(text) for label, text in texts.items()}
        for size, limit in (("outside", self.BUDGET + self.SLACK), ("allocated", self.SLACK), ("host", self.HOST)):
            more = memory["replay"]["end"][size] - memory["plain"]["end"][size]
            if more > limit:
                problems.append(f"{size}: {more:.0f} MiB more than plain, at most {limit} expected")
        for size in memory["replay"]["end"]:
            growth = {label: found["end"][size] - found["warm"][size] for label, found in memory.items()}
            if growth["replay"] > max(0, growth["plain"]) + self.GROWTH:
                problems.append(f"{size}: grew by {growth['replay']:.0f} MiB, {growth['plain']:.0f} plain")


REPLAY_CHECKS: dict[str, type[ReplayCheck]] = {
    "usual_programs": ReplayCheck,
    "random_programs": RandomPrograms,
    "virtual_graphs": VirtualGraphs,
    "memcheck": ToolCheck,
    "nsys": ToolCheck,
    "cuda_gdb": ToolCheck,
    "many_shapes": MemoryCheck,
    "many_launches": MemoryCheck,
}
