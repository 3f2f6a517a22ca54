"""`table`: one job a row, from a CSV file or written out in job.toml."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from headway.errors import Problem
from headway.spec.files import like
from headway.spec.words import Loc, Wrong, first_few, listed, show, text_of

Rows = list[dict[str, str]]

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_ROWS = 1_000_000
_MAX_BYTES = 500_000_000


def read_table(
    value: object, folder: Path, where: Callable[[Loc], str]
) -> tuple[Rows | None, list[Problem]]:
    """The rows of a `table`, or None and everything that is wrong with it."""
    if isinstance(value, (str, os.PathLike)):
        return _from_file(str(value), folder, where(("table",)))
    if isinstance(value, (list, tuple)):
        return _from_list(value, where)
    remedy = 'write table = "rows.csv", or a list of tables'
    return None, [
        Problem(where(("table",)), f"should be a file or a list of rows, not {show(value)}", remedy)
    ]


def _from_file(name: str, folder: Path, where: str) -> tuple[Rows | None, list[Problem]]:
    if not name.strip() or "\0" in name:
        return None, [Problem(where, "names no file", 'write table = "rows.csv"')]
    path = folder / name
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            return None, [Problem(where, f"{show(name)} is not a regular file", "name a CSV file")]
        if path.stat().st_size > _MAX_BYTES:
            return None, [Problem(where, f"{show(name)} is larger than 500 MB", "split it")]
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None, [Problem(where, f"there is no file {show(name)}", like(path))]
    except IsADirectoryError:
        return None, [Problem(where, f"{show(name)} is a folder", "name a CSV file")]
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        what = f"line {line} is not UTF-8"
        return None, [Problem(name, what, f"convert it: iconv -t UTF-8 {name}")]
    except OSError as error:
        return None, [Problem(where, f"{show(name)} cannot be read: {error.strerror}")]
    return parse_csv(text, name, "\t" if name.lower().endswith((".tsv", ".tab")) else ",")


def parse_csv(text: str, where: str, delimiter: str = ",") -> tuple[Rows | None, list[Problem]]:
    """The rows of a CSV text, whose first line names the columns."""
    # csv reports a NUL differently in each version of Python.
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return None, [Problem(where, f"line {line} holds a NUL character", "remove it")]
    lines = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    try:
        header = next((row for row in lines if row), None)
        if header is None:
            remedy = "name the columns in the first line, such as lr,name"
            return None, [Problem(where, "the table is empty", remedy)]
        columns = [name.strip() for name in header]
        problems = _column_problems(columns, where, f"line {lines.line_num}: ")
        rows, more = _read_rows(lines, columns, where)
    except csv.Error as error:
        what = f"line {lines.line_num}: {_plain(str(error))}"
        return None, [Problem(where, what, "put a value with commas or quotes in double quotes")]
    problems += more
    return (None, problems) if problems else (rows, [])


def _read_rows(
    lines: Iterator[list[str]], columns: list[str], where: str
) -> tuple[Rows, list[Problem]]:
    """Each row as a dictionary; what is wrong is gathered by kind, with its line numbers."""
    width = len(columns)
    rows: Rows = []
    few: list[str] = []
    many: list[str] = []
    control: list[str] = []
    for row in islice(lines, _MAX_ROWS + 1):
        if len(row) == width:
            if _CONTROL.search("".join(row)):
                control.append(_line(lines))
            rows.append(dict(zip(columns, row, strict=True)))
        elif len(row) > width:
            many.append(_line(lines))
        elif row:  # a blank line is no row
            few.append(_line(lines))
    problems = []
    if few:
        what = f"too few fields (there are {width} columns) in line {first_few(few)}"
        problems.append(Problem(where, what, "give every row all its fields"))
    if many:
        what = f"too many fields (there are {width} columns) in line {first_few(many)}"
        problems.append(Problem(where, what, "put a value with commas in double quotes"))
    if control:
        what = f"a line break or control character within a value, in line {first_few(control)}"
        problems.append(Problem(where, what, "remove it"))
    return rows, problems + _number_problems(len(rows), where, bool(problems))


def _from_list(
    value: Sequence[object], where: Callable[[Loc], str]
) -> tuple[Rows | None, list[Problem]]:
    rows: Rows = []
    problems: list[Problem] = []
    columns: list[str] | None = None
    for index, row in enumerate(value):
        here = where(("table", index))
        if not isinstance(row, dict):
            what = f"should be a table of columns, not {show(row)}"
            problems.append(Problem(here, what, 'write it like {lr = 0.1, name = "a"}'))
            continue
        if columns is None:
            columns = [str(key) for key in row]
            problems += _column_problems(columns, here, "")
        missing = [name for name in columns if name not in row]
        extra = [str(name) for name in row if name not in columns]
        if missing:
            problems.append(Problem(here, f"lacks {listed(missing)}", _SAME))
        if extra:
            problems.append(Problem(here, f"has {listed(extra)}, unlike the first row", _SAME))
        texts: dict[str, str] = {}
        for name, cell in row.items():
            try:
                texts[str(name)] = _cell(cell)
            except Wrong as wrong:
                problems.append(
                    Problem(where(("table", index, str(name))), wrong.what, wrong.remedy)
                )
        rows.append(texts)
    problems += _number_problems(len(value), where(("table",)), bool(problems))
    return (None, problems) if problems else (rows, [])


_SAME = "give every row the same columns"


def _cell(value: object) -> str:
    text = text_of(value)
    if _CONTROL.search(text):
        raise Wrong("holds a line break or control character", "remove it")
    return text


def _column_problems(columns: list[str], where: str, line: str) -> list[Problem]:
    problems = []
    if len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        what = f"{line}the columns {show(columns[0])} are not separated by commas"
        return [Problem(where, what, "separate them by commas (or name the file .tsv for tabs)")]
    for name in dict.fromkeys(columns):
        if not _COLUMN.fullmatch(name):
            remedy = "use letters, digits, `_` and `-`, and begin with a letter"
            problems.append(Problem(where, f"{line}{show(name)} is not a column name", remedy))
        if name == "job":
            what = f"{line}`job` is the job's number and cannot be a column"
            problems.append(Problem(where, what, "choose another name"))
        if columns.count(name) > 1:
            what = f"{line}the column {show(name)} is there {columns.count(name)} times"
            problems.append(Problem(where, what, "name each column once"))
    return problems


def _number_problems(rows: int, where: str, others: bool) -> list[Problem]:
    if not rows and not others:
        return [Problem(where, "the table has no rows", "add a row for each job")]
    if rows > _MAX_ROWS:
        return [Problem(where, f"the table has more than {_MAX_ROWS:,} rows", "split it")]
    return []


def _line(lines: object) -> str:
    return str(getattr(lines, "line_num", "?"))


def _plain(message: str) -> str:
    if "end of data" in message:
        return "a quotation mark has no partner"
    if "expected after" in message:
        return "text follows a closing quotation mark"
    return message
