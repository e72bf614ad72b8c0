"""Is each refusal (compressor/refusal/refusals.def) named by a test? A test names it with a string that is its id, that has
the longest fixed part of its text, or that is, behind a path, a part of its text and of no other's. All others stand in
not_named.txt, each with why no test names it. What stands there and is named is an error, too.
"""
import ast
import importlib.machinery
import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LIST = Path(__file__).with_name("not_named.txt")
# They take rows as they are, and provoke nothing.
LEFT_OUT = {"tests/compressor/refusal/refusal_test.cc", "tests/compressor/refusal/named_test.py", "tests/python_hooks/report/report_text_test.cc"}
LEAST, LEAST_WORD = 9, 12  # characters that tell a refusal from others: of several words, of one
LITERALS = re.compile(r'((?:(?:R"\((?:.|\n)*?\)"|"(?:[^"\\\n]|\\.)*")\s*)+)')
LITERAL = re.compile(r'R"\(((?:.|\n)*?)\)"|"((?:[^"\\\n]|\\.)*)"')


def page_writer():
    path = ROOT / "scripts" / "write-refusals"
    loader = importlib.machinery.SourceFileLoader("write_refusals", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def strings_of(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = [node.value for node in ast.walk(ast.parse(text))
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        return [re.sub(r"\s+", " ", string) for string in found]
    text = re.sub(r"^\s*(//|#include).*$", "", text, flags=re.MULTILINE)
    return ["".join(raw or re.sub(r"\\(.)", r"\1", plain) for raw, plain in LITERAL.findall(literals))
            for literals in LITERALS.findall(text)]


def strings():
    for path in sorted((ROOT / "tests").rglob("*")):
        if path.suffix in (".py", ".cc", ".h") and path.relative_to(ROOT).as_posix() not in LEFT_OUT:
            yield from strings_of(path)


def fixed_parts(refusal):
    return [part.strip(" :(),") for part in refusal.text.split("{}")]


def named_by_tests(refusals):
    """The ids that the tests' strings show."""
    all_strings = set(strings())
    together = "\n".join(all_strings)
    named = set(re.findall(r"\w+", "\n".join(s for s in all_strings if re.fullmatch(r"[a-z_]+", s))))
    parts = {refusal.id: fixed_parts(refusal) for refusal in refusals}
    shown = {refusal.id for refusal in refusals if refusal.id in named}
    for name, its in parts.items():
        longest = max(its, key=len)
        if len(longest) >= LEAST and longest in together:
            shown.add(name)
    for string in all_strings | {string.partition(": ")[2] for string in all_strings}:
        string = string.strip(" :(),")
        if len(string) >= (LEAST if " " in string else LEAST_WORD):
            those = [name for name, its in parts.items() if any(string in part for part in its)]
            if len(those) == 1:
                shown.add(those[0])
    return shown


def listed():
    """{id: why no test names it}"""
    reasons, why = {}, ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            why = line[2:]
        elif line:
            reasons[line] = why
    return reasons


def main():
    refusals = [refusal for _, rows in page_writer().refusals() for refusal in rows]
    shown, reasons = named_by_tests(refusals), listed()
    ids = [refusal.id for refusal in refusals]
    problems = [f"{name}: no test names it, and not_named.txt does not say why"
                for name in ids if name not in shown and not reasons.get(name)]
    problems += [f"not_named.txt: {name} is named by a test" for name in reasons if name in shown]
    problems += [f"not_named.txt: there is no {name}" for name in reasons if name not in ids]
    for problem in problems:
        print(problem)
    print(f"{len(ids)} refusals, {len(shown)} named by tests, {len(reasons)} not, with a reason")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
