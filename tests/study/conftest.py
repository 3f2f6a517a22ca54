"""Makes the benchmark's modules importable, as `python benchmarks/study` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
