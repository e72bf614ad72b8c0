"""A Python that is too old: one notice, nothing read, the program runs on. Runs on Python 2, too."""
from __future__ import print_function

import ctypes
import os
import subprocess
import sys
import time

if len(sys.argv) == 1:
    child = subprocess.Popen([sys.executable, __file__, "child"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = child.communicate()
    assert child.returncode == 0 and output == b"0 0\n", (child.returncode, output)
    assert errors.count(b"no Python positions and regions: this is Python") == 1, errors
    print("ok")
else:
    probe = ctypes.CDLL(os.environ["PROBE_LIBRARY"])
    for _ in range(20):
        probe.probe_launch()
        time.sleep(0.01)
    print(probe.probe_stack(), probe.probe_leaf())
