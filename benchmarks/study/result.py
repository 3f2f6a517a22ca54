"""The result: one table, one page, and the headline, all made from the figures of the runs."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from study.figures import OUTPUT
from study.runs import POOLS, WAYS

from headway.report import report
from headway.report.page import Front, versus

Row = dict[str, Any]
STUDY: Row = {  # as the study printed it, for 100 jobs; bytes it did not count
    "verified_share": 0.79,
    "compute_share": 0.47,
    "goodput": 0.54,
    "retried_share": 0.44,
    "result_mean": 8.6,
    "result_median": 4.9,
}
_percent = "{:.1%}".format
_hours = "{:.1f} h".format
COLUMNS: list[tuple[str, str, Callable[[float], str]]] = [
    ("jobs with the right output", "verified_share", _percent),
    ("compute share", "compute_share", _percent),
    ("compute share without waits for data", "net_share", _percent),
    ("goodput", "goodput", _percent),
    ("retried transfers", "retried_share", _percent),
    ("time to result, mean", "result_mean", _hours),
    ("median", "result_median", _hours),
    ("stretch, 95th percentile", "stretch_p95", "{:.2f}".format),
    ("bytes moved per result", "moved_per_result", "{:.2f} ×".format),
    ("bytes of repeated downloads", "retried_bytes", _percent),
    ("bytes of repeated attempts", "again_bytes", _percent),
    ("evictions", "evictions", "{:.1f}".format),
    ("nodes that held the data set before", "held_share", _percent),
    ("attempts that got it from their node", "store_share", _percent),
]


def load(folder: Path) -> dict[str, list[Row]]:
    """The figures of each run, by way, one row a seed."""
    found: dict[str, list[Row]] = {}
    for way in WAYS:
        for path in sorted((folder / way.name).glob("seed-*.json")):
            found.setdefault(way.name, []).append(_with_ratios(json.loads(path.read_text())))
    return found


def _with_ratios(row: Row) -> Row:
    results = max(1, row["verified"])
    return row | {
        "verified_share": row["verified"] / row["jobs"],
        "moved_per_result": row["bytes_moved"] / row["size"] / results,
        "net_share": row["compute_share"] - row["waiting_share"],
        "held_share": row["holding"] / row["nodes"],
        "store_share": row["from_store"] / max(1, row["arrived"]),
    }


def load_methods(folder: Path) -> list[Row]:
    """What became of the study's first two methods, and what empty jobs cost; one row a seed."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("methods/seed-*.json"))]


def methods(rows: Sequence[Row]) -> str:
    """The same in words."""
    if not rows:
        return "(not run)"
    last = rows[-1]
    cuts = ", ".join(str(row["https_cuts"]) for row in rows)
    ends = "arrived" if any(row["https_stock_arrived"] for row in rows) else "never arrived"
    ours = sum(row["https_headway_succeeded"] for row in rows)
    stock, named, agent = (statistics.fmean(row["overhead"][key] for row in rows) for key in _EMPTY)
    lines = last["native_headway"].splitlines()
    (at,) = [number for number, line in enumerate(lines) if "error:" in line][:1]
    refused = " ".join(line.strip() for line in lines[at : at + 2])
    return (
        f'- HTCondor\'s own transfer: the job is held with "{last["native_stock"]}". '
        f'`headway run` submits nothing and says "{refused}".\n'
        f"- https from the origin, through HTCondor's own plugin: cut off {cuts} times, then we "
        f"gave up; it {ends}. Headway's agent, with the same object and origin: {ours} of "
        f"{len(rows)} arrived.\n"
        f"- An empty job takes {stock:.2f} s of slot time with stock HTCondor, {named:.2f} s if its"
        f" outputs are named, and {agent:.2f} s with Headway. When a job does not name its outputs,"
        " as the study's did not, HTCondor waits a second before it starts the job, because it"
        " tells new files from old ones by the clock.\n"
    )


_EMPTY = ("stock", "named", "headway")


def middle(rows: Sequence[Row], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def of_round(found: dict[str, list[Row]], number: int) -> dict[str, list[Row]]:
    """What was found in one round."""
    return {way.name: found[way.name] for way in WAYS if way.round == number and way.name in found}


def table(found: dict[str, list[Row]], *, study: bool = True) -> list[list[str]]:
    """Head and rows as text: the mean of the seeds, and from where to where they go.

    `study`: with a column of what the study printed.
    """
    ways = list(found)
    seeds = {
        way: f"{way} ({len(rows)} seed{'s' * (len(rows) != 1)})" for way, rows in found.items()
    }
    printed = STUDY if study else {}
    lines = [["", "the study", *seeds.values()]]
    for title, key, form in COLUMNS:
        lines.append(
            [
                title,
                form(printed[key]) if key in printed else "",
                *(_cell(found[way], key, form) for way in ways),
            ]
        )
    for cause in _causes(found):
        cells = []
        for way in ways:
            rows = [row | {"loss": row["losses"].get(cause, 0.0)} for row in found[way]]
            cells.append(_cell(rows, "loss", _percent))
        lines.append([f"lost: {cause}", "", *cells])
    return lines if study else [[line[0], *line[2:]] for line in lines]


def _cell(rows: Sequence[Row], key: str, form: Callable[[float], str]) -> str:
    values = [row[key] for row in rows]
    if len(values) == 1 or form(min(values)) == form(max(values)):
        return form(statistics.fmean(values))
    return f"{form(statistics.fmean(values))} ({form(min(values))} to {form(max(values))})"


def _causes(found: dict[str, list[Row]]) -> list[str]:
    worst: dict[str, float] = {}
    for rows in found.values():
        for row in rows:
            for cause, share in row["losses"].items():
                worst[cause] = max(worst.get(cause, 0.0), share)
    return sorted(worst, key=lambda cause: -worst[cause])


def markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rows = lines
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rule, *rows])


def headline(found: dict[str, list[Row]]) -> str:
    """The table that the README begins with, of the seeds that all runs have."""
    common = set.intersection(*({row["seed"] for row in found[way.name]} for way in WAYS))
    jobs = found[WAYS[0].name][0]["jobs"]
    lines = [[f"{jobs} jobs, {len(common)} seed{'s' * (len(common) != 1)}", *_SETUPS]]
    for number, title in enumerate(_ROUNDS):
        ways = [rounds[number : number + 1] for rounds in POOLS]  # one, or none
        kept = [
            [row for way in one for row in found[way.name] if row["seed"] in common] for one in ways
        ]
        lines.append([f"**{title}**", *[""] * len(ways)])
        lines.append(["jobs with the right result", *map(_good, kept)])
        for words, key, form in _HEADLINE:
            lines.append([words, *(form(middle(rows, key)) if rows else "" for rows in kept)])
    return markdown(lines)


def _good(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    return f"{sum(row['verified'] for row in rows)} of {sum(row['jobs'] for row in rows)}"


_SETUPS = ("HTCondor as in 2024", "HTCondor as in 2026", "Headway", "Headway, streaming")
_ROUNDS = ("on new nodes", "the same jobs again, on the same nodes")
_HEADLINE: list[tuple[str, str, Callable[[float], str]]] = [
    ("slot time that computed results", "net_share", _percent),
    ("mean time to a result", "result_mean", _hours),
    ("downloads of the data set for each result", "moved_per_result", "{:.2f}".format),
]


def page(folder: Path, found: dict[str, list[Row]]) -> str:
    """One page: the table of the seeds, and what `headway report --compare` says of the runs."""
    reports = {way: report(str(folder / way), outputs=OUTPUT) for way in found}
    first, *others = reports.values()
    lines = table(found)
    front = Front(
        "The study repeated, with Headway",
        "Mean of the seeds, with the lowest and the highest in brackets",
        lines[0],
        lines[1:],
        notes=[
            "Shares are of the slot time, hours are the study's. Stretch: the time from the first "
            "match to the verified output, divided by own compute time plus one transfer at the "
            "site's rate. README.md beside the benchmark says what is scaled and what carries over."
        ],
    )
    return versus(first.compare(*others, names=list(reports)), generated=time.time(), front=front)
