"""devices_test.py --python INTERPRETER --grape LIBRARY: models on cuda:1 give plain bits, whichever device is current.

Their calls are replayed on the device of their tensors; a call that works on several is passed on, and the report says
what to do. The programs: cases_devices.py and cases_within_reach.py in tests/programs/pytorch.
"""

import json
import os
import sys
import tempfile

import replayed

DEVICES = {"SIMCUDA_DEVICES": "2"}
CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs", "pytorch")
AGAIN = ["Other", "BufferThatIsWrittenTo", "StreamThatWasSet"]


def run_preloaded(given, names, expected, **changes):
    """What became of each class's calls."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        changes = {"LD_PRELOAD": given.grape, "GRAPE_REPORT": report, **DEVICES, **changes}
        lines = replayed.run(given.python, __file__, ["--program", *names], **changes)
        if lines != expected:
            last = next((i for i, pair in enumerate(zip(lines, expected)) if pair[0] != pair[1]), len(expected))
            before = [line for line in expected[: last + 1] if " " not in line]
            raise SystemExit(f"{before[-1]}: other lines than the plain program's, from number {last} on")
        with open(report, encoding="utf-8") as file:
            return {region["region"].rpartition(":")[2]: region for region in json.load(file)["regions"]}


def check(case, regions):
    for name, least in {case.name: case.least, **(case.classes or {})}.items():
        region = regions.get(name)
        if region is None:
            continue
        print(f"{name}: {region['replayed']} of {region['calls']} calls replayed: {region['reasons']}")
        if region["replayed"] < least:
            raise SystemExit(f"{name}: fewer than {least} calls were replayed")
    if least_of(case) and not any(name in regions for name in (case.name, *(case.classes or ()))):
        raise SystemExit(f"{case.name}: it is not in the report")
    if case.reason is not None:
        text, advice = case.reason
        if not any(text in r["text"] and advice in r["advice"] for r in regions[case.name]["reasons"]):
            raise SystemExit(f"{case.name}: a reason should say {text!r}, and {advice!r}")


def least_of(case):
    return max(case.least, *(case.classes or {"": 0}).values())


def main():
    sys.path.insert(0, CASES)
    if sys.argv[1:2] == ["--program"]:
        import cases_devices as devices_cases
        import cases_within_reach  # noqa: F401

        return devices_cases.run(sys.argv[2:])
    import cases_devices as devices_cases
    import cases_within_reach  # noqa: F401

    given = replayed.options(__doc__)
    names = list(devices_cases.CASES)
    expected = replayed.run(given.python, __file__, ["--program", *names], **DEVICES)
    regions = run_preloaded(given, names, expected)
    for name in names:
        check(devices_cases.CASES[name], regions)
    expected = replayed.run(given.python, __file__, ["--program", *AGAIN], **DEVICES)
    for name, region in run_preloaded(given, AGAIN, expected, GRAPE_VALIDATE="3").items():
        if name in AGAIN and region["validated"] == 0:
            raise SystemExit(f"{name}: no replay was checked")
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}  # mapped, and no context's
    expected = replayed.run(given.python, __file__, ["--program", *AGAIN], **DEVICES, **segments)
    for name, region in run_preloaded(given, AGAIN, expected, **segments).items():
        if name in AGAIN and region["replayed"] == 0:
            raise SystemExit(f"{name}: in expandable segments no call was replayed")
    with tempfile.TemporaryDirectory() as cache:
        first, again = (run_preloaded(given, AGAIN, expected, GRAPE_CACHE=cache) for _ in range(2))
    for name in AGAIN:
        if again[name]["replayed"] <= first[name]["replayed"]:
            raise SystemExit(f"{name}: what an earlier process proved was of no use")


if __name__ == "__main__":
    main()
