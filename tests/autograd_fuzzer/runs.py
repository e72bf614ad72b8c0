"""Programs run plain and under Grape, by two workers (worker.py), and compared."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENOUGH_STEPS = 200  # to tell whether PyTorch works
ENOUGH_PROGRAMS = 20
PLAIN_SECONDS, SECONDS = 6, 120  # for one program: some recurse without end, and a machine may be busy


def mostly_raised(raised, steps):
    """Programs raise on purpose now and then, about one step in four: more means that PyTorch does not work here."""
    return raised * 2 > steps


def mostly_broken(broken, programs):
    """Few programs crash PyTorch or do not end: more means that too many of them run at a time, or that PyTorch does not work."""
    return programs >= ENOUGH_PROGRAMS and broken * 2 > programs


class Worker:
    """A process that imported PyTorch and forks."""

    def __init__(self, python, folder, settings):
        self.folder, self.number, self.reports = folder, 0, "GRAPE_REPORT" in settings
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_")}
        environment.pop("LD_PRELOAD", None)
        environment.setdefault("OMP_NUM_THREADS", "1")  # many run side by side
        environment.update(settings, PYTHONHASHSEED="0", PYTHONPATH=str(HERE))
        self.process = subprocess.Popen(
            [python, str(HERE / "worker.py")], env=environment, encoding="utf-8", stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=open(folder / "worker.log", "w", encoding="utf-8"),
        )  # fmt: skip
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended: {(self.folder / 'worker.log').read_text()[-2000:]}")
        return json.loads(line)

    def run(self, programs, seconds=SECONDS):
        """{name: steps}, how the child ended, regions of its report."""
        self.number += 1
        results, errors = self.folder / f"{self.number}.json", self.folder / f"{self.number}.log"
        job = {"programs": programs, "results": str(results), "errors": str(errors), "seconds": seconds * len(programs)}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        lines = results.read_text().splitlines() if results.exists() else []
        done = {one["name"]: one["steps"] for one in map(json.loads, lines)}
        message = errors.read_text() if errors.exists() else ""
        ending = "" if answer["status"] == 0 else f"status {answer['status']}: {message[-1500:]}"
        if "differs from the call itself" in message:
            ending = ending or message[-1500:]
        regions = self.regions(answer["pid"])
        for file in (results, errors):
            file.unlink(missing_ok=True)
        return done, ending, regions

    def regions(self, pid):
        file = self.folder / f"report-{pid}"
        if not self.reports or not file.exists():
            return []
        text = file.read_text()
        file.unlink()
        try:
            return json.loads(text)["regions"]
        except ValueError:
            return []

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Pair:
    """Both workers."""

    def __init__(self, options, folder):
        self.folder = Path(folder)
        self.calls = self.replayed = self.steps = self.raised = self.broken = self.programs = 0
        self.error = ""
        settings = {"LD_PRELOAD": options.grape, "GRAPE_MODE": "replay", "GRAPE_REGIONS": "program_*:region_*",
                    "GRAPE_LOOK_BUDGET": "unlimited"}  # fmt: skip
        settings.update(setting.split("=", 1) for setting in options.set)
        self.workers = []
        for how, more in (("plain", {}), ("grape", settings)):
            place = self.folder / how
            place.mkdir(parents=True, exist_ok=True)
            if more:
                more["GRAPE_REPORT"] = str(place / "report-%p")
            self.workers.append(Worker(options.python, place, more))

    def compare(self, programs):
        """[(name, text)]: {name: Difference}; None for an equal one. What replays there were is in `last`."""
        named = []
        for name, text in programs:
            file = self.folder / f"program_{name}.py"
            file.write_text(text, encoding="utf-8")
            named.append([name, str(file)])
        plain, _, _ = self.workers[0].run(named, PLAIN_SECONDS)
        named = [one for one in named if one[0] in plain]
        under_grape, grape_end, regions = self.workers[1].run(named) if named else ({}, "", [])
        self.programs += len(programs)
        self.last = sum(region["replayed"] + region["validated"] for region in regions)  # GRAPE_VALIDATE checks them
        self.replayed += self.last
        self.calls += sum(region["calls"] for region in regions)
        steps = [step["seen"] for name, _ in programs for step in plain.get(name, ())]
        self.steps += len(steps)
        self.raised += sum("error" in seen for seen in steps)
        self.error = self.error or next((str(seen["error"]) for seen in steps if "error" in seen), "")
        found = {}
        for name, _ in programs:
            if name not in plain:  # PyTorch itself crashed, or waits forever
                found[name] = None
                self.broken += 1
            elif name not in under_grape:
                found[name] = Difference(name, "", "the run under Grape", "", grape_end)
            else:
                found[name] = difference(name, plain[name], under_grape[name])
        if len(named) == 1 and grape_end and found[named[0][0]] is None:
            found[named[0][0]] = Difference(named[0][0], "", "the run under Grape", "", grape_end)
        return found

    def pytorch_works(self):
        if mostly_broken(self.broken, self.programs):
            return False
        return self.steps < ENOUGH_STEPS or not mostly_raised(self.raised, self.steps)

    def close(self):
        for worker in self.workers:
            worker.close()


class Difference:
    """The first one of two runs."""

    def __init__(self, name, step, what, plain, under_grape):
        self.name, self.step, self.what, self.plain, self.under_grape = name, step, what, plain, under_grape

    def kind(self):
        """Without names of tensors, for counting."""
        return self.what.split(" ")[-1] if self.step else self.what

    def __str__(self):
        return f"{self.step}: {self.what}\n    plain: {self.plain[:1500]}\n    Grape: {self.under_grape[:1500]}"


def difference(name, plain, under_grape):
    for one, other in zip(plain, under_grape):
        if one["seen"] == other["seen"]:
            continue
        for what in {**one["seen"], **other["seen"]}:
            values = [seen["seen"].get(what, "(nothing)") for seen in (one, other)]
            if values[0] != values[1]:
                return Difference(name, one["step"], what, *values)
    if len(plain) != len(under_grape):
        return Difference(name, "end", "steps", str(len(plain)), str(len(under_grape)))
    return None


def cpu_seconds():
    """Of all children that were waited for; workers count once they are closed."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit("see random_autograd.py")
