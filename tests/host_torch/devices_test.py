"""devices_test.py --python INTERPRETER --grape LIBRARY: models on cuda:1 give plain bits, whichever device is current.

Their calls are replayed on the device of their tensors; a call that works on several is passed on, and the report says
what to do. The programs: cases_devices.py and cases_within_reach.py in tests/programs/pytorch.
"""

import json
import sys
import tempfile

import replayed

DEVICES = {"SIMCUDA_DEVICES": "2"}
AGAIN = ["Other", "BufferThatIsWrittenTo", "StreamThatWasSet"]


def by_class(regions):
    return {region["region"].rpartition(":")[2]: region for region in regions}


def ids(name, regions):
    """Of refusals, of all regions of the class of that name."""
    return {reason["id"] for one in regions if one["region"].endswith(f":{name}") for reason in one["reasons"]}


def check(name, case, regions):
    for one, least in case["least"].items():
        region = regions.get(one)
        if region is None:
            continue
        print(f"{one}: {region['replayed']} of {region['calls']} calls replayed: {region['reasons']}")
        if region["replayed"] < least:
            raise SystemExit(f"{one}: fewer than {least} calls were replayed")
    if max(case["least"].values()) and not any(one in regions for one in case["least"]):
        raise SystemExit(f"{name}: it is not in the report")
    if case["reason"] is not None:
        text, advice = case["reason"]
        if not any(text in r["text"] and advice in r["advice"] for r in regions[name]["reasons"]):
            raise SystemExit(f"{name}: a reason should say {text!r}, and {advice!r}")


def main():
    given = replayed.options(__doc__)
    lines = replayed.run(given.python, replayed.programs.MAIN, ["--list", "--group", "devices"])
    declared = {one["name"]: one for one in map(json.loads, lines)}
    all_of_them = replayed.Cases(given, list(declared), **DEVICES)
    if any(one["skipped"] or one["error"] for one in all_of_them.plain.values()):
        raise SystemExit("a case was skipped or failed")
    under_grape = all_of_them.under_grape()
    regions = by_class(under_grape)
    for name, case in declared.items():
        check(name, case, regions)
        missing = set(case["refusals"]) - ids(name, under_grape)
        if missing:
            raise SystemExit(f"{name}: not in the report: {missing}")
    again = replayed.Cases(given, AGAIN, **DEVICES)
    for name, region in by_class(again.under_grape(GRAPE_VALIDATE="3")).items():
        if name in AGAIN and region["validated"] == 0:
            raise SystemExit(f"{name}: no replay was checked")
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}  # mapped, and no context's
    again = replayed.Cases(given, AGAIN, **DEVICES, **segments)
    for name, region in by_class(again.under_grape()).items():
        if name in AGAIN and region["replayed"] == 0:
            raise SystemExit(f"{name}: in expandable segments no call was replayed")
    again = replayed.Cases(given, AGAIN, **DEVICES)
    with tempfile.TemporaryDirectory() as cache:
        first, then = (by_class(again.under_grape(GRAPE_CACHE=cache)) for _ in range(2))
    for name in AGAIN:
        if then[name]["replayed"] <= first[name]["replayed"]:
            raise SystemExit(f"{name}: what an earlier process proved was of no use")


if __name__ == "__main__":
    sys.exit(main())
