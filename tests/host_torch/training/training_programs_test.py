"""training_programs_test.py --python INTERPRETER --grape LIBRARY: all that training programs see is the same under Grape.

Each program of this folder runs plain and under Grape, in processes of their own (plain once more where they differ), and
every step's record is compared: losses, gradients, weights, buffers, autograd's state of tensors, versions, errors, hooks' order, random numbers.
Prints for each program whether the records are equal, and how many calls were replayed. GRAPE_... variables of the
environment hold for the runs under Grape. Exit status: 0 all are equal that can run with this PyTorch, 1 not.

    training_programs_test.py ... [--only PATTERN,...]... [--part I/N] [--steps 18] [--jobs 2] [--list] [--verbose]
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "sweep"))
from server import list_programs  # noqa: E402
from sweep import chosen, run_all, summary  # noqa: E402

MODULES = ("training_loops", "training_graphs", "training_results", "training_modes", "training_casts",
           "training_state", "training_faults", "training_errors", "training_weights", "training_views",
           "training_view_results", "training_gradient_views", "training_tracked_views", "training_stale_views", "training_inside",
           "training_kept", "training_lent_memory", "training_changes", "training_repeated", "training_outside", "training_stops",
           "training_seen", "training_forces", "training_energies", "training_energy_graphs",
           "training_passes", "training_again", "training_freed", "training_freed_whole", "training_tasks", "training_layer_drop", "training_leaves", "training_libraries",
           "training_usage")  # fmt: skip
SETTINGS = {"GRAPE_MODE": "replay", "GRAPE_EARLY_REGIONS": "1"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter that has PyTorch")
    parser.add_argument("--grape", required=True, help="libgrape.so")
    parser.add_argument("--only", action="append", help="patterns of names, files or tags, comma-separated")
    parser.add_argument("--steps", type=int, default=18, help="of each program; at 12 Grape has begun to replay")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    parser.add_argument("--part", default="1/1", help="I/N: every N-th program, from the I-th on")
    parser.add_argument("--list", action="store_true", help="print the programs, and run none")
    parser.add_argument("--verbose", action="store_true", help="print what a program that failed wrote")
    parser.set_defaults(modules=MODULES, folder=HERE, device="cuda", runs=1, time_limit=180.0)
    options = parser.parse_args()
    options.only = ",".join(options.only or ["*"])
    return options


def main() -> int:
    options = parse()
    programs = chosen(list_programs(options.python, MODULES, HERE), options)
    if options.list:
        for program in programs:
            print(f"{program['name']:32} {program['about']}")
        return 0
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="training-") as scratch:
        outcomes = run_all(options, programs, Path(scratch))
    print(summary(outcomes, time.monotonic() - begin))
    kinds = {outcome.kind for outcome in outcomes}
    return 0 if "equal" in kinds and kinds <= {"equal", "skipped"} else 1


if __name__ == "__main__":
    sys.exit(main())
