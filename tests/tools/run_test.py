#!/usr/bin/env python3
"""Runs `grape run` and `grape doctor` as a user would."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from cli import CLEAN, LIBRARY, STATIC, TOOL, grape


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def run_(self, *arguments, **options):
        return grape("run", "--library", LIBRARY, *arguments, **options)

    def script(self, name, text, mode=0o755):
        path = self.root / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def test_environment(self):
        result = self.run_("-o", "x-%p.grape", "-f", "--stacks", "leaf", "--", "env",
                           environment={"LD_PRELOAD": LIBRARY})
        variables = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        library = os.path.realpath(LIBRARY)
        self.assertEqual(variables["LD_PRELOAD"], f"{library}:{LIBRARY}")
        self.assertEqual(variables["GRAPE_TRACE"], "x-%p.grape")
        self.assertEqual(variables["GRAPE_TRACE_REPLACE"], "1")
        self.assertEqual(variables["GRAPE_STACKS"], "leaf")
        self.assertEqual(variables["GRAPE_LOG"], "info")
        self.assertNotIn("GRAPE_MODE", variables)

    def test_quiet_and_own_log_level(self):
        self.assertNotIn("GRAPE_LOG", self.run_("-q", "env").stdout)
        self.assertIn("GRAPE_LOG=error", self.run_("env", environment={"GRAPE_LOG": "error"}).stdout)

    def test_replay_options(self):
        result = self.run_("--mode", "replay", "--report", "r-%p.json", "--validate", "100", "--strict", "--cache", "c/d", "--",
                           "env")
        variables = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        self.assertEqual(variables["GRAPE_MODE"], "replay")
        self.assertEqual(variables["GRAPE_REPORT"], "r-%p.json")
        self.assertEqual(variables["GRAPE_VALIDATE"], "100")
        self.assertEqual(variables["GRAPE_CACHE"], "c/d")
        self.assertEqual(variables["GRAPE_STRICT"], "1")
        self.assertNotIn("GRAPE_STRICT", self.run_("--mode", "replay", "env").stdout)
        self.assertIn("GRAPE_STRICT=1", self.run_("--strict", "env", environment={"GRAPE_MODE": "replay"}).stdout)

    def test_without_options_nothing_is_set_but_the_library_and_the_summary(self):
        variables = dict(line.split("=", 1) for line in self.run_("env").stdout.splitlines() if "=" in line)
        self.assertEqual({name for name in variables if name.startswith("GRAPE_")}, {"GRAPE_LOG", "GRAPE_RUN_PID"})

    def test_replay_is_the_default(self):
        result = self.run_("--report", "r.json", "--validate", "100", "--strict", "--", "env")
        self.assertIn("GRAPE_REPORT=r.json", result.stdout)
        self.assertNotIn("GRAPE_MODE", result.stdout)

    def test_a_trace_is_none_of_replays(self):
        for arguments, environment in ((["-o", "x.grape"], {}), ([], {"GRAPE_TRACE": "x.grape"})):
            result = self.run_(*arguments, "--strict", "--", "true", environment=environment)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn("--strict is for --mode replay, and a trace", result.stderr)
        both = self.run_("-o", "x.grape", "--mode", "replay", "--strict", "--", "env")
        self.assertIn("GRAPE_TRACE=x.grape", both.stdout)

    def test_force_wants_a_trace(self):
        result = self.run_("--force", "--", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("is for a trace: add -o FILE", result.stderr)
        for more in (["-o", "x.grape"], ["--mode", "observe"], ["--mode", "replay", "-o", "x.grape"]):
            self.assertEqual(self.run_("--force", *more, "--", "true").returncode, 0, more)
        self.assertEqual(self.run_("--force", "--", "true", environment={"GRAPE_TRACE": "x"}).returncode, 0)

    def test_short_options_in_one_word(self):
        for arguments in (["-qo", "x.grape"], ["-qfox.grape"], ["-fqo", "x.grape", "--"]):
            with self.subTest(arguments=arguments):
                shown = self.run_(*arguments, "env").stdout
                self.assertIn("GRAPE_TRACE=x.grape\n", shown)
                self.assertNotIn("GRAPE_LOG", shown)

    def test_range_wants_a_trace(self):
        result = self.run_("--range", "profiler", "--", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--range is for a trace: add -o FILE", result.stderr)
        self.assertIn("GRAPE_TRACE_RANGE=profiler", self.run_("-o", "x", "--range", "profiler", "env").stdout)
        self.assertEqual(self.run_("-o", "x", "--range", "nvtx", "true").returncode, 2)

    def test_the_process_knows_that_it_is_the_one(self):
        script = self.script("pid", "#!/bin/sh\necho $$ $GRAPE_RUN_PID\n")
        pid, known = self.run_(script).stdout.split()
        self.assertEqual(pid, known)

    def test_replay_options_want_their_mode(self):
        for arguments in (["--strict"], ["--validate", "2"], ["--report", "r.json"], ["--cache", "c"],
                          ["--mode", "observe", "--strict"]):
            result = self.run_(*arguments, "--", "true", environment={"GRAPE_MODE": "observe"})
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn("is for --mode replay", result.stderr)

    def test_program_options_are_its_own(self):
        self.assertEqual(self.run_("echo", "-q", "--help").stdout, "-q --help\n")

    def test_same_process(self):
        with subprocess.Popen([TOOL, "run", "--library", LIBRARY, "--", "sh", "-c", "echo $$"], env=CLEAN,
                              stdout=subprocess.PIPE) as process:
            self.assertEqual(int(process.stdout.read()), process.pid)

    def test_status(self):
        self.assertEqual(self.run_("--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.run_("--", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_not_found_and_not_executable(self):
        self.assertEqual(self.run_("no-such-program-here").returncode, 127)
        self.assertEqual(self.run_("/no/such/program").returncode, 127)
        self.assertEqual(self.run_(self.script("plain", "#!/bin/sh\n", 0o644)).returncode, 126)
        self.assertEqual(self.run_(self.root).returncode, 126)
        self.assertEqual(self.run_().returncode, 2)

    def not_loaded(self, program, why):
        result = self.run_("--", program)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("not loaded", result.stderr)
        self.assertIn(why, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_static_program(self):
        self.not_loaded(STATIC, "static")

    def test_script_of_a_static_interpreter(self):
        self.not_loaded(self.script("script", f"#!{STATIC}\n"), "static")

    def test_scripts_run(self):
        self.assertEqual(self.run_(self.script("a", "#!/bin/sh\necho yes\n")).stdout, "yes\n")
        self.assertEqual(self.run_(self.script("b", "#!/usr/bin/env -S sh -e\necho yes\n")).stdout, "yes\n")

    def elf_with(self, **changes):
        data = bytearray(Path(os.path.realpath(shutil.which("true"))).read_bytes())
        for at, value in changes.values():
            data[at] = value
        path = self.root / "changed"
        path.write_bytes(data)
        path.chmod(0o755)
        return path

    def test_wrong_architecture(self):
        self.not_loaded(self.elf_with(machine=(18, 183)), "another machine")
        self.not_loaded(self.elf_with(bits=(4, 1)), "32-bit")

    def test_setuid(self):
        program = next((p for p in ("/bin/su", "/usr/bin/passwd", "/bin/mount") if os.path.exists(p)
                        and os.stat(p).st_mode & stat.S_ISUID), None)
        if os.getuid() == 0:
            program = self.root / "setuid"
            shutil.copy(shutil.which("true"), program)
            os.chown(program, 65534, 65534)
            program.chmod(0o4755)
        if program is None:
            self.skipTest("no setuid program here")
        self.not_loaded(program, "setuid")

    def test_library(self):
        for library, why in ((self.root / "missing.so", "No such file"), (self.script("text.so", "x"), "not a shared"),
                             (self.elf_with(machine=(18, 183)), "another machine")):
            result = grape("run", "--library", library, "true")
            self.assertEqual(result.returncode, 2)
            self.assertIn("not loaded", result.stderr)
            self.assertIn(why, result.stderr)
        spaced = self.root / "a b.so"
        shutil.copy(LIBRARY, spaced)
        self.assertIn("space", grape("run", "--library", spaced, "true").stderr)

    def test_a_library_that_does_not_load(self):
        broken = self.root / "broken.so"
        data = bytearray(Path(LIBRARY).read_bytes())
        # Program headers beyond the end of the file: the loader passes it over.
        data[32:40] = (1 << 40).to_bytes(8, "little")
        broken.write_bytes(data)
        result = grape("run", "--library", broken, "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("not loaded", result.stderr)

    def test_bad_variables(self):
        for variable, value, text in (("GRAPE_MODE", "obsrve", "did you mean observe?"),
                                      ("GRAPE_MOED", "off", "did you mean GRAPE_MODE?"),
                                      ("GRAPE_STACKS", "-1", "GRAPE_STACKS"),
                                      ("GRAPE_TRACE", "a\x1b[31m", "GRAPE_TRACE"),
                                      ("GRAPE_TRACE", "x" * 100_000, "GRAPE_TRACE"),
                                      ("GRAPE_STRICT", "perhaps", "GRAPE_STRICT"),
                                      ("GRAPE_VALIDATE", "often", "GRAPE_VALIDATE"),
                                      ("GRAPE_VALIDATE", "-1", "GRAPE_VALIDATE"),
                                      ("GRAPE_REGIONS", "nonsense", "GRAPE_REGIONS")):
            result = self.run_("true", environment={variable: value})
            self.assertEqual(result.returncode, 2, variable)
            self.assertIn(text, result.stderr)
            self.assertNotIn("\x1b", result.stderr)

    def test_bad_options(self):
        for arguments in (["--mode", "x"], ["--stacks", "x"], ["--regions", "x"], ["--nonsense"],
                          ["--mode", "replay", "--validate", "x"]):
            self.assertEqual(self.run_(*arguments, "--", "true").returncode, 2, arguments)
        self.assertEqual(self.run_("-o").returncode, 2)

    def test_output_that_cannot_be_written(self):
        (self.root / "folder").mkdir()
        for output, text in ((self.root / "folder", "this is a folder"), (f"{self.root}/folder/", "this is a folder"),
                             (self.root / "none" / "run-%p.grape", "there is no folder"),
                             (self.root / "folder" / "run" / "x.grape", "there is no folder")):
            for force in ([], ["--force"]):
                result = self.run_("-o", output, *force, "--", "echo", "ran")
                self.assertEqual((result.returncode, result.stdout), (2, ""), output)
                self.assertIn(text, result.stderr)
        for output in (self.root / "folder" / "run-%p.grape", "run.grape", "%h/run.grape", "/run.grape"):
            self.assertEqual(self.run_("-o", output, "--", "echo", "ran").stdout, "ran\n", output)


class Doctor(unittest.TestCase):
    def test_no_library(self):
        result = grape("doctor", "--library", "/no/such.so", "--json")
        self.assertEqual(result.returncode, 1)
        report = json.loads(result.stdout)
        self.assertFalse(report["works"])
        self.assertEqual(report["checks"][0]["state"], "FAIL")

    def test_library_that_records_nothing(self):
        result = grape("doctor", "--library", LIBRARY, "--python", sys.executable, "--json", timeout=300)
        self.assertEqual(result.returncode, 1, "an empty library records nothing")
        checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
        self.assertEqual(checks["library"]["state"], "ok")
        self.assertIn("driver", checks)
        self.assertIn("Python", checks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
