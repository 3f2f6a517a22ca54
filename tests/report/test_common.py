"""Files that HTCondor brings to a node once: what the report says of them."""

from __future__ import annotations

from pathlib import Path

from headway.report import report

EVENTS = Path(__file__).parents[1] / "events"
SIX = EVENTS / "common" / "six_jobs.log"
ROW = "files brought once for several jobs"


def row(path: Path) -> str:
    lines = [line for line in report(str(path)).text(100).splitlines() if ROW in line]
    return lines[0].partition(ROW)[2].strip() if lines else ""


def test_six_jobs_share_a_transfer_and_are_the_only_jobs() -> None:
    found = report(str(SIX))
    assert (found.totals.jobs, found.totals.succeeded, found.totals.attempts) == (6, 6, 6)
    assert found.totals.evictions == 0
    assert row(SIX) == "1 transfer, 1 s, for 6 jobs"
    totals = found.json()["totals"]
    names = ("common_transfers", "common_transfer_s", "common_jobs")
    assert [totals[name] for name in names] == [1, 1.0, 6]


def test_two_nodes_are_two_transfers_and_one_that_never_ended_takes_no_time(tmp_path: Path) -> None:
    text = SIX.read_text()
    first, second = (part for part in text.split("...\n") if part.startswith("047"))
    other = first.replace("-1000", "-1003")
    (tmp_path / "two.log").write_text(text.replace(first, f"{other}...\n{first}"))
    assert row(tmp_path / "two.log") == "2 transfers, 1 s, for 6 jobs"
    assert second.startswith("047") and "TransferFinished" in second


def test_what_several_logs_tell_counts_once(tmp_path: Path) -> None:
    logs = [EVENTS / "formats" / name for name in ("common.json", "common-json.log")]
    submits = SIX.read_text().split("...\n")[0].replace("(001.", "(015.")
    for number, log in enumerate(logs):
        (tmp_path / f"{number}.log").write_bytes(log.read_bytes())
    (tmp_path / "jobs.log").write_text(f"{submits}...\n")
    found = report([str(tmp_path / name) for name in ("jobs.log", "0.log", "1.log")])
    assert found.totals.common_transfers == 1 and found.totals.jobs == 1


def test_a_log_without_them_says_nothing() -> None:
    assert row(EVENTS / "logs" / "ok_transfer.log") == ""
