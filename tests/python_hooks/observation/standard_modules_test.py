"""What the interpreter's own modules in C keep for the process is known: host_effects.def has rows for it, or they keep nothing."""
import pathlib
import re
import sys
import sysconfig
import unittest

# Modules written in C whose functions keep nothing for the process, or only what no function shows (caches).
KEEP_NOTHING = set(
    "_ast _bisect _blake2 _bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _collections _crypt "
    "_functools _heapq _hmac _json _lzma _md5 _multibytecodec _opcode _operator _sha1 _sha2 _sha256 _sha3 _sha512 _sre _stat "
    "_statistics _string _struct _suggestions _symtable _sysconfig _tokenize _types _typing _warnings _zoneinfo _zstd array "
    "audioop binascii cmath errno itertools marshal math pyexpat unicodedata zlib".split()
)
ROWS = pathlib.Path(__file__).resolve().parents[3] / "python_hooks" / "observation" / "host_effects.def"


class StandardModulesTest(unittest.TestCase):
    def test_each_module_in_c_is_known(self):
        dynamic = pathlib.Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
        modules = set(sys.builtin_module_names) | {file.name.split(".")[0] for file in dynamic.glob("*.so")}
        rows = set(re.findall(r'^NATIVE\(\w+, "([\w.]+)"', ROWS.read_text(encoding="utf-8"), re.MULTILINE))
        for_tests = re.compile("xx|.*test")
        unknown = {name for name in modules - rows - KEEP_NOTHING if not for_tests.match(name)}
        self.assertEqual(unknown, set(), "what do their functions keep? Add a row, or the name to KEEP_NOTHING")


if __name__ == "__main__":
    unittest.main()
