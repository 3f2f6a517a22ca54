"""How long `headway --help` takes from a cold start, interpreter included, against its budget.

    python benchmarks/startup.py [--runs N] [--budget MILLISECONDS]

Runs the console script as pip writes it, in turns with an interpreter that does nothing. Prints the
medians and their ratio; exits with 1 when the median is over the budget.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
BUDGET = 150.0  # milliseconds
SCRIPT = """\
#!{python}
import re
import sys
from headway.cli import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the start of the command line.")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--budget", type=float, default=BUDGET, help="milliseconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "headway"
        script.write_text(SCRIPT.format(python=sys.executable))
        script.chmod(0o755)
        help_command = [str(script), "--help"]
        nothing_command = [sys.executable, "-c", "pass"]
        _seconds(help_command), _seconds(nothing_command)  # compiled files, and the page cache
        pairs = [(_seconds(help_command), _seconds(nothing_command)) for _ in range(arguments.runs)]
    ours, nothing = (1000 * statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"headway --help   median {ours:6.1f} ms of {arguments.runs} runs")
    print(f"python -c pass   median {nothing:6.1f} ms")
    print(f"ratio {ours / nothing:.2f}; budget {arguments.budget:.0f} ms")
    if ours > arguments.budget:
        print("over the budget")
        return 1
    return 0


def _seconds(command: list[str]) -> float:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    begin = time.perf_counter()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
    )
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
