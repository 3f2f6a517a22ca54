"""Write the study's figures into the pages that quote them, between their markers.

python scripts/study_figures.py FOLDER    # take what `benchmarks/study --to FOLDER` found
python scripts/study_figures.py           # rewrite the pages from benchmarks/study/results.json
python scripts/study_figures.py --check   # only say which are out of date; exit code 1
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT), str(ROOT / "scripts")]

from blocks import names, replaced, rewrite  # noqa: E402
from study.runs import WAYS  # noqa: E402

from study import limits, result  # noqa: E402

RESULTS = ROOT / "benchmarks/study/results.json"
PAGES = (ROOT / "README.md", ROOT / "benchmarks/study/README.md")


def updated(text: str, known: dict[str, Any]) -> str:
    """A page with every block of the study as the results have it."""
    if not names(text, "study"):
        raise ValueError("a page that quotes the study has no place for its figures")
    found = known["runs"]
    made = {
        "headline": lambda: result.headline(found),
        "table": lambda: result.markdown(result.table(result.of_round(found, 1))),
        "table-again": lambda: result.markdown(
            result.table(result.of_round(found, 2), study=False)
        ),
        "limits": lambda: result.markdown(limits.rows(limits.judge(found))),
        "methods": lambda: result.methods(known["methods"]),
    }
    return replaced(text, "study", lambda name: made[name]().rstrip())


def main() -> int:
    folders = [Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    if folders:
        runs, tried = result.load(folders[0]), result.load_methods(folders[0])
        if missing := [way.name for way in WAYS if way.name not in runs]:
            sys.exit(
                f"{folders[0]} has no run of {', '.join(missing)}; nothing was changed\n"
                f"  python benchmarks/study --to {folders[0]} makes them"
            )
        # the methods need not be tried again whenever the runs are
        known = {"runs": runs, "methods": tried or json.loads(RESULTS.read_text())["methods"]}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    known = json.loads(RESULTS.read_text())
    return rewrite(PAGES, lambda text: updated(text, known))


if __name__ == "__main__":
    sys.exit(main())
