"""Tables for spreadsheets and data frames, and where they may be put."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.made import made
from tests.report.many import many_jobs
from tests.report.written import HOSTILE, write_log

from headway.errors import ReportError
from headway.report import report
from headway.report.accounts import JOBS, Accounts
from headway.report.document import Report
from headway.report.export import csv as to_csv
from headway.report.export import (
    harmless,
    losses_table,
    tables,
    write_csv,
    write_html,
    write_parquet,
)
from headway.report.load import Loaded


@pytest.fixture(scope="module")
def accounts() -> Accounts:
    return many_jobs(60)


def text_of(table: pl.DataFrame) -> str:
    out = io.BytesIO()
    to_csv(table, out)
    return out.getvalue().decode("utf-8")


def test_csv_is_rfc_4180(accounts: Accounts) -> None:
    found = tables(accounts)
    assert list(found) == ["jobs", "attempts", "pieces", "holds", "losses"]
    for table in found.values():
        text = text_of(table)
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        assert lines[0] == table.columns
        assert len(lines) == table.height + 1
        assert {len(line) for line in lines} == {table.width}
        assert text.count("\r\n") == text.count("\n") == table.height + 1
    first = next(csv.DictReader(io.StringIO(text_of(found["jobs"]))))
    assert first["id"] == accounts.jobs["id"][0]
    assert first["begin"].endswith(".000Z") and first["begin"].startswith("2023-11-14T22:")
    assert float(first["slot_s"]) == accounts.jobs["slot_s"][0]
    assert found["attempts"]["job_id"][0] == accounts.jobs["id"][0]


CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", HOSTILE]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_stays_text(text: str) -> None:
    accounts = made([{"hold_reason": text, "site": text, "user": text, "log": text}])
    line = next(csv.DictReader(io.StringIO(text_of(tables(accounts)["jobs"]), newline="")))
    for name in ("hold_reason", "site", "user", "log"):
        assert line[name].startswith("'")
        assert not [char for char in line[name] if ord(char) < 32]


@given(st.text(max_size=20))
def test_no_cell_begins_a_formula(text: str) -> None:
    safe = harmless(pl.DataFrame({"x": [text], "n": [-1.0]}))
    cell = safe["x"][0]
    told = CONTROL.sub(" ", text)
    formula = told.strip()[:1] in list("=+-@＝＋－＠") and told.strip() != ""
    assert cell == (f"'{told}" if formula else told)
    assert safe["n"][0] == -1.0  # a number is no text


def test_parquet_holds_the_same_tables(accounts: Accounts, tmp_path: Path) -> None:
    written = write_parquet(tables(accounts), tmp_path / "out")
    assert [path.name for path in written] == [
        f"{name}.parquet" for name in ("jobs", "attempts", "pieces", "holds", "losses")
    ]
    back = pl.read_parquet(tmp_path / "out/jobs.parquet")
    assert back.columns == list(JOBS)
    assert back["slot_s"].sum() == accounts.jobs["slot_s"].sum()
    assert back.schema["begin"] == pl.Datetime("us", "UTC")
    assert back["begin"].dt.epoch("s").to_list() == accounts.jobs["begin"].to_list()


def test_losses_add_up(accounts: Accounts) -> None:
    losses = losses_table(accounts)
    assert losses["seconds"].sum() == pytest.approx(accounts.jobs["bad_s"].sum())
    assert losses["seconds"].is_sorted(descending=True)


def test_a_name_with_csv_gets_the_jobs_alone(accounts: Accounts, tmp_path: Path) -> None:
    assert write_csv(tables(accounts), tmp_path / "x.CSV") == [tmp_path / "x.CSV"]
    assert (tmp_path / "x.CSV").read_text().startswith("job,id,cluster,")
    write_parquet(tables(accounts), tmp_path / "x.parquet")
    assert pl.read_parquet(tmp_path / "x.parquet").height == 60


def test_ours_is_replaced_and_others_are_not(accounts: Accounts, tmp_path: Path) -> None:
    found = tables(accounts)
    fewer = tables(many_jobs(3))
    for write, suffix in ((write_csv, "csv"), (write_parquet, "parquet")):
        folder = tmp_path / suffix
        write(found, folder)
        write(fewer, folder)  # what we wrote ourselves
        before = (folder / f"jobs.{suffix}").read_bytes()
        (folder / f"holds.{suffix}").write_bytes(b"my,own,notes\r\n1,2,3\r\n")
        with pytest.raises(ReportError, match=r"holds\.\w+ already exists") as caught:
            write(found, folder)
        assert "--force" in caught.value.remedy
        assert (folder / f"jobs.{suffix}").read_bytes() == before  # nothing was begun
        write(found, folder, force=True)
        assert (folder / f"holds.{suffix}").read_bytes()[:3] != b"my,"
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_table_of_somebody_else_in_parquet_is_left_alone(
    accounts: Accounts, tmp_path: Path
) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "jobs.parquet")
    with pytest.raises(ReportError, match="not a Headway report"):
        write_parquet(tables(accounts), tmp_path)


def test_pages_too(tmp_path: Path) -> None:
    page = Report(Loaded("x", many_jobs(3))).html().encode()
    target = tmp_path / "report.html"
    write_html(page, target)
    write_html(page, target)
    target.write_text("<html>my thesis</html>")
    with pytest.raises(ReportError, match="not a Headway report"):
        write_html(page, target)
    assert target.read_text() == "<html>my thesis</html>"
    write_html(page, target, force=True)
    assert target.read_bytes() == page


def test_links_modes_and_devices(accounts: Accounts, tmp_path: Path) -> None:
    real = tmp_path / "real.csv"
    (tmp_path / "link.csv").symlink_to(real)
    found = {"jobs": tables(accounts)["jobs"]}
    write_csv(found, tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink() and real.is_file()
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(real.stat().st_mode) == 0o666 & ~mask
    write_csv(found, Path(os.devnull))
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "html"])
def test_what_cannot_be_written_is_an_error_in_words(
    accounts: Accounts, tmp_path: Path, suffix: str
) -> None:
    found = {"jobs": tables(accounts)["jobs"]}
    for target in (tmp_path / "no" / f"x.{suffix}", Path("/dev/full")):
        with pytest.raises(ReportError, match="cannot be written"):
            if suffix == "html":
                write_html(b"x" * 100_000, target)
            else:
                {"csv": write_csv, "parquet": write_parquet}[suffix](found, target)
    (tmp_path / f"folder.{suffix}").mkdir()
    with pytest.raises(ReportError, match="is a folder"):
        if suffix == "html":
            write_html(b"x", tmp_path / "folder.html")
        else:
            {"csv": write_csv, "parquet": write_parquet}[suffix](
                found, tmp_path / f"folder.{suffix}"
            )


def test_the_document_is_strict_json_with_known_keys(tmp_path: Path) -> None:
    log = write_log(tmp_path / "x.log", [0, 1, "held for \x1b[2J", None])
    document = report(log).json("site")
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    assert document["format"] == 1
    assert list(document) == [
        "format", "name", "begin", "end", "events", "files", "notes", "totals", "losses", "place",
        "sites", "by", "groups", "findings", "jobs", "records", "skipped", "unfinished", "unread",
        "others",
    ]  # fmt: skip
    assert document["totals"]["jobs"] == 4
    assert [job["outcome"] for job in document["jobs"]] == [
        "success",
        "failed",
        "held",
        "unfinished",
    ]
    assert document["groups"][0]["key"] == "Site"
    assert Report(Loaded("many", many_jobs(10_001))).json()["jobs"] is None
