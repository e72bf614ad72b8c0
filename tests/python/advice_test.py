"""Reasons are told apart by their words: whoever words one anew has to look at the table of advice too. Finds the texts in
the sources, and asks for the kind of each. Usage: advice_test.py PROBE SOURCES"""
import re
import subprocess
import sys
from pathlib import Path

FILES = ("shim/observation/*.cc", "shim/replay/*.cc", "python_hooks/replay/*.cc", "python_hooks/proof/*.cc",
         "python_hooks/control/*.cc", "python_hooks/torch/dispatch_state.cc",
         "compressor/program/describe.cc")
TEXT = r'"((?:[^"\\]|\\.)*)"'
GIVEN = re.compile(r"(?:\breason_? = |refuse\(|refuse_again\(|refused\(|lasting_ = \{|why\.text = |why = \{|"
                   r"kOtherValueRead\[\] = )" + TEXT)
# Nothing that a user could change.
WITHOUT_ADVICE = re.compile(
    r"does more than can be recorded|was not recorded|more switches of torch|the current CUDA stream is not known")


def main(probe, sources):
    texts = set()
    for pattern in FILES:
        for path in Path(sources).glob(pattern):
            texts |= {text for text in GIVEN.findall(path.read_text(encoding="utf-8")) if text}
    texts = sorted(texts)
    kinds = subprocess.run([probe], input="\n".join(texts), stdout=subprocess.PIPE, encoding="utf-8", check=True)
    pairs = list(zip(texts, kinds.stdout.split()))
    unknown = [text for text, kind in pairs if kind == "other" and not WITHOUT_ADVICE.match(text)]
    for text in unknown:
        print(f"no kind in python_hooks/report/advice.cc: {text}")
    print(f"{len(pairs)} reasons, {len(unknown)} of no kind")
    return 1 if unknown or len(pairs) < 40 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
