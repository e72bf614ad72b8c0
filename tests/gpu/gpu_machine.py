"""What all GPU tests and benchmarks share: the build under test, the environment of a run, running a process, and the frame
of a script that measures something."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CHECKS, WORKLOADS = HERE / "checks", HERE / "workloads"


@dataclass
class Build:
    """A build folder of Grape, and the reader of traces that the tests use."""

    folder: Path
    library: Path
    tool: Optional[Path]
    trace_events: Optional[Path]


@dataclass
class Result:
    """How one process ended. `status` is as subprocess gives it: negative for a signal, None for a timeout."""

    status: Optional[int]
    stdout: str
    stderr: str
    seconds: float


def build_folder() -> Path:
    return Path(os.environ.get("GRAPE_BUILD_DIR", REPOSITORY / "build" / "release")).resolve()


def _compile_trace_events(folder: Path, target: Path) -> Optional[Path]:
    archives = sorted(folder.rglob("libgrape_core.a"))
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not archives or compiler is None:
        return None
    source = CHECKS / "trace_events.cc"
    command = [compiler, "-std=c++17", "-O2", f"-I{REPOSITORY}", str(source), str(archives[0])]
    for zstd in ("-l:libzstd.a", "-lzstd"):
        done = subprocess.run([*command, zstd, "-o", str(target)], capture_output=True, text=True)
        if done.returncode == 0:
            return target
    print(f"trace_events does not compile:\n{done.stderr}")
    return None


def find_build(scratch: Path) -> Build:
    """The build under test. Raises FileNotFoundError without libgrape.so; compiles trace_events where it is missing."""
    folder = build_folder()
    library = folder / "lib" / "libgrape.so"
    if not library.exists():
        raise FileNotFoundError(f"{library} is not there: build first, or set GRAPE_BUILD_DIR")
    tool = folder / "bin" / "grape"
    reader = folder / "bin" / "trace_events"
    found_reader = reader if reader.exists() else _compile_trace_events(folder, scratch / "trace_events")
    return Build(folder, library, tool if tool.exists() else None, found_reader)


def environment(**changes: Optional[str]) -> dict[str, str]:
    """This process's environment without Grape's variables, and with `changes`; None removes a name."""
    result = {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_")}
    result.pop("LD_PRELOAD", None)
    # The few warnings that Python and its libraries print are not part of what is compared.
    result.update(PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def observed(build: Build, trace: Path, command: list[str], **changes: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment that run `command` under Grape with a trace: by `grape run` where the tool was built."""
    if build.tool is not None:
        return [str(build.tool), "run", "-o", str(trace), "--", *command], environment(**changes)
    return command, environment(LD_PRELOAD=str(build.library), GRAPE_MODE="observe", GRAPE_TRACE=str(trace), **changes)


def preloaded(build: Build, **changes: str) -> dict[str, str]:
    """The environment that preloads the library by hand."""
    return environment(LD_PRELOAD=str(build.library), **changes)


def settings_of_caller() -> dict[str, str]:
    """Grape's variables that this process was given for those under Grape."""
    own = ("GRAPE_BUILD_DIR", "GRAPE_REPORT")
    return {name: value for name, value in os.environ.items() if name.startswith("GRAPE_") and name not in own}


def end(process: subprocess.Popen) -> None:
    """Ends the process and what it started, which have a process group of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command: list[str], env: dict[str, str], timeout: float, cwd: Optional[Path] = None) -> Result:
    """Runs a command to its end, or kills it and its children after `timeout` seconds."""
    begin = time.monotonic()
    process = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
        status: Optional[int] = process.returncode
    except subprocess.TimeoutExpired:
        end(process)
        stdout, stderr = process.communicate()
        status = None
    return Result(status, stdout, stderr, time.monotonic() - begin)


def gpu_problem(python: str) -> Optional[str]:
    """Why no GPU test can run on this machine; None if they can."""
    if Path(python).resolve().parent.name == "host_torch":  # tests/host_torch: no GPU is needed
        return None
    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi is not installed: no NVIDIA GPU here"
    if subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode != 0:
        return "nvidia-smi sees no GPU"
    check = "import torch; torch.zeros(1).cuda(); print(torch.__version__, torch.cuda.get_device_name(0))"
    done = run([python, "-c", check], environment(), 180)
    if done.status != 0:
        return "PyTorch cannot use the GPU: " + (done.stderr.strip().splitlines() or ["no message"])[-1]
    return None


def table(rows: list[list[str]]) -> str:
    """Rows of text as columns; the first row is the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def show(value: Optional[float], digits: int = 3) -> str:
    """A table's cell: empty for what was not measured."""
    return "" if value is None else f"{value:.{digits}f}"


def json_line(text: str) -> Optional[dict[str, Any]]:
    """The last line of a program's output that is a JSON object."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def regions_of(report: Path) -> list[dict[str, Any]]:
    """The modules in a file that GRAPE_REPORT wrote. Raises OSError, ValueError or KeyError if it is not one."""
    return json.loads(report.read_text())["regions"]


def replaying(build: Build, report: Path, **changes: str) -> dict[str, str]:
    """The environment of mode replay, with a report."""
    return preloaded(build, GRAPE_MODE="replay", GRAPE_REPORT=str(report), **changes)


class Measurement:
    """One run of a script that measures: its options, the build, a scratch folder, the time that is left, its findings."""

    def __init__(self, options: argparse.Namespace, build: Build, scratch: Path) -> None:
        self.options, self.build, self.scratch = options, build, scratch
        self.deadline = time.monotonic() + options.budget
        self.failures: list[str] = []
        self.results: dict[str, Any] = {}

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def speed(self, workload: str, calls: int, *more: str) -> list[str]:
        """The command of speed.py."""
        return [self.options.python, str(HERE / "bench" / "speed.py"), workload, "--calls", str(calls), *more]

    def regions(self, workload: str, report: Path) -> list[dict[str, Any]]:
        try:
            return regions_of(report)
        except (OSError, ValueError, KeyError) as error:
            self.failures.append(f"{workload}: no report: {error!r}")
            return []

    def write(self, name: str, text: str) -> None:
        """The files of --out, again after each part: a run that is cut short leaves what it found."""
        self.options.out.mkdir(parents=True, exist_ok=True)
        (self.options.out / f"{name}.json").write_text(json.dumps(self.results, indent=1))
        (self.options.out / f"{name}.txt").write_text(text)


def add_options(parser: argparse.ArgumentParser, budget: float, out: str = "build/bench") -> None:
    parser.add_argument("--budget", type=float, default=budget, help="seconds for everything")
    parser.add_argument("--out", type=Path, default=Path(out), help="folder for the reports")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")


def add_columns(parser: argparse.ArgumentParser, known: tuple[str, ...]) -> None:
    """--columns, comma-separated; all of them where none is named."""

    def chosen(text: str) -> list[str]:
        unknown = set(text.split(",")) - set(known)
        if unknown:
            raise argparse.ArgumentTypeError(f"no column: {', '.join(sorted(unknown))}")
        return text.split(",")

    parser.add_argument("--columns", type=chosen, default=list(known), help=f"of {','.join(known)}")


def with_build(options: argparse.Namespace, measure: Callable[[Build, Path], int]) -> int:
    """`measure` with the build under test and a folder that goes away, or stays as --keep: its status; 0 without a GPU, 2
    without a build."""
    problem = gpu_problem(options.python)
    if problem is not None:
        print(f"skipped: {problem}")
        return 0
    with tempfile.TemporaryDirectory(prefix="grape-gpu-") as temporary:
        scratch = Path(getattr(options, "keep", None) or temporary).resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            build = find_build(scratch)
        except FileNotFoundError as error:
            print(error)
            return 2
        return measure(build, scratch)
