"""The page as a file: what is in it, that nothing can break out of it, and how large it gets."""

from __future__ import annotations

import base64
import json
import re
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from headway.events.opening import Skip
from headway.report import report
from headway.report.accounts import Accounts
from headway.report.compare import Comparison, compare
from headway.report.enums import JobOutcome, Phase
from headway.report.figures import losses, sites, totals
from headway.report.findings import Destination, Finding, Step, Table, find
from headway.report.numbers import percent
from headway.report.page import Front, render, sections, tables, versus
from headway.report.page.charts import (
    count_marks,
    join,
    length_marks,
    tag,
    text,
    time_marks,
    zone_words,
)
from headway.report.page.sections import occupancy

from .made import made
from .many import many_jobs
from .study import write

UTC = timezone.utc

HOSTILE = [
    "</script><img src=x onerror=window.hacked=1>",
    "<!--<script>window.hacked=2</script>",
    "\"' onmouseover='window.hacked=3' x=\"",
    "\x1b[31mred\x1b[0m\x00\x07 ]]>&lt;&amp;{{script}}{{data}}",
    "left \u202eright\u202c \u2066isolated\u2069 \u200f \u2028 \u2029 end",
    "=cmd|'/c calc'!A1 `$(reboot)` ${7*7} javascript:window.hacked=4",
]
TAME = [f"name {number}" for number in range(len(HOSTILE))]


def page_of(accounts: Accounts, findings: Sequence[Finding] | None = None, **more: Any) -> str:
    """The page of accounts, with all their figures."""
    return render(
        accounts,
        totals(accounts),
        losses(accounts),
        sites(accounts),
        find(accounts) if findings is None else findings,
        title=more.pop("title", "A test"),
        generated=accounts.end,
        zone=UTC,
        **more,
    )


def with_names(names: list[str]) -> Accounts:
    """A hundred jobs whose log says these names everywhere."""
    accounts = many_jobs(100, sites=names, users=names, reasons=names, files=names)
    skipped = [(name, Skip(0, 9, name)) for name in names]
    fields: dict[str, Any] = {"skipped": skipped, "unread": list(zip(names, names, strict=True))}
    return replace(accounts, **fields)


def finding_of(names: list[str]) -> Finding:
    """A finding with these names wherever it has words."""
    return Finding(
        key="made",
        title=names[0],
        why=names[1],
        cost_s=7200.0,
        jobs=9,
        named=tuple(names),
        evidence=tuple(zip(names, names, strict=True)),
        table=Table(tuple(names), (tuple(names),)),
        advice=tuple(Step(name, (name,), Destination.SUBMIT) for name in names),
    )


class Outline(HTMLParser):
    """Every tag of a page in order, with the names and the values of its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[tuple[str, str, str]] = []
        self.comments: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, tuple(key for key, _ in attributes)))
        self.values += [(name, key, value or "") for key, value in attributes]

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Accounts:
    return report(write(tmp_path_factory.mktemp("study"))).accounts


def words_of(page: str) -> str:
    """The text of a page without scripts, on one line."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", body))


def test_the_study_is_told(study: Accounts) -> None:
    words = words_of(page_of(study))
    for said in (
        "Compute share43.3 %",
        "Goodput49.3 %",
        "Slot time766.7 h",
        "79 succeeded",
        "3 failed",
        "18 held",
        "transfer cut off or stalled",
        "The line marks 1 hour: no transfer arrived beyond it.",
        "CHTC-Spark-CE1: median 3.1 h",
        "79 of 100 jobs succeeded",
        "Every byte was read.",
        "Compute of verified results over all slot time.",
    ):
        assert said in words, said


def test_findings_come_before_all_else_but_the_two_shares(study: Accounts) -> None:
    page = page_of(study)
    order = [
        page.index(f'id="{name}"') for name in ("summary", "findings", "time", "sites", "jobs")
    ]
    assert order == sorted(order)
    first = page[order[1] : order[2]]
    assert "cut off at 1 hour" in first
    assert "404" in first
    assert "20 hours" in first
    assert "headway wrap" in first


def test_nothing_is_fetched_and_only_our_script_may_run(study: Accounts) -> None:
    outline = Outline(page_of(study))
    links = [value for _, key, value in outline.values if key in ("href", "src", "action", "data")]
    assert all(link.startswith(("#", "data:image/svg+xml,")) for link in links)
    assert not [key for _, key, _ in outline.values if key.startswith("on") or key == "style"]
    policy = next(
        value
        for name, key, value in outline.values
        if (name, key) == ("meta", "content") and "src" in value
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http:" not in policy and "https:" not in policy
    scripts = [value for name, key, value in outline.values if (name, key) == ("script", "type")]
    assert set(scripts) == {"application/json", "text/plain"}
    assert [keys for name, keys in outline.tags if name == "script"].count(()) == 1


def test_the_scripts_use_nothing_that_could_run_data() -> None:
    assets = Path(tables.__file__).parent / "assets"
    for path in assets.glob("*.js"):
        body = path.read_text()
        for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert risky not in body, (path.name, risky)
        assert not re.search(r"https?://|new Function|import\(|fetch\(", body), path.name


def test_hostile_names_change_nothing_but_words() -> None:
    hostile = Outline(
        page_of(with_names(HOSTILE), [finding_of(HOSTILE)], title=HOSTILE[0], notes=HOSTILE)
    )
    tame = Outline(page_of(with_names(TAME), [finding_of(TAME)], title=TAME[0], notes=TAME))
    assert hostile.tags == tame.tags
    assert hostile.comments == tame.comments == []
    assert not {name for name, _ in hostile.tags} & {"img", "iframe", "object", "embed", "base"}


def test_hostile_names_reach_the_scripts_as_words() -> None:
    page = page_of(with_names(HOSTILE), [])
    raw = re.search(r'<script type="application/json" id="about">(.*?)</script>', page, re.DOTALL)
    assert raw
    assert not set("<>&\u2028\u2029") & set(raw[1])
    columns = {c["name"]: c for c in json.loads(raw[1])["jobs"]["columns"]}
    assert HOSTILE[0] in columns["site"]["words"]
    for word in columns["site"]["words"]:
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]", word)


def test_a_line_of_a_megabyte_is_cut() -> None:
    long = with_names(["x" * 1_000_000, "<b>" * 400_000, *TAME[2:]])
    assert len(page_of(long, [])) < len(page_of(with_names(TAME), [])) + 40_000


def test_what_a_log_says_is_never_a_place_to_fill() -> None:
    page = page_of(with_names(["{{style}}", *TAME[1:]]), [])
    assert page.count("color-scheme: light dark") == 1


@pytest.mark.parametrize("sample", HOSTILE)
def test_text_is_one_harmless_line(sample: str) -> None:
    assert text(sample).isprintable()
    assert len(text(sample * 1000).encode()) <= 400


def test_markup_escapes_what_it_did_not_make() -> None:
    made = tag("p", "<i>", tag("b", "&"), title='"><script>', class_="a", hidden=True, id=None)
    assert made == (
        '<p title="&quot;&gt;&lt;script&gt;" class="a" hidden>&lt;i&gt;<b>&amp;</b></p>'
    )
    assert join("<", None, tag("br")) == "&lt;<br/>"


def unpacked(packed: tables.Tables, name: str) -> dict[str, Any]:
    """A table of the page as the scripts read it."""
    about = packed.about[name]
    body = zlib.decompress(base64.b64decode(packed.payloads[name]), -zlib.MAX_WBITS)
    at, rows, found = 0, about["rows"], {}
    for column in about["columns"]:
        width = column["width"]
        planes = np.frombuffer(body, np.uint8, rows * width, at).reshape(width, rows)
        values = sum(planes[k].astype(np.int64) << (8 * k) for k in range(width))
        if column["delta"]:
            values = np.cumsum((values >> 1) ^ -(values & 1))
        words = column.get("words")
        found[column["name"]] = [words[v] for v in values] if words else values
        at += rows * width
    assert at == len(body)
    return found


def test_every_second_of_the_study_is_in_the_file(study: Accounts) -> None:
    packed = tables.tables(study)
    jobs = unpacked(packed, "jobs")
    assert [f"{c}.{p}" for c, p in zip(jobs["cluster"], jobs["proc"], strict=True)] == (
        study.jobs["id"].to_list()
    )
    slot = jobs["slot"] + jobs["compute"] + jobs["transfer"]
    assert slot.sum() * packed.about["tick"] == study.jobs["slot_s"].sum()
    assert jobs["bad"].sum() == study.jobs["bad_s"].sum()
    assert jobs["site"] == [site or "" for site in study.jobs["site"].to_list()]
    pieces, counts = unpacked(packed, "pieces"), unpacked(packed, "details")
    assert pieces["seconds"].sum() == study.pieces["seconds"].sum()
    assert counts["pieces"].sum() == len(study.pieces)
    attempts = unpacked(packed, "attempts")
    assert attempts["slot"].sum() == study.attempts["slot_s"].sum()
    assert attempts["ending"] == study.attempts.sort("job", "number")["ending"].to_list()
    assert packed.note == ""


def test_fractions_of_a_second_are_kept_and_pieces_still_lie_end_to_end() -> None:
    pieces = [
        {
            "job": 0,
            "phase": phase,
            "verdict": "none",
            "cause": "none",
            "begin": begin,
            "seconds": length,
        }
        for phase, begin, length in (
            ("queued", 0.004, 0.333),
            ("held", 0.337, 0.333),
            ("queued", 0.67, 0.5),
        )
    ]
    accounts = made(
        [{"begin": 0.004, "end": 1.17, "outcome": "unfinished", "total_s": 1.166}], pieces=pieces
    )
    packed = tables.tables(accounts)
    assert packed.about["tick"] == 0.01
    assert unpacked(packed, "pieces")["seconds"].tolist() == [34, 33, 50]


def test_what_does_not_fit_is_left_out_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = many_jobs(5000)
    monkeypatch.setattr(tables, "DETAILED_JOBS", 400)
    packed = tables.tables(accounts)
    assert packed.about["jobs"]["rows"] == 5000
    assert packed.about["details"]["rows"] == 400
    assert "kept for 400 of 5,000 jobs" in packed.note
    assert "--csv" in packed.note

    monkeypatch.setattr(tables, "JOBS_BUDGET", 40_000)
    packed = tables.tables(accounts)
    rows = packed.about["jobs"]["rows"]
    assert 1000 <= rows < 5000
    assert len(packed.payloads["jobs"]) <= 40_000
    assert f"The table has {rows:,} of 5,000 jobs" in packed.note
    kept = unpacked(packed, "jobs")
    failed = accounts.jobs.filter(pl.col("outcome") != "success")
    success = [outcome.value for outcome in JobOutcome].index("success") + 1
    assert (kept["outcome"] != success).sum() >= min(len(failed), rows // 2)
    # Details are of jobs that the table has.
    assert set(unpacked(packed, "details")["row"]) <= set(range(rows))


def test_one_job_with_endless_pieces_leaves_room_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "DETAILED_PIECES", 100)
    rows = [
        {
            "job": job,
            "phase": "queued",
            "verdict": "none",
            "cause": "none",
            "begin": float(at),
            "seconds": 1.0,
        }
        for job, number in enumerate((3, 90, 3, 3))
        for at in range(number)
    ]
    jobs = [{"begin": 0.0, "end": 90.0, "outcome": "unfinished"} for _ in range(4)]
    packed = tables.tables(made(jobs, pieces=[*rows, *rows[3:93]]))
    assert unpacked(packed, "details")["row"].tolist() == [0, 2, 3]


def test_ten_thousand_different_reasons_do_not_fill_the_file() -> None:
    names = [f"reason {number} " + "y" * 350 for number in range(10_000)]
    packed = tables.tables(many_jobs(60_000, reasons=names))
    reasons = next(c for c in packed.about["jobs"]["columns"] if c["name"] == "reason")["words"]
    assert sum(map(len, reasons)) < 1_100_000
    assert any("see --csv" in reason for reason in reasons)


@pytest.mark.parametrize("accounts", [made(), made(begin=5.0, end=5.0)])
def test_no_jobs_is_a_page_too(accounts: Accounts) -> None:
    words = words_of(page_of(accounts))
    assert "No job is in these logs." in words
    assert "No job has held a slot yet." in words


def test_a_job_that_still_waits() -> None:
    row = {
        "job": 0,
        "phase": "queued",
        "verdict": "none",
        "cause": "none",
        "begin": 100.0,
        "seconds": 0.0,
    }
    job = {"begin": 100.0, "end": 100.0, "outcome": "unfinished", "submitted": 100.0}
    assert "1 not finished" in words_of(page_of(made([job], pieces=[row])))


def test_a_short_run_is_not_told_in_tenths_of_an_hour() -> None:
    job = {"begin": 0.0, "end": 90.0, "outcome": "success", "attempts": 1, "slot_s": 90.0}
    job |= {"compute_s": 60.0, "good_compute_s": 60.0, "good_s": 60.0, "bad_s": 30.0}
    attempt = {
        "job": 0,
        "number": 1,
        "begin": 0.0,
        "end": 90.0,
        "ending": "success",
        "slot_s": 90.0,
    }
    piece = {"job": 0, "attempt": 0, "phase": "compute", "cause": "none"}
    pieces = [
        piece | {"verdict": "bad", "cause": "eviction", "begin": 0.0, "seconds": 30.0},
        piece | {"verdict": "good", "begin": 30.0, "seconds": 60.0},
    ]
    words = words_of(page_of(made([job], [attempt], pieces), []))
    assert "Slot time90 s" in words
    assert "all badput30 s33.3 %" in words
    assert " h" not in words[words.index("Slot time by phase") : words.index("Sites side by side")]


def test_occupancy_counts_every_second(study: Accounts) -> None:
    busy = occupancy(study)
    width = (busy.end - busy.begin) / 180
    for phase, numbers in busy.phases.items():
        seconds = study.pieces.filter(pl.col("phase") == phase.value)["seconds"].sum()
        assert sum(numbers) * width == pytest.approx(seconds, abs=0.001 * 180 * width)
    assert max(busy.phases[Phase.COMPUTE]) <= 100


@pytest.mark.parametrize(
    ("top", "marks"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (3, [0, 1, 2, 3]),
        (97, [0, 25, 50, 75, 100]),
        (68, [0, 20, 40, 60, 80]),
    ],
)
def test_marks_of_counts_are_round_and_reach_the_top(top: float, marks: list[float]) -> None:
    assert count_marks(top) == marks


@pytest.mark.parametrize("top", [0.05, 1, 59, 3601, 86_400, 3e6, 4e8])
def test_marks_of_lengths_are_few_and_in_reach(top: float) -> None:
    marks = length_marks(top)
    assert marks[0] == 0
    assert 2 <= len(marks) <= 8
    assert marks[-1] <= top


@pytest.mark.parametrize("length", [0.5, 30, 4000, 86_400, 9e5, 3e7, 1e9])
def test_marks_of_the_clock_are_few_and_inside(length: float) -> None:
    marks = time_marks(1.7e9, 1.7e9 + length, timezone(timedelta(hours=-6)))
    assert len(marks) <= 8
    assert all(1.7e9 <= mark <= 1.7e9 + length for mark in marks)


def test_a_zone_is_told() -> None:
    assert zone_words(UTC) == "UTC"
    assert zone_words(timezone(timedelta(hours=-6))) == "UTC−06:00"
    assert zone_words(timezone(timedelta(hours=5, minutes=30))) == "UTC+05:30"


def test_a_hundred_thousand_jobs_are_a_small_file_made_quickly() -> None:
    accounts = many_jobs(100_000)
    figures = totals(accounts), losses(accounts), sites(accounts)
    began = time.process_time()
    page = render(accounts, *figures, [], title="Many", generated=accounts.end)
    assert time.process_time() - began < 20
    assert len(page.encode()) < 4_000_000
    assert "Attempts and the timeline are kept for 20,000 of 100,000 jobs" in page


def comparison_of(names: Sequence[str] = ("before.log", "after.log"), more: int = 0) -> Comparison:
    """Two runs or more, with these names wherever a log may name something."""
    sites = list(names) * 3
    runs = [many_jobs(200), many_jobs(300, seed=2, sites=sites)]
    runs += [many_jobs(250, seed=run) for run in range(3, more + 3)]
    found = compare(*runs, names=names[: len(runs)])
    return replace(found, notes=tuple(names))


def test_a_comparison_is_told_on_a_page_of_its_own() -> None:
    found = comparison_of()
    page = versus(found, generated=1.7e9, zone=UTC)
    words = words_of(page)
    share = next(row for row in found.pairs[0].figures if row.name == "compute share")
    assert f"compute share{percent(share.a)}{percent(share.b)}" in words
    for row in (*found.figures, *found.losses):
        assert row.name in words
    for said in ("before.log → after.log", "Losses by cause", "may be chance", "14 Nov 2023 22:13"):
        assert said in words
    for site in found.sites:
        assert site in words
    assert b'<meta name="generator" content="Headway">' in page.encode()[:4096]
    assert len(page) < 100_000


def test_several_runs_are_one_table_on_one_page() -> None:
    names = ("stock-2024", "stock-2026", "headway", "headway-stream")
    found = comparison_of(names, more=2)
    front = Front("The <study> again", "Mean of 3 seeds", ["", *names], [["stretch", *"1234"]])
    page = versus(found, generated=1.7e9, zone=UTC, front=front)
    assert page.count("<style>") == 1 and "<iframe" not in page
    words = words_of(page)
    share = next(figure for figure in found.figures if figure.name == "compute share")
    for value in share.values:
        assert percent(value) in words
    assert words.count("Losses by cause") == 1
    for other in names[1:]:
        assert f"What changed: stock-2024 → {other}" in words
    assert "The &lt;study&gt; again" in page and "stretch1234" in words
    ids = [value for _, key, value in Outline(page).values if key == "id"]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("more", [0, 2])
def test_nothing_breaks_out_of_a_comparison(more: int) -> None:
    hostile = versus(comparison_of(HOSTILE, more), generated=1.7e9)
    tame = versus(comparison_of(TAME, more), generated=1.7e9)
    assert Outline(hostile).tags == Outline(tame).tags
    assert "<script" not in hostile and "\x1b" not in hostile and "\u202e" not in hostile
    policy = next(v for _, k, v in Outline(hostile).values if k == "content" and "src" in v)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_a_comparison_of_nothing_is_a_page_too() -> None:
    page = versus(compare(made(), made()), generated=1.7e9)
    assert "No slot time was lost in any run." in page
    assert "The logs name no site." in page
    assert "Few jobs have ended in A and B" in page


def test_waiting_is_called_what_it_is(study: Accounts) -> None:
    words = words_of(page_of(study))
    assert "45.8 h in transfers that results needed" in words
    assert "h on hold · 17 jobs" in words
    assert "36.7 h longer than needed" in words


def test_of_many_files_only_those_shown_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder can have millions of places that could not be read."""
    asked: list[str] = []

    def noted(words: str) -> str:
        asked.append(words)
        return text(words)

    monkeypatch.setattr(sections, "log_text", noted)
    many = [("x.log", Skip(0, 9, "no event"))] * 1000
    unread = [("y.log", "cannot be read")] * 1000
    made = sections.reading(
        replace(many_jobs(3), skipped=many, unread=unread, unfinished=many, others=1)
    )
    assert len(asked) < 300
    assert made.count("And 950 more.") == 3
    assert "1 other file is not an event log or has no events." in made
