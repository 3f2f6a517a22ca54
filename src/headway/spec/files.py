"""What is read from disk: the TOML of a job.toml, its table of rows, and the files it names."""

from __future__ import annotations

import csv
import glob
import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from headway.errors import Problem, SpecError
from headway.spec.errors import Loc, Wrong, first_few, listed, show, text_of
from headway.spec.places import folder_path, parents
from headway.text import closest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Rows = list[dict[str, str]]
Where = Callable[[Loc], str]  # names the place of a key in messages

_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_BYTES = 16 * 10**6
_MAX_ROWS = 1_000_000
_MAX_TABLE = 500_000_000
_RELATIVE = "paths are relative to the folder of job.toml"
_SAME = "give every row the same columns"


def expand_files(
    value: object, folder: Path, where: Where
) -> tuple[tuple[str, ...], list[Problem]]:
    """The files and folders that `files` names, patterns expanded, sorted, none within another."""
    if not isinstance(value, list):
        what = f"should be a list of files, not {show(value)}"
        remedy = f"[{show(value)}]" if isinstance(value, str) else 'files = ["train.py"]'
        return (), [Problem(where(("files",)), what, f"write {remedy}")]
    found: set[str] = set()
    problems: list[Problem] = []
    for index, entry in enumerate(value):
        try:
            found |= _matches(entry, folder)
        except Wrong as wrong:
            problems.append(wrong.at(where(("files", index))))
    kept = [path for path in sorted(found) if not any(up in found for up in parents(path))]
    return tuple(kept), problems


def check_container(image: str, folder: Path) -> None:
    """Raise Wrong if an image is a file relative to the folder of job.toml and does not exist."""
    if "://" in image or image.startswith("/") or (folder / image).exists():
        return
    if image.endswith((".sif", ".img", ".sqsh")):
        raise Wrong(f"there is no file {show(image)}", _RELATIVE)
    if re.match(r"(docker|osdf|pelican|stash|https?):", image):
        raise Wrong(f"{show(image)} is not a URL", "write it with `://`")
    remedy = f'for an image of a registry write "docker://{image}"'
    raise Wrong(f"there is no file {show(image)}", remedy)


def _matches(entry: object, folder: Path) -> set[str]:
    if not isinstance(entry, str):
        raise Wrong(f"should be text, not {show(entry)}", "write the name in quotes")
    path = folder_path(entry)
    target = folder / path
    if not os.path.lexists(target) and glob.has_magic(path):
        names = glob.glob(path, root_dir=folder, recursive=True)
        if not names:
            raise Wrong(f"{show(path)} matches nothing", f"look into {folder.name or folder}/")
        return {_usable(folder_path(name), folder) for name in names}
    return {_usable(path, folder)}


def _usable(path: str, folder: Path) -> str:
    target = folder / path
    try:
        if not target.exists():
            if target.is_symlink():
                raise Wrong(f"{show(path)} is a link that leads nowhere", "fix the link")
            raise Wrong(f"there is no file {show(path)}", like(target))
        if not (target.is_file() or target.is_dir()):
            raise Wrong(f"{show(path)} is neither a file nor a folder", "name a regular file")
    except OSError as error:
        what = f"{show(path)} cannot be read: {error.strerror}"
        raise Wrong(what, "check its permissions") from None
    if not os.access(target, os.R_OK | (os.X_OK if target.is_dir() else 0)):
        raise Wrong(f"{show(path)} cannot be read", "check its permissions")
    return path


def like(path: Path) -> str:
    """The remedy for a file that does not exist: one with a similar name."""
    try:
        near = closest(path.name, [entry.name for entry in path.parent.iterdir()])
    except OSError:
        near = None
    return f"did you mean {show(near)}?" if near else _RELATIVE


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        remedy = f"convert it: iconv -t UTF-8 {name}"
        raise _error(name, f"line {line} is not UTF-8", remedy) from None


def read_toml(path: Path) -> dict[str, Any]:
    """The document in a file, which must not be empty."""
    name = path.name or str(path)
    try:
        mode = path.stat()
        if stat.S_ISDIR(mode.st_mode):
            raise _error(name, "is a folder", f"name the file: {path / 'job.toml'}")
        if not stat.S_ISREG(mode.st_mode):
            raise _error(name, "is not a regular file", "name the file that describes the job")
        if mode.st_size > _MAX_BYTES:
            raise _error(name, "is larger than 16 MB", "put large tables into a CSV file")
        content = path.read_bytes()
    except FileNotFoundError:
        init = "name the file that describes the job; `headway init SCRIPT` writes one"
        remedy = like(path).replace(_RELATIVE, init)
        raise _error(name, "there is no such file", remedy) from None
    except OSError as error:
        raise _error(name, f"cannot be read: {error.strerror}", "check its permissions") from None
    except ValueError:
        raise _error(name, "is not the name of a file", "") from None
    text = _decoded(content, name)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(str(error), text, name) from None
    except (RecursionError, ValueError):
        raise _error(name, "is not TOML: nested too deeply, or a number too long", "") from None
    if not document:
        raise _error(name, "is empty", 'it needs at least name = "…" and command = "…"')
    return document


def _not_toml(message: str, text: str, name: str) -> SpecError:
    at, what = _AT.search(message), _AT.sub("", message)
    what = f"is not TOML: {what[:1].lower()}{what[1:]}"
    if not at:
        return _error(name, what, "")
    if not at[1]:
        remedy = _remedy(text.rstrip().rpartition("\n")[2], what) or "close what was opened"
        return _error(f"{name}: at the end", what, remedy)
    remedy = _remedy(text.replace("\r\n", "\n").split("\n")[int(at[1]) - 1], what)
    if not name.endswith(".toml"):
        remedy = f"`headway init {name}` writes a job.toml for a script or a submit file"
    return _error(f"{name}: line {int(at[1])}, column {at[2]}", what, remedy)


def parse_value(text: str) -> Any:
    """The value of a text as TOML, or the text itself where it is not TOML."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if list(document) == ["value"] else text


def _remedy(line: str, what: str) -> str:
    bare = line.strip()
    key, _, value = (part.strip() for part in bare.partition("="))
    if bare.startswith("+"):
        return f'put the key in quotes: "{key}" = …'
    if re.search("[“”‘’]", bare):
        return 'use straight quotation marks: "'
    if value in ("True", "False"):
        return f"write {key} = {value.lower()}"
    if "overwrite" in what or "twice" in what or "already" in what:
        return "the key or section is there twice: keep one"
    if "invalid value" in what and value:
        return f'text needs quotation marks: {key} = "{value}"'
    if re.fullmatch(r"[A-Za-z_-]+\s*:.*", bare):
        return "TOML writes key = value, not key: value"
    if "=" not in bare and "[" not in bare:
        return "write key = value"
    return ""


def _error(where: str, what: str, remedy: str) -> SpecError:
    return SpecError([Problem(where, what, remedy)])


def read_table(value: object, folder: Path, where: Where) -> tuple[Rows | None, list[Problem]]:
    """The rows of a `table`, a CSV file or a list, or None and everything that is wrong with it."""
    try:
        if isinstance(value, (list, tuple)):
            rows, problems = _from_list(value, where)
        elif isinstance(value, (str, os.PathLike)):
            name = str(value)
            rows, problems = _parse_csv(_decoded(_table_bytes(name, folder), name), name)
        else:
            remedy = 'write table = "rows.csv", or a list of tables'
            raise Wrong(f"should be a file or a list of rows, not {show(value)}", remedy)
    except Wrong as wrong:
        return None, [wrong.at(where(("table",)))]
    except SpecError as error:
        return None, list(error.problems)
    return (None, problems) if problems else (rows, [])


def _table_bytes(name: str, folder: Path) -> bytes:
    if not name.strip() or "\0" in name:
        raise Wrong("names no file", 'write table = "rows.csv"')
    path = folder / name
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise Wrong(f"{show(name)} is not a regular file", "name a CSV file")
        if path.stat().st_size > _MAX_TABLE:
            raise Wrong(f"{show(name)} is larger than 500 MB", "split it")
        return path.read_bytes()
    except FileNotFoundError:
        raise Wrong(f"there is no file {show(name)}", like(path)) from None
    except IsADirectoryError:
        raise Wrong(f"{show(name)} is a folder", "name a CSV file") from None
    except OSError as error:
        raise Wrong(f"{show(name)} cannot be read: {error.strerror}") from None


def _parse_csv(text: str, name: str) -> tuple[Rows, list[Problem]]:
    """The rows of a CSV text, whose first line names the columns."""
    # csv reports a NUL differently in each version of Python.
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _error(name, f"line {line} contains a NUL character", "remove it")
    delimiter = "\t" if name.lower().endswith((".tsv", ".tab")) else ","
    lines = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    try:
        header = next((row for row in lines if row), None)
        if header is None:
            remedy = "name the columns in the first line, such as lr,name"
            raise _error(name, "the table is empty", remedy)
        columns = [column.strip() for column in header]
        problems = _column_problems(columns, name, f"line {lines.line_num}: ")
        rows, more = _read_rows(lines, columns, name)
    except csv.Error as error:
        what = str(error)
        if "end of data" in what:
            what = "a quotation mark has no partner"
        elif "expected after" in what:
            what = "text follows a closing quotation mark"
        remedy = "put a value with commas or quotes in double quotes"
        raise _error(name, f"line {lines.line_num}: {what}", remedy) from None
    return rows, problems + more


def _read_rows(
    lines: Iterator[list[str]], columns: list[str], where: str
) -> tuple[Rows, list[Problem]]:
    """Each row as a dictionary; problems are gathered by kind, with their line numbers."""
    width = len(columns)
    rows: Rows = []
    fields = f"fields (there are {width} columns)"
    few = f"too few {fields}", "give every row all its fields"
    many = f"too many {fields}", "put a value with commas in double quotes"
    control = "a line break or control character within a value,", "remove it"
    found: dict[tuple[str, str], list[str]] = {few: [], many: [], control: []}
    for row in islice(lines, _MAX_ROWS + 1):
        if len(row) == width:
            if _CONTROL.search("".join(row)):
                found[control].append(_line(lines))
            rows.append(dict(zip(columns, row, strict=True)))
        elif row:  # a blank line is not a row
            found[many if len(row) > width else few].append(_line(lines))
    problems = [
        Problem(where, f"{what} in line {first_few(places)}", remedy)
        for (what, remedy), places in found.items()
        if places
    ]
    return rows, problems + _number_problems(len(rows), where, bool(problems))


def _from_list(value: Sequence[object], where: Where) -> tuple[Rows, list[Problem]]:
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
                text = texts[str(name)] = text_of(cell)
                if _CONTROL.search(text):
                    raise Wrong("contains a line break or control character", "remove it")
            except Wrong as wrong:
                problems.append(wrong.at(where(("table", index, str(name)))))
        rows.append(texts)
    return rows, problems + _number_problems(len(value), where(("table",)), bool(problems))


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
