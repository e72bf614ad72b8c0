"""To import this makes the modules of tests/gpu and of its checks known to the scripts of this folder."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "checks")]
