"""Makes the benchmarks importable, as `python benchmarks/NAME.py` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
