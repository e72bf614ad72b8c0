"""GRAPE_CACHE: what one process proved serves the next, and nothing else does.

cache_test.py --grape LIBRARY --simcuda FOLDER --sim-torch FOLDER
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sim_torch"))
import simulated  # noqa: E402

OPTIONS = None
SECONDS = 120

# Calls a model with inputs of a few sizes, and prints a letter for each call: e, it ran; r, it was replayed. Then what it
# gave.
PROGRAM = """
import os, sys
import bed, tiny, torch
import helper

class Model(tiny.Net):
    def forward(self, x):
        return helper.scaled(super().forward(x))

torch.manual_seed(int(os.environ.get("SEED", "1")))
model, letters, seen = Model().cuda().eval(), "", []
with torch.no_grad():
    for rows in map(int, sys.argv[1:]):
        x = tiny.data(len(seen), rows)
        before = torch._C._operators_run()
        y = model(x)
        letters += "r" if torch._C._operators_run() == before else "e"
        seen.append(bed.digest(y))
        getattr(helper, "between", len)(seen)
print(letters, *seen, flush=True)
end = os.environ.get("END")
if end == "kill":
    os.kill(os.getpid(), 9)
if end == "_exit":
    os._exit(0)
"""
HELPER = """
FACTOR = 2.0

def scaled(x):
    return x * FACTOR
"""
# The same work, and other code.
OTHER_HELPER = """
FACTOR = 2.0

def scaled(x):
    y = x * FACTOR
    return y
"""
# What no guard sees: a C function's own state, which is another one after WHEN calls.
HIDDEN_HELPER = """
import torch

def scaled(x):
    return x * torch._C._last_number()

def between(seen):
    if len(seen) == WHEN:
        torch._C._next_number()

torch._C._next_number()
"""
SIZES = ("3", "3", "3", "3", "5", "5", "5", "7", "7", "7")
COLD, WARM = "eerreereer", "errrerrerr"


class Cache(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cache = os.path.join(self.folder, "cache")
        self.write_helper(HELPER)

    def write_helper(self, text):
        with open(os.path.join(self.folder, "helper.py"), "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(self.folder, "program.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)

    def start(self, sizes=SIZES, grape=True, **variables):
        taken = simulated.environment(OPTIONS, self.folder)
        if grape:
            taken.update(LD_PRELOAD=OPTIONS.grape, GRAPE_CACHE=self.cache)
        taken.update(variables)
        return subprocess.Popen(
            [sys.executable, os.path.join(self.folder, "program.py"), *sizes],
            env=taken,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def end(self, process, status=0):
        self.out, self.err = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, status, self.err)
        return self.out.split(" ", 1)

    def letters(self, sizes=SIZES, says="", status=0, **variables):
        """Of a run under Grape, which must give what a plain one gives."""
        expected = self.end(self.start(sizes, grape=False, **variables), status)[1]
        letters, seen = self.end(self.start(sizes, **variables), status)
        self.assertEqual(seen, expected)
        self.assertRegex(self.err, f"^{says}$")
        return letters

    def files(self):
        return [name for name in os.listdir(self.cache) if name != "lock"]

    def path(self):
        (name,) = self.files()
        return os.path.join(self.cache, name)

    def content(self):
        with open(self.path(), "rb") as file:
            return file.read()

    def test_the_next_process_needs_one_call(self):
        self.assertEqual(self.letters(), COLD)
        self.assertRegex(os.path.basename(self.path()), "^[0-9a-f]{16}[.]grape-cache$")
        self.assertEqual(os.stat(self.path()).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(self.cache).st_mode & 0o777, 0o700)
        self.assertEqual(self.letters(), WARM)
        self.assertEqual(self.letters(PYTHONHASHSEED="5", SPACE="x" * 3000), WARM)
        # Strings that hash otherwise, weights that are others: the work is the same.
        self.assertEqual(self.letters(SEED="7"), WARM)

    def test_the_report_says_so(self):
        for programs, used, added in ((0, 0, 3), (3, 3, 0)):
            self.letters(GRAPE_REPORT=os.path.join(self.folder, "report"))
            with open(os.path.join(self.folder, "report"), encoding="utf-8") as file:
                cache = json.load(file)["cache"]
            self.assertEqual(cache, {"file": self.path(), "programs": programs, "used": used, "added": added})

    def test_the_file_says_of_which_environment_it_is(self):
        self.letters()
        for part in (rb"torch=2[.]11[.]0[+]sim\n", rb"python=3[.]\d+[.]", rb"driver=\d+\n"):
            self.assertRegex(self.content(), part)

    def test_nothing_new_is_nothing_written(self):
        self.letters()
        before = os.stat(self.path())
        self.letters()
        after = os.stat(self.path())
        self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))

    def test_each_adds_to_what_is_there(self):
        self.letters(("3",) * 3)
        self.letters(("5",) * 4)
        self.letters(("7",) * 4)
        self.assertEqual(len(self.files()), 1)
        self.assertEqual(self.letters(), WARM)

    def test_other_code_is_another_call(self):
        self.letters()
        self.write_helper(OTHER_HELPER)
        self.assertEqual(self.letters(), COLD)
        self.assertEqual(self.letters(), WARM)
        self.write_helper(HELPER)
        self.assertEqual(self.letters(), WARM)

    def test_another_value_is_another_call(self):
        self.letters()
        self.write_helper(HELPER.replace("2.0", "3.0"))
        self.assertEqual(self.letters(), COLD)

    def test_a_damaged_file_is_not_used(self):
        self.letters()
        whole = self.content()
        places = range(0, len(whole), max(1, len(whole) // 12))
        for at in places:
            damaged = bytearray(whole)
            damaged[at] ^= 0x10
            with open(self.path(), "wb") as file:
                file.write(damaged)
            # Once when it is read, once when it would have been added to.
            says = "(?:grape: [^\\n]*grape-cache is not used: [^\\n]*\\n)?"
            self.assertIn(self.letters(("3", "3", "3", "5", "5", "5"), says=says), ("eereer", "errerr"))
            # It was replaced by a sound one.
            self.assertEqual(self.letters(("3", "3", "3", "5", "5", "5")), "errerr")
        with open(self.path(), "wb") as file:
            file.write(whole[: len(whole) // 2])
        self.letters(says="grape: [^\\n]*is not used: [^\\n]*\\n")

    def test_what_others_could_have_written_is_not_used(self):
        self.letters()
        os.chmod(self.path(), 0o666)
        says = "grape: [^\\n]*grape-cache is not used: others may write to it\\n"
        self.assertEqual(self.letters(says=says), COLD)
        os.chmod(self.cache, 0o777)
        before = self.content()
        says = f"grape: GRAPE_CACHE={re.escape(self.cache)} is not used: others may write to it\\n"
        self.assertEqual(self.letters(says=says), COLD)
        self.assertEqual(self.content(), before)
        os.chmod(self.cache, 0o700)
        os.rename(self.path(), os.path.join(self.folder, "elsewhere"))
        os.symlink(os.path.join(self.folder, "elsewhere"), os.path.join(self.cache, "link"))
        os.rename(os.path.join(self.cache, "link"), os.path.join(self.cache, self.name_of_the_file(before)))
        self.assertEqual(self.letters(says="grape: [^\\n]*is not used: Too many levels of symbolic links\\n"), COLD)

    def name_of_the_file(self, content):
        """As a process of this environment calls it."""
        empty = os.path.join(self.folder, "empty")
        self.end(self.start(GRAPE_CACHE=empty))
        (name,) = (name for name in os.listdir(empty) if name != "lock")
        return name

    def test_folders_that_cannot_be(self):
        for path, why in (("no/such/folder", "No such file or directory"), ("program.py", "Not a directory")):
            self.cache = os.path.join(self.folder, path)
            self.assertEqual(self.letters(says=f"grape: GRAPE_CACHE=[^\\n]* is not used: {why}\\n"), COLD)

    def test_several_processes_at_a_time(self):
        each = [self.start((size,) * 4) for size in ("3", "5", "7", "9", "11")]
        for process in each:
            self.end(process)
            self.assertEqual(self.err, "")
        self.assertEqual(len(self.files()), 1)
        self.assertEqual(self.letters(("3",) * 3 + ("5", "7", "9", "11") * 2), "err" + "eeee" + "rrrr")

    def test_a_killed_process_leaves_what_was_there(self):
        self.letters(("3", "3", "3"))
        before = self.content()
        self.letters(("5", "5", "5"), status=-signal.SIGKILL, END="kill")
        self.assertEqual(self.content(), before)

    def test_a_process_that_leaves_early_writes(self):
        self.letters(END="_exit")
        self.assertEqual(self.letters(), WARM)

    def test_a_region_whose_replay_was_wrong_is_taken_out(self):
        sizes = ("3",) * 6
        self.write_helper(HIDDEN_HELPER.replace("WHEN", "100"))
        self.assertEqual(self.letters(sizes), "eerrrr")
        self.write_helper(HIDDEN_HELPER.replace("WHEN", "3"))
        loud = "grape: __main__:Model: GRAPE_VALIDATE: a replay differs [^\\n]*\\n"
        self.assertEqual(self.letters(sizes[:5], says=loud, GRAPE_VALIDATE="3"), "erree")
        self.write_helper(HIDDEN_HELPER.replace("WHEN", "100"))
        self.letters(("3",), GRAPE_REPORT=os.path.join(self.folder, "report"))
        with open(os.path.join(self.folder, "report"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["cache"]["programs"], 0)

    def test_other_modes_leave_it_alone(self):
        for variables in ({"GRAPE_MODE": "off"}, {"GRAPE_DISABLE": "1"}):
            self.end(self.start(**variables))
            self.assertFalse(os.path.exists(self.cache))
            self.assertEqual(self.err, "")


if __name__ == "__main__":
    OPTIONS, rest = simulated.options_of(__doc__)
    unittest.main(argv=[sys.argv[0], *rest])
