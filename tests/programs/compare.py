"""Runs programs plain and under Grape, and compares all that they saw."""

import json
import os
import subprocess
import tempfile

MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "main.py")
# What replays do otherwise, and is said so in docs/replay/limits.md; the last one differs from run to run without Grape.
KNOWN = {
    "attribute_of_a_function_argument": "attributes that a call sets on a function",
    "attributes_of_values": "attributes that a call sets on strings, numbers, enumerations' members",
    "cache_of_a_function_argument": "entries of a function's cache",
    "result_is_a_view_to_autograd": "views are none to autograd",
    "size_of_a_storage": "the length of a storage",
    "warning_shown_again": "which warnings were shown",
    "hits_of_a_cache": "how often a cache was hit",
    "numpy_error_state": "NumPy's error state",
    "kernel_that_is_an_object": "kernels that are objects which only the dispatcher holds",
    "everything_dies_in_time": "classes live as long as a proof",
    "streams_around": "outputs are read while they are written",
}


class Process:
    """One run of a command in an environment: how it ended, what it printed, its report, and the results of main.py."""

    def __init__(self, command, environment, seconds, grape=None):
        """`grape`: settings of a run under Grape, without its report."""
        with tempfile.TemporaryDirectory() as folder:
            paths = {key: os.path.join(folder, key) for key in ("results", "report")}
            environment = {**environment, "SIM_RESULTS": paths["results"]}
            if grape is not None:
                environment.update(grape, GRAPE_REPORT=paths["report"])
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=seconds
            )
            self.status, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
            self.results, self.regions, self.cache = {}, [], {}
            if os.path.exists(paths["results"]):
                self.results = self.read_results(paths["results"])
            if os.path.exists(paths["report"]):
                with open(paths["report"], encoding="utf-8") as file:
                    report = json.load(file)
                self.regions, self.cache = report["regions"], report.get("cache", {})

    def read_results(self, path):
        """By case, with what it wrote to stdout and stderr."""
        texts = [text.split("END_OF_CASE\n") for text in (self.stdout, self.stderr)]
        results = {}
        with open(path, encoding="utf-8") as lines:
            for result, stdout, stderr in zip(map(json.loads, lines), *texts):
                results[result["name"]] = dict(result, stdout=stdout, stderr=stderr)
        return results


def plain_environment():
    """This process's, without Grape's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GRAPE_") and name != "LD_PRELOAD"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return {one["name"]: one for one in map(json.loads, filter(None, map(str.strip, file)))}


def difference(one, other):
    """What is not the same in two runs of a case, in words; "" if all is."""
    if one["skipped"] or other["skipped"]:
        same = one["skipped"] == other["skipped"]
        return "" if same else f"skipped in one: {one['skipped']!r} / {other['skipped']!r}"
    words = []
    differ = [i for i, (a, b) in enumerate(zip(one["seen"], other["seen"])) if a[:3] != b[:3]]
    if differ:
        a, b = one["seen"][differ[0]], other["seen"][differ[0]]
        what = "values" if a[1] != b[1] else "random state"
        words.append(f"first at {differ[0]} of {len(one['seen'])} ({len(differ)} in all), {what}; {a[0] or 'no label'}")
        words.append(f"  plain:  {a[3]}\n  replay: {b[3]}")
    if len(one["seen"]) != len(other["seen"]):
        words.append(f"{len(one['seen'])} seen plain, {len(other['seen'])} under replay")
    if one["error"] != other["error"]:
        words.append(f"error plain:  {one['error'] or 'none'}\nerror replay: {other['error'] or 'none'}")
    return "\n".join(words)


def judge(plain, replay):
    """Prints what differs between the results of all cases; the number of those that should not."""
    bad = 0
    for name, one in plain.items():
        other = replay.get(name)
        words = difference(one, other) if other else "MISSING under replay (did the process end there?)"
        if words and name in KNOWN and other:
            print(f"{name}: differs, as is known: {KNOWN[name]}")
        elif words:
            bad += 1
            print(f"{name}: DIFFERS\n    {one['risk']}\n    " + words.replace("\n", "\n    "))
    for name in replay:
        if name not in plain:
            print(f"{name}: only under replay")
    both = [n for n in plain if n in replay and plain[n]["error"] and plain[n]["error"] == replay[n]["error"]]
    if both:
        print(f"same error in both (case broken?): {', '.join(both)}")
    ran = sum(1 for one in plain.values() if not one["skipped"])
    times = [sum(one["seconds"] for one in results.values()) for results in (plain, replay)]
    print(f"{ran} cases ran plain, {bad} differ; seconds {times[0]:.1f} plain, {times[1]:.1f} replay")
    return bad


def pattern_of(plain, under_grape):
    """e, r, p or x for each call; see bed.py."""

    def letter(expected, ran):
        if ran is None:
            return "x"
        if ran == expected:
            return "e"
        return "r" if ran == 0 else "p"

    return "".join(map(letter, plain["calls"], under_grape["calls"]))
