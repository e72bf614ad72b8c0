#!/usr/bin/env python3
"""compare.py plain.jsonl replay.jsonl: the cases that differ, with the first call that does. Exit status 1: some that
are not KNOWN do."""

import json
import sys

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


def read(path):
    with open(path) as file:
        return {one["name"]: one for one in map(json.loads, filter(None, map(str.strip, file)))}


def main():
    plain, replay = read(sys.argv[1]), read(sys.argv[2])
    bad = 0
    for name, one in plain.items():
        other = replay.get(name)
        if other is None:
            print(f"{name}: MISSING under replay (did the process end there?)\n    {one['risk']}")
            bad += 1
            continue
        if one["skipped"] or other["skipped"]:
            if one["skipped"] != other["skipped"]:
                print(f"{name}: skipped in one: {one['skipped']!r} / {other['skipped']!r}")
                bad += 1
            continue
        differ = [i for i, (a, b) in enumerate(zip(one["calls"], other["calls"])) if a[:3] != b[:3]]
        if not differ and len(one["calls"]) == len(other["calls"]) and one["error"] == other["error"]:
            continue
        if name in KNOWN:
            print(f"{name}: differs, as is known: {KNOWN[name]}")
            continue
        bad += 1
        print(f"{name}: DIFFERS\n    {one['risk']}")
        if differ:
            i = differ[0]
            a, b = one["calls"][i], other["calls"][i]
            what = "values" if a[1] != b[1] else "random state"
            print(f"    first at call {i} of {len(one['calls'])} ({len(differ)} in all), {what}; {a[0] or 'no label'}")
            print(f"      plain:  {a[3]}\n      replay: {b[3]}")
        if len(one["calls"]) != len(other["calls"]):
            print(f"    {len(one['calls'])} calls seen plain, {len(other['calls'])} under replay")
        if one["error"] or other["error"]:
            print(f"    error plain:  {one['error'] or 'none'}\n    error replay: {other['error'] or 'none'}")
    for name in replay:
        if name not in plain:
            print(f"{name}: only under replay")
    ran = sum(1 for one in plain.values() if not one["skipped"])
    both = [n for n in plain if n in replay and plain[n]["error"] and plain[n]["error"] == replay[n]["error"]]
    if both:
        print(f"same error in both (case broken?): {', '.join(both)}")
    print(
        f"{ran} cases ran plain, {bad} differ; seconds {sum(o['seconds'] for o in plain.values()):.1f} plain, "
        f"{sum(o['seconds'] for o in replay.values()):.1f} replay"
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
