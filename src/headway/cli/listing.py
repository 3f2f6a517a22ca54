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
        found = [_readable(folder) for folder in runs]
    if arguments.json:
        print_json({"folder": str(runs.folder), "runs": found})
        return OK
    if not found:
        print(f"no runs in {near(runs.folder)}; start one with `headway run job.toml`")
        return OK
    rows = [
        (
            str(run["run"]),
            str(run["pool"] or "?"),
            _when(run["created"]),
            _jobs_words(run),
            near(runs.folder / str(run["run"]) / "jobs"),
        )
        for run in found
    ]
    print_table(("run", "pool", "created", "jobs", "results"), rows)
    return OK


def _when(created: float | None) -> str:
    return "?" if created is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(created))


def _jobs_words(run: dict[str, Any]) -> str:
    from headway.cli.words import count_words

    if run["error"]:
        return str(run["error"])
    kept = f" ({run['kept']:,} kept from other runs)" if run["kept"] else ""
    words = count_words(run["counts"]) if run["submitted"] else "not submitted"
    return words + kept


def _readable(folder: RunFolder) -> dict[str, Any]:
    """What there is of a run; one that cannot be read does not hide the others."""
    from headway.errors import HeadwayError

    try:
        return {**_facts(folder), "error": None}
    except HeadwayError as error:
        unknown = dict.fromkeys(("pool", "cluster", "created", "submitted", "kept"))
        return {
            "run": folder.label,
            **unknown,
            "counts": {},
            "results": str(folder.jobs),
            "error": error.message,
        }


def _facts(folder: RunFolder) -> dict[str, Any]:
    from headway.api import Run
    from headway.cli.board import Board
    from headway.pool.results import read_kept

    facts, run = folder.facts, Run(folder)
    counts = {group: number for group, number in Board(run).counts.items() if number}
    return {
        "run": folder.label,
        "pool": facts.pool["kind"],
        "cluster": facts.cluster,
        "created": facts.created,
        "submitted": run.submitted,
        "counts": counts,
        "kept": len(read_kept(folder)),
        "results": str(folder.jobs),
    }
