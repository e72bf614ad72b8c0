"""What the built libgrape.so may show and need: it lands in every process of a user's job.

Usage: check_library.py LIBRARY VERSION_SCRIPT [unittest's arguments, such as LibraryTest.test_exports]
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

# libc's own libraries, nothing else: whatever the process has of libstdc++, zstd or libunwind is its own.
ALLOWED_NEEDED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
# RHEL 9, Ubuntu 22.04 and Debian 12 have this or newer.
NEWEST_GLIBC = (2, 34)

library = Path()
version_script = Path()


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def dynamic_section() -> dict[str, list[str]]:
    """Tag to values, as readelf prints them."""
    entries: dict[str, list[str]] = {}
    for line in output("readelf", "--wide", "--dynamic", str(library)).splitlines():
        match = re.match(r"\s*0x[0-9a-f]+ \((\w+)\)\s*(.*)", line)
        if match:
            entries.setdefault(match[1], []).append(match[2].strip())
    return entries


def exported_symbols() -> set[str]:
    names = set()
    for line in output("nm", "--dynamic", "--defined-only", "--without-symbol-versions", str(library)).splitlines():
        names.add(line.split()[-1])
    return names


def listed_symbols() -> set[str]:
    """The names under `global:` of the version script, which may hold no wildcard there."""
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", version_script.read_text(), flags=re.DOTALL)
    match = re.search(r"global:(.*?)local:", text, flags=re.DOTALL)
    if match is None:
        raise AssertionError(f"{version_script} has no list of global symbols")
    return {name.strip() for name in match[1].split(";") if name.strip()}


class LibraryTest(unittest.TestCase):
    maxDiff = None

    def test_exports(self) -> None:
        listed = listed_symbols()
        self.assertFalse([name for name in listed if "*" in name or "?" in name], "a wildcard exports by accident")
        self.assertGreater(len(listed), 100, "the driver's functions are missing")
        self.assertEqual(sorted(exported_symbols()), sorted(listed))

    def test_everything_else_is_local(self) -> None:
        self.assertRegex(version_script.read_text(), r"local:\s*\*\s*;")

    def test_needs_only_libc(self) -> None:
        needed = {match[1] for value in dynamic_section()["NEEDED"] if (match := re.search(r"\[(.*)\]", value))}
        self.assertIn("libc.so.6", needed)
        self.assertEqual(needed - ALLOWED_NEEDED, set())

    def test_no_search_path(self) -> None:
        self.assertEqual({"RPATH", "RUNPATH"} & set(dynamic_section()), set())

    def test_glibc_version(self) -> None:
        versions: dict[tuple[int, ...], list[str]] = {}
        for line in output("objdump", "--dynamic-syms", str(library)).splitlines():
            match = re.search(r"\*UND\*.*\(?GLIBC_([0-9.]+)\)?\s+(\S+)$", line)
            if match:
                versions.setdefault(tuple(map(int, match[1].split("."))), []).append(match[2])
        self.assertTrue(versions)
        self.assertEqual({version: names for version, names in versions.items() if version > NEWEST_GLIBC}, {})

    def test_undefined_symbols_have_a_library(self) -> None:
        """Everything undefined is a versioned symbol of libc, or weak."""
        orphans = []
        for line in output("nm", "--dynamic", "--undefined-only", str(library)).splitlines():
            kind, name = line.split()[-2:]
            if kind not in "wv" and "@GLIBC" not in name:
                orphans.append(name)
        self.assertEqual(orphans, [])

    def test_relocates_without_ldd_complaints(self) -> None:
        listing = subprocess.run(["ldd", "-r", str(library)], capture_output=True, text=True)
        self.assertEqual(listing.returncode, 0, listing.stderr)
        self.assertNotIn("undefined symbol", listing.stdout + listing.stderr)
        self.assertNotIn("not found", listing.stdout)

    def test_link_flags(self) -> None:
        dynamic = dynamic_section()
        flags = " ".join(dynamic.get("FLAGS", []) + dynamic.get("FLAGS_1", []))
        self.assertIn("NODELETE", flags)
        self.assertRegex(flags, r"\b(BIND_NOW|NOW)\b")
        self.assertTrue("SYMBOLIC" in dynamic or "SYMBOLIC" in flags, "not linked with -Bsymbolic")

    def test_no_text_relocations(self) -> None:
        dynamic = dynamic_section()
        self.assertNotIn("TEXTREL", dynamic)
        self.assertNotIn("TEXTREL", " ".join(dynamic.get("FLAGS", [])))

    def test_segments(self) -> None:
        headers = output("readelf", "--wide", "--program-headers", str(library))
        stack = [line for line in headers.splitlines() if "GNU_STACK" in line]
        self.assertEqual(len(stack), 1)
        self.assertRegex(stack[0], r"\sRW\s", "the stack would be executable")
        self.assertIn("GNU_RELRO", headers)
        loads = [line for line in headers.splitlines() if re.match(r"\s*LOAD\s", line)]
        self.assertTrue(loads)
        for line in loads:
            self.assertNotRegex(line, r"\sRWE\s", "a segment is both writable and executable")

    def test_no_lasting_footprint(self) -> None:
        """Thread-local variables of a preloaded library come out of every thread's stack and of a small reserve."""
        match = re.search(r"^\s*TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)",
                          output("readelf", "--wide", "--program-headers", str(library)), flags=re.MULTILINE)
        if match:
            self.assertLessEqual(int(match[1], 16), 4096)


if __name__ == "__main__":
    library, version_script = Path(sys.argv[1]), Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]])
