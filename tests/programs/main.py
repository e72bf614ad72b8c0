"""main.py CASE ...: runs each case. Writes a JSON line for each to the file that SIM_RESULTS names, and a line END_OF_CASE
to stdout and stderr. --list: what there is."""
import importlib
import json
import os
import sys

import bed

for file in sorted(os.listdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "simulated"))):
    if file.startswith("cases_"):
        importlib.import_module(file[: -len(".py")])


def main(names):
    if names == ["--list"]:
        for name, case in bed.CASES.items():
            facts = {key: value for key, value in vars(case).items() if key != "body"}
            print(json.dumps({"name": name, **facts}))
        return
    with open(os.environ["SIM_RESULTS"], "w", encoding="utf-8") as results:
        for name in names:
            run = bed.run_case(name)
            results.write(json.dumps({"name": name, "calls": run.calls, "seen": run.seen}) + "\n")
            results.flush()
            for stream in (sys.stdout, sys.stderr):
                print("END_OF_CASE", file=stream, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
