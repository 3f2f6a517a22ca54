"""`headway list`: all runs that are here."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from headway.cli import OK
from headway.cli.parser import Parser

if TYPE_CHECKING:
    from headway.pool.folder import RunFolder


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "[options]",
        "List all runs below the nearest `.headway` folder, the newest last.",
        [("headway list", "all of them"), ("headway list --json", "for programs")],
    )
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.show import near, patience, print_json, print_table
    from headway.pool.folder import Runs

    runs = Runs.here()
    with patience("reading the event logs"):
        found = [_facts(folder) for folder in runs]
    if arguments.json:
        print_json({"folder": str(runs.folder), "runs": found})
        return OK
    if not found:
        print(f"no runs in {near(runs.folder)}; start one with `headway run job.toml`")
        return OK
    rows = [
        (
            str(run["run"]),
            str(run["pool"]),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(run["created"])),
            _jobs_words(run),
            near(runs.folder / str(run["run"]) / "jobs"),
        )
        for run in found
    ]
    print_table(("run", "pool", "created", "jobs", "results"), rows)
    return OK


def _jobs_words(run: dict[str, Any]) -> str:
    from headway.cli.words import count_words

    kept = f" ({run['kept']:,} kept from other runs)" if run["kept"] else ""
    return (count_words(run["counts"]) or "not submitted") + kept


def _facts(folder: RunFolder) -> dict[str, Any]:
    from collections import Counter

    from headway.api import Run
    from headway.cli.words import group_of
    from headway.pool.results import read_kept

    facts = folder.facts
    counts = Counter(group_of(state) for state in Run(folder).jobs.values())
    return {
        "run": folder.label,
        "pool": facts.pool["kind"],
        "cluster": facts.cluster,
        "created": facts.created,
        "counts": dict(counts),
        "kept": len(read_kept(folder)),
        "results": str(folder.jobs),
    }
