"""main.py [OPTION]... [NAME]...: runs the cases of these names, or all of the groups, in this process.

--list      what there is, a JSON line for each, in place of running it
--group G   the cases of this group; may be given several times (default: those of none; "all")
--skip NAME, --part I/N, --no-late, --device cpu: which cases, and where
--out FILE  a JSON line for each case, when it has ended (default: the file that SIM_RESULTS names)
--digests   prints a line with a digest for each case

The catalogue is simulated/ with the simulated PyTorch, and pytorch/ with the real one, which runs the group "usual" of
simulated/ as well. The name of a case goes to stderr
before it begins, where PyTorch is the real one, and a line END_OF_CASE to stdout and stderr when it has ended.
"""
import argparse
import contextlib
import hashlib
import importlib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Files of simulated/ with cases of the group "usual", which PyTorch runs as well.
SHARED = ("cases_changes", "cases_host", "cases_kernels", "cases_plain")


def load():
    import bed

    catalogue = os.path.join(HERE, "simulated" if bed.SIMULATED else "pytorch")
    if not bed.SIMULATED:
        sys.path.insert(0, os.path.join(HERE, "simulated"))
        for file in SHARED:
            importlib.import_module(file)
        for name in [name for name, case in bed.CASES.items() if case.group != "usual"]:
            del bed.CASES[name]
    sys.path.insert(0, catalogue)
    for file in sorted(os.listdir(catalogue)):
        if file.startswith("cases_"):
            importlib.import_module(file[: -len(".py")])
    return bed


def part(text):
    number, _, count = text.partition("/")
    if not 1 <= int(number) <= int(count):
        raise ValueError(text)
    return int(number), int(count)


def options_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="the same as NAME")
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--skip", action="append", default=[], metavar="NAME")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="I/N", help="each N-th case, from the I-th on")
    parser.add_argument("--no-late", action="store_true", help="without those that may end the process")
    parser.add_argument("--out", default=os.environ.get("SIM_RESULTS"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--digests", action="store_true")
    return parser.parse_args()


def chosen(cases, options):
    groups = options.group or [""]
    names = options.names + options.only
    if not names:
        names = [name for name, case in cases.items() if "all" in groups or case.group in groups]
    names = sorted(names, key=lambda name: cases[name].late)  # stable: late ones last
    names = [n for n in names if n not in options.skip and not (options.no_late and cases[n].late)]
    return names[options.part[0] - 1 :: options.part[1]]


def prepare(bed):
    if bed.SIMULATED:
        return
    import torch

    if bed.DEVICE == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.zeros(1, device="cuda")
    else:
        torch.set_num_threads(1)


def main():
    options = options_of()
    bed = load()
    bed.DEVICE = options.device
    names = chosen(bed.CASES, options)
    if options.list:
        for name in names:
            facts = {key: value for key, value in vars(bed.CASES[name]).items() if key != "body"}
            print(json.dumps({"name": name, **facts}))
        return 0
    prepare(bed)
    status = 0
    with open(options.out, "w", encoding="utf-8") if options.out else contextlib.nullcontext(sys.stdout) as out:
        for name in names:
            if not bed.SIMULATED:
                print(f"-- {name}", file=sys.stderr, flush=True)
            one = bed.run_case(name)
            status |= one["error"] != ""
            if options.digests:
                whole = hashlib.sha256(json.dumps([one["calls"], one["seen"], one["error"]]).encode()).hexdigest()[:24]
                print(f"{name} {whole} {one['skipped'] or one['error']}".rstrip(), flush=True)
                continue
            out.write(json.dumps(one) + "\n")  # now, so that a crash shows how far it came
            out.flush()
            for stream in (sys.stdout, sys.stderr) if options.out else ():
                print("END_OF_CASE", file=stream, flush=True)
    return status if options.digests else 0


if __name__ == "__main__":
    sys.exit(main())
