"""What the tests of `grape`'s command line share: the programs under test, and small traces to show."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = os.environ["GRAPE_TEST_TOOL"]
MAKE_TRACE = os.environ["GRAPE_TEST_MAKE_TRACE"]
CONVERT = os.environ["GRAPE_TEST_CONVERT"]
LIBRARY = os.environ["GRAPE_TEST_LIBRARY"]
STATIC = os.environ["GRAPE_TEST_STATIC"]
STREAMS = Path(os.environ["GRAPE_TEST_STREAMS"])
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("GRAPE_") and k != "LD_PRELOAD"}
# The tool tries the library in a process of its own kind. Where the tool has an address sanitizer, that must not insist
# on standing before what is preloaded.
CLEAN["ASAN_OPTIONS"] = ":".join(filter(None, (CLEAN.get("ASAN_OPTIONS"), "verify_asan_link_order=0")))


def grape(*arguments, environment=None, binary=False, timeout=120):
    result = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**CLEAN, **(environment or {})}, timeout=timeout, check=False)
    if not binary:
        result.stdout = result.stdout.decode("utf-8")
        result.stderr = result.stderr.decode("utf-8")
    return result


class TraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        for kind in ("sample", "hostile", "ranges", "unended", "bomb"):
            subprocess.run([MAKE_TRACE, kind, cls.root / f"{kind}.grape"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def dump(self, *arguments, trace="sample", status=0):
        result = grape("dump", self.root / f"{trace}.grape", *arguments)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        return result.stdout

    def json(self, *arguments, trace="sample", status=0):
        return json.loads(self.dump(*arguments, "--json", trace=trace, status=status))
