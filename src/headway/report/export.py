"""Exports: the accounts as tables for spreadsheets and data frames, and as one JSON document."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import polars as pl

from headway.errors import ReportError
from headway.report.accounts import Accounts
from headway.report.compare import Comparison, letters
from headway.report.compare_text import titles

#: How many of a file's first bytes may be looked at to tell whose it is.
FIRST_BYTES = 4096

Ours = Callable[[Path, bytes], bool]


def check_targets(targets: Sequence[Path], ours: Ours, *, force: bool) -> None:
    """Refuse before anything is written if one of the files is somebody else's."""
    for target in targets:
        with _written(target):
            if force or not target.is_file():
                continue
            with target.open("rb") as file:
                mine = ours(target, file.read(FIRST_BYTES))
        if not mine:
            raise ReportError(
                f"{target} already exists and is not a Headway report",
                remedy="name another file, or say --force to replace it",
            )


@contextlib.contextmanager
def placed(target: Path) -> Iterator[Path]:
    """A temporary name to write to; the file gets its own when all of it is there."""
    with _written(target):
        if target.is_dir():
            raise ReportError(f"{target} is a folder", remedy="name a file in it")
        if target.exists() and not target.is_file():
            yield target  # a device or a pipe is written into, never replaced
            return
        final = target.resolve()  # a link stays one
        handle, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name[:80]}.")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            os.umask(mask := os.umask(0))
            temporary.chmod(0o666 & ~mask)
            temporary.replace(final)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


@contextlib.contextmanager
def _written(target: Path) -> Iterator[None]:
    """Errors of the disk, also in polars' own words, as errors of ours."""
    try:
        yield
    except OSError as error:
        raise ReportError(
            f"{target} cannot be written: {error.strerror or error}",
            remedy="is there space and permission, and is the folder there?",
        ) from error
    except pl.exceptions.PolarsError as error:
        raise ReportError(
            f"{target} cannot be written: {error}", remedy="is there space for it?"
        ) from error


FORMAT = 1
#: The tables by name; a file alone gets the first.
TABLES = ("jobs", "attempts", "pieces", "holds", "losses", "deliveries", "records")
#: Jobs that one JSON document holds; more belong into a table.
MOST_JOBS = 10_000

#: What stands near the beginning of a page of ours.
PAGE_MARK = b'<meta name="generator" content="Headway">'

_MARK = {"headway": f"report {FORMAT}"}
_TIMES = ("begin", "end", "submitted", "matched", "time", "released", "left", "home")
_CONTROL = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+"
#: What a spreadsheet takes for the beginning of a formula, wide forms included.
_FORMULA = r"^[=+\-@＝＋－＠]"
#: What stands before the runs in the table of a comparison, and letters of a run's name there.
_HEADS, _WIDEST = ("part", "site", "name", "unit"), 200


def tables(accounts: Accounts, records: pl.DataFrame | None = None) -> dict[str, pl.DataFrame]:
    """The accounts for those who read them elsewhere: jobs by their id, times as times."""
    ids = accounts.jobs.select("job", "id")
    found = {
        "jobs": accounts.jobs,
        "attempts": _named(accounts.attempts, ids),
        "pieces": _named(accounts.pieces, ids),
        "holds": _named(accounts.holds, ids),
        "losses": losses_table(accounts),
    }
    if accounts.deliveries.height:
        found["deliveries"] = _named(accounts.deliveries, ids)
    if records is not None and records.height:
        found["records"] = _named(records, ids)
    return {name: _dated(table) for name, table in found.items()}


def losses_table(accounts: Accounts) -> pl.DataFrame:
    """Badput by cause and phase: seconds, and how many jobs and attempts it struck."""
    return (
        accounts.pieces.filter(pl.col("verdict") == "bad")
        .group_by("cause", "phase")
        .agg(
            pl.col("seconds").sum(),
            pl.col("job").n_unique().alias("jobs"),
            pl.col("attempt").drop_nulls().n_unique().alias("attempts"),
        )
        .sort("seconds", "cause", "phase", descending=[True, False, False])
    )


def write_csv(
    found: Mapping[str, pl.DataFrame], target: Path, *, force: bool = False
) -> list[Path]:
    """Write the tables into a folder or, to a name that ends in .csv, the jobs alone."""
    files = _files(found, target, "csv")
    headers = {",".join(table.columns).encode() for table in found.values()}
    check_targets(list(files), lambda _, start: start.partition(b"\r\n")[0] in headers, force=force)
    for path, name in files.items():
        with placed(path) as temporary:
            csv(found[name], temporary)
    return list(files)


def write_parquet(
    found: Mapping[str, pl.DataFrame], target: Path, *, force: bool = False
) -> list[Path]:
    """The same in Parquet, with zstd."""
    files = _files(found, target, "parquet")
    check_targets(list(files), _is_our_parquet, force=force)
    for path, name in files.items():
        with placed(path) as temporary:
            found[name].write_parquet(temporary, compression="zstd", metadata=_MARK)
    return list(files)


def comparison_table(found: Comparison) -> pl.DataFrame:
    """Reports side by side, one row a figure: of the whole, of a cause, of a site.

    After the values of all runs comes how each differs from the first.
    """
    parts = [("figure", "", figure) for figure in found.figures]
    parts += [("loss", "", figure) for figure in found.losses]
    parts += [("site", site, figure) for site, figures in found.sites.items() for figure in figures]
    made = [
        [
            *(part, site, figure.name, figure.unit.value, *figure.values),
            *(
                cell
                for row in figure.rows
                for cell in (row.difference, row.noise, row.change.value)
            ),
        ]
        for part, site, figure in parts
    ]
    runs = len(found.names)
    text, number = pl.String(), pl.Float64()
    kinds = [text] * len(_HEADS) + [number] * runs + [number, number, text] * (runs - 1)
    table = pl.DataFrame(
        made, schema=list(zip(_heads(found.names), kinds, strict=True)), orient="row"
    )
    numbers = pl.col(pl.Float64)
    return table.with_columns(pl.when(numbers.is_finite()).then(numbers))


def _heads(names: Sequence[str]) -> list[str]:
    """The head of each column; a run is a letter where its name would be taken for another."""

    def heads(runs: Sequence[str]) -> list[str]:
        more = (f"{run}: {what}" for run in runs[1:] for what in ("difference", "noise", "change"))
        return [*_HEADS, *runs, *more]

    runs = pl.DataFrame({"run": titles(names, _WIDEST)}, schema={"run": pl.String})
    named = heads(harmless(runs)["run"].to_list())
    return named if len(set(named)) == len(named) else heads(letters(len(names)))


def write_comparison(found: Comparison, target: Path, *, force: bool = False) -> Path:
    """Write a comparison to a file, as CSV."""
    ours = f"{','.join(_HEADS)},".encode()
    check_targets([target], lambda _, start: start.startswith(ours), force=force)
    with placed(target) as temporary:
        csv(comparison_table(found), temporary)
    return target


def write_html(page: bytes, target: Path, *, force: bool = False) -> Path:
    """Write the page to a file."""
    check_targets([target], lambda _, start: PAGE_MARK in start, force=force)
    with placed(target) as temporary:
        temporary.write_bytes(page)
    return target


def csv(table: pl.DataFrame, to: Path | IO[bytes]) -> None:
    """RFC 4180 in UTF-8; text from logs cannot become a formula."""
    times = [name for name, kind in table.schema.items() if isinstance(kind, pl.Datetime)]
    shown = table.with_columns(pl.col(times).dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))
    harmless(shown).write_csv(to, line_terminator="\r\n")


def harmless(table: pl.DataFrame) -> pl.DataFrame:
    """The table with text on one line that no spreadsheet takes for a formula."""
    texts = [name for name, kind in table.schema.items() if kind in (pl.String, pl.Categorical)]

    def safe(name: str) -> pl.Expr:
        text = pl.col(name).cast(pl.String)
        plain = text.str.replace_all(_CONTROL, " ")
        return (
            pl.when(plain.str.strip_chars().str.contains(_FORMULA))
            .then(pl.concat_str(pl.lit("'"), plain))
            .otherwise(plain)
            .alias(name)
        )

    return table.with_columns(safe(name) for name in texts)


def rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table in types that JSON knows: what is not a number is null."""
    return [
        {key: plain(value) for key, value in row.items()} for row in table.iter_rows(named=True)
    ]


def plain(value: Any) -> Any:
    """A value that strict JSON can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def _named(table: pl.DataFrame, ids: pl.DataFrame) -> pl.DataFrame:
    joined = table.join(ids, on="job", how="left", maintain_order="left", suffix="_of_job")
    name = "id_of_job" if "id" in table.columns else "id"
    others = [column for column in table.columns if column != "job"]
    return joined.select("job", pl.col(name).alias("job_id"), *others)


def _dated(table: pl.DataFrame) -> pl.DataFrame:
    times = [name for name in _TIMES if name in table.columns]
    moment = pl.Datetime("us", "UTC")
    return table.with_columns(
        (pl.col(times) * 1e6).round().cast(pl.Int64, strict=False).cast(moment)
    )


def _files(found: Mapping[str, pl.DataFrame], target: Path, suffix: str) -> dict[Path, str]:
    if target.suffix.lower() == f".{suffix}" or (target.exists() and not target.is_dir()):
        return {target: TABLES[0]}
    with _written(target):
        target.mkdir(parents=True, exist_ok=True)
    return {target / f"{name}.{suffix}": name for name in found}


def _is_our_parquet(path: Path, start: bytes) -> bool:
    if start[:4] != b"PAR1":
        return False
    try:
        return "headway" in pl.read_parquet_metadata(path)
    except (pl.exceptions.PolarsError, OSError):
        return False
