#!/usr/bin/env python3
"""Programs made at random that try autograd: plain and under Grape, all that they see must be equal.

random_autograd.py --grape LIBRARY [--python INTERPRETER] [--seeds FIRST:END] [--seconds S] [--jobs N]
                   [--per-process K] [--set GRAPE_NAME=VALUE]... [--out FOLDER] [--no-shrink]
random_autograd.py --known ...      # programs and seeds that once differed
random_autograd.py --show SEED      # prints the program
random_autograd.py --hashes SEED    # prints one hash a step, of a plain run and of one under Grape

INTERPRETER: one whose PyTorch has a GPU, or the simulated one of tests/host_torch. --seconds: begin nothing new after
that time. Prints each program that differs with the first difference, and a shrunk program into --out. Exit status: 0
all equal, 1 something differs, nothing was replayed, or most steps raised (PyTorch does not work here: then it stops
early), 2 usage.
"""

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import generate
import runs
import shrink

HERE = Path(__file__).resolve().parent
SHRINKING = 60  # seconds for one program


class Fuzzer:
    """Shares the seeds among threads, each with its two workers."""

    def __init__(self, options, programs):
        self.options, self.programs, self.lock = options, programs, threading.Lock()
        self.began, self.done, self.with_replays, self.calls, self.replayed = time.monotonic(), 0, 0, 0, 0
        self.steps = self.raised = self.broken = 0
        self.error = ""  # of a plain run, the first
        self.different, self.failures = [], []

    def next_programs(self):
        with self.lock:
            if self.options.seconds and time.monotonic() - self.began > self.options.seconds:
                return []
            return list(itertools.islice(self.programs, self.options.per_process))

    def work(self, folder):
        try:
            pair = runs.Pair(self.options, folder)
            while pair.pytorch_works() and (some := self.next_programs()):
                self.try_them(pair, some)
            pair.close()
            with self.lock:
                for name in ("calls", "replayed", "steps", "raised", "broken"):
                    setattr(self, name, getattr(self, name) + getattr(pair, name))
                self.error = self.error or pair.error
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")

    def try_them(self, pair, some):
        found = pair.compare(some)
        with self.lock:
            self.done += len(some)
            self.with_replays += len(some) if pair.last else 0
        for name, text in some:
            if found[name] is not None:
                self.report(pair, name, text, found[name])

    def report(self, pair, name, text, difference):
        counts = pair.calls, pair.replayed, pair.steps, pair.raised, pair.broken
        lines = [f"program {name}: {difference}"]
        self.options.out.mkdir(parents=True, exist_ok=True)
        (self.options.out / f"{name}.py").write_text(text, encoding="utf-8")
        if self.options.shrink:
            shrunk, left = shrink.shrink(pair, name, text, SHRINKING)
            if left is None:
                lines.append("    not so when it runs alone, or not again")
            else:
                (self.options.out / f"{name}.short.py").write_text(shrunk, encoding="utf-8")
                lines.append(f"    shrunk, {left}")
                difference = left
        pair.calls, pair.replayed, pair.steps, pair.raised, pair.broken = counts  # without those of shrinking
        with self.lock:
            self.different.append((name, difference))
            print("\n".join(lines), flush=True)

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            numbers = range(self.options.jobs)
            threads = [threading.Thread(target=self.work, args=(Path(folder) / str(one),)) for one in numbers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return self.summary()

    def summary(self):
        for failure in self.failures:
            print(failure)
        kinds = Counter(difference.kind() for _, difference in self.different)
        print(
            f"generator {generate.VERSION}: {self.done} programs, {self.with_replays} with replays; {self.replayed} of "
            f"{self.calls} calls replayed; {self.raised} of {self.steps} steps raised; {self.broken} broke PyTorch; {len(self.different)} differ {dict(kinds) if kinds else ''}; "
            f"{runs.cpu_seconds():.0f} s of CPU time"
        )
        if self.different:
            print("seeds that differ:", *(name for name, _ in self.different))
        broken = runs.mostly_raised(self.raised, self.steps)
        if broken:
            print("most steps raised: these programs try nothing; one of their errors:", self.error)
        if runs.mostly_broken(self.broken, self.done):
            print("most programs crashed PyTorch, or took longer than", runs.PLAIN_SECONDS, "s: try fewer --jobs")
            broken = True
        return 1 if self.different or self.failures or self.replayed == 0 or broken else 0


def by_seeds(seeds):
    return ((f"seed_{seed}", generate.source(seed)) for seed in seeds)


def known():
    """What is listed in known_seeds.txt for this version of the generator, and the shrunk programs of known/."""
    lines = (HERE / "known_seeds.txt").read_text(encoding="utf-8").splitlines()
    listed = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    yield from by_seeds(int(seed) for version, seed, *_ in listed if int(version) == generate.VERSION)
    for file in sorted((HERE / "known").glob("*.py")):
        yield file.stem, file.read_text(encoding="utf-8")


def print_hashes(options, seed):
    with tempfile.TemporaryDirectory() as folder:
        pair = runs.Pair(options, folder)
        file = Path(folder) / "program_one.py"
        file.write_text(generate.source(seed), encoding="utf-8")
        both = [worker.run([["program", str(file)]])[0].get("program", []) for worker in pair.workers]
        pair.close()
    for one, other in itertools.zip_longest(*both, fillvalue={"step": "-", "hash": "-", "seen": {}}):
        print(one["step"], one["hash"], other["hash"], one["seen"].get("error", ""))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grape")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--per-process", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="GRAPE_NAME=VALUE")
    parser.add_argument("--out", type=Path, default=Path("build/random-autograd"))
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--show", type=int, metavar="SEED")
    parser.add_argument("--hashes", type=int, metavar="SEED")
    options = parser.parse_args()
    if options.show is not None:
        print(generate.source(options.show))
        return 0
    if options.grape is None:
        parser.error("--grape is needed")
    if options.hashes is not None:
        return print_hashes(options, options.hashes)
    programs = known() if options.known else by_seeds(range(*map(int, options.seeds.split(":"))))
    return Fuzzer(options, programs).run()


if __name__ == "__main__":
    sys.exit(main())
