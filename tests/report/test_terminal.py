"""The terminal summary: what is said, that it fits, and that nothing in it acts."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from tests.report.made import Row, accounts_of, made
from tests.report.many import many_jobs
from tests.report.study import logs
from tests.report.written import HOSTILE, write_log

from headway.report import Report, report
from headway.report.accounts import Accounts
from headway.report.findings import find
from headway.report.findings.finding import Destination, Finding, Step, Table
from headway.report.load import Loaded
from headway.report.terminal import TableColumn, bar, line, plain, summary, table
from headway.text import cut, padded, width_of, wrapped


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("study")
    for name, data in logs().items():
        (folder / name).write_bytes(data)
    return report(folder)


def of(accounts: Accounts, *findings: Finding) -> Report:
    found = Report(Loaded("some.log", accounts))
    found.__dict__["findings"] = list(findings)
    return found


def test_the_study_in_words(study: Report) -> None:
    text = study.text()
    lines = text.splitlines()
    findings = [each for each in lines if each[:4].strip().rstrip(".").isdigit() and each[4] == " "]
    assert "cut off at 1 hour" in findings[0]
    assert "held for the same reason: the data server answered" in findings[1]
    assert "time limit of 20 hours" in findings[2]
    assert len(findings) == 3
    assert "compute share 43.3 %" in text and "Slot time 766.7 h" in text
    for words, value in (
        ("jobs that succeeded", "79 of 100"),
        ("jobs that failed", "3"),
        ("jobs that are held", "18: 16 on a transfer, 2 on the time limit"),
        ("compute, jobs that succeeded", "332.3 h"),
        ("their last transfers", "45.8 h"),
        ("their transfers before that", "302.2 h"),
        ("their compute that was lost", "5.5 h"),
        ("compute, held jobs", "40.0 h"),
        ("compute, failed jobs", "33 min"),
        ("transfers, failed jobs", "39.6 h, 2.2 h of it their last"),
        ("compute and transfers of a result", "8.6 h mean, 5.0 h median"),
        ("transfers cut off or stalled", "232 in 29 jobs"),
        ("evictions", "5 in 4 jobs"),
        ("longest transfer that arrived", "3,441 s"),
    ):
        assert [each.split(words)[1].strip() for each in lines if each.startswith(f"  {words}  ")][
            :1
        ] == [value]
    assert "findings more: --findings" in text
    everything = study.text(everything=True)
    assert "findings more" not in everything
    assert everything.count("     → ") > 10


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 300])
def test_it_fits_its_terminal(study: Report, width: int) -> None:
    shown = summary(study, width=width, by="cluster", everything=True)
    for each in shown:
        if [style for _, style in each if style == "cyan"]:
            continue  # lines to copy are never cut
        assert width_of("".join(text for text, _ in each)) <= max(width, 40)


def test_sites_keep_what_matters_at_80_columns(study: Report) -> None:
    text = study.text(80)
    titles = next(each for each in text.splitlines() if each.strip().startswith("site  "))
    assert titles.split() == [
        "site", "jobs", "success", "mean", "median", "rate", "stalls", "holds",
    ]  # fmt: skip


def test_without_blocks_the_bars_are_ascii(study: Report) -> None:
    with_blocks = plain(summary(study, blocks=True))
    without = plain(summary(study, blocks=False))
    assert "█" in with_blocks and "█" not in without and "####" in without
    assert bar(0.5, 10) == "█████" and bar(0.5, 10, blocks=False) == "#####"
    assert bar(0.0001, 10) == "▏" and bar(0, 10) == bar(None, 10) == ""
    assert bar(1, 10) == "█" * 10 == bar(2, 10)


def test_hostile_text_never_reaches_the_terminal() -> None:
    accounts = many_jobs(
        20, sites=[HOSTILE, "b"], users=[HOSTILE, "u"], reasons=[HOSTILE, "r"], files=[HOSTILE]
    )
    finding = Finding(
        HOSTILE,
        HOSTILE,
        HOSTILE,
        named=(HOSTILE,),
        jobs=1,
        evidence=((HOSTILE, HOSTILE),),
        table=Table((HOSTILE,), ((HOSTILE,),)),
        advice=(Step(HOSTILE, (HOSTILE,), Destination.SHELL),),
    )
    found = of(accounts, finding)
    found.name = HOSTILE
    found.notes = (HOSTILE,)
    for by in ("site", "user", "code", "cluster", "hour"):
        text = found.text(everything=True, by=by)
        assert not [char for char in text if ord(char) < 32 and char != "\n"]
        assert "\u202e" not in text and "\x7f" not in text


def test_jobs_that_never_ran(tmp_path: Path) -> None:
    assert "No job of these has held a slot yet." in of(made([{"outcome": "unfinished"}])).text()
    running = report(write_log(tmp_path / "x.log", [None])).text()
    assert "not decided yet" in running
    assert "jobs that have not finished" in running


def test_short_runs_are_told_in_seconds(tmp_path: Path) -> None:
    text = report(write_log(tmp_path / "x.log", [0, 0], transfer=10, compute=50)).text()
    assert "Slot time 2 min: compute share 83.3 %, goodput 100.0 %" in text
    assert "0.0 h" not in text


def test_many_sites_and_much_damage_are_counted() -> None:
    accounts = many_jobs(200, sites=[f"site{n:02}" for n in range(40)])
    damaged = dataclasses.replace(
        accounts, skipped=accounts.skipped * 20, unread=[("b.log", "cannot be read")] * 9, others=7
    )
    text = of(damaged).text()
    assert "… and 20 sites more" in text
    assert "Skipped 10,240 bytes at 20 places" in text
    assert "… and 15 more: --json" in text
    assert text.count("b.log: cannot be read") == 5
    assert "7 other files are not event logs or have no events." in text
    assert "a.txt" not in text


def test_tables_give_up_the_least_worth_first() -> None:
    columns = [
        TableColumn("name", left=True),
        TableColumn("worth", 9),
        TableColumn("nothing", 1),
        TableColumn("c", 5),
    ]
    rows = [("a" * 30, "1", "2", "3")]
    assert "nothing" in plain(table(columns, rows, 80))
    narrow = plain(table(columns, rows, 36))
    assert "nothing" not in narrow and "worth" in narrow and "…" in narrow
    empty = plain(table(columns, [("a", "–", " ", "3")], 80))
    assert "worth" not in empty and "nothing" not in empty


def test_text_is_wrapped_and_cut_by_columns() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert wrapped("", 10) == []
    assert all(width_of(each) <= 10 for each in wrapped("深層学習" * 8 + " a b", 10))
    assert cut("深層学習", 5) == "深層…"
    assert padded("深", 4) == "深  " and padded("a", 3, right=True) == "  a"
    assert plain([line("a\x1b", ("b\n", "red"))]) == "a\ufffdb\n"


SHORT = """\
000 (7.{n:03d}.000) 2026-01-02 03:00:00 Job submitted from host: <10.0.0.1:9618>
...
001 (7.{n:03d}.000) 2026-01-02 03:01:00 Job executing on host: <10.0.0.{at}:9618>
...
004 (7.{n:03d}.000) 2026-01-02 03:03:00 Job was evicted.
\t(0) Job was not checkpointed.
\t\tUsr 0 00:01:50, Sys 0 00:00:00  -  Run Remote Usage
...
001 (7.{n:03d}.000) 2026-01-02 03:04:00 Job executing on host: <10.0.0.{at}:9618>
...
005 (7.{n:03d}.000) 2026-01-02 03:04:40 Job terminated.
\t(1) Normal termination (return value 0)
\t\tUsr 0 00:00:30, Sys 0 00:00:00  -  Run Remote Usage
...
"""


@pytest.fixture
def short(tmp_path: Path) -> Report:
    """900 jobs of 40 s, in a log without transfers and without names: 40 hours of slot time."""
    log = tmp_path / "short.log"
    log.write_text("".join(SHORT.format(n=n, at=n % 3) for n in range(900)))
    return report(log)


def test_units_are_chosen_by_size(short: Report) -> None:
    text = short.text(100)
    assert "Slot time 40.0 h" in text
    assert "40 s mean, 40 s median" in text
    assert not re.search(r"(?<![\d.,])0\.0 h", text + short.html())


def test_a_log_without_transfers_says_nothing_of_any(short: Report) -> None:
    text, page = short.text(120), short.html()
    assert "stalls" not in text and "rate" not in text.split("Machines")[1]
    for words in ("How long input transfers took", "Input transfers that arrived", "None yet"):
        assert words not in page
    assert "Transfers and time" not in page and "Over time" in page


def test_there_is_one_count_of_evictions(short: Report) -> None:
    assert short.totals.evictions == 900
    assert sum(site.evictions for site in short.sites) == 900
    assert sum(group.evictions for group in short.groups("cluster")) == 900
    assert int(short.accounts.jobs["evictions"].sum()) == 900
    [found] = [one for one in short.findings if one.key == "restart"]
    assert "in 900 evictions" in found.title
    assert "evictions                          900 in 900 jobs" in short.text(100)
    [figure] = [f for f in short.compare(short).figures if f.name == "evictions per job"]
    assert figure.values == (1.0, 1.0)


def test_machines_are_not_called_sites(short: Report) -> None:
    text = short.text(100)
    assert "3 machines" in text and "site" not in text.lower()
    assert "Machines side by side" in short.html()
    assert short.json()["place"] == "machine"


def test_the_order_of_findings_can_be_seen() -> None:
    """What a finding costs beside the loss in its title is said, for it decides the order."""
    good: Row = {"parts": {"compute": 36000.0}}
    bad: Row = {"ending": "failed", "return_value": 3, "parts": {"compute": 600.0}}
    jobs: list[Row] = [{"tries": [good]}] * 30
    jobs += [{"outcome": "failed", "return_value": 3, "tries": [bad]}] * 10
    [found] = find(accounts_of(jobs))
    assert found.price == (
        "Costs 101.7 h of slot time: 1.7 h lost, 100.0 h to produce the missing results."
    )
