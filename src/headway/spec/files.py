"""What is read beside the fields of job.toml: its TOML, its table of rows, the files it names."""

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

# `files` and `container`: what has to lie beside job.toml.


def expand_files(
    value: object, folder: Path, where: Callable[[Loc], str]
) -> tuple[tuple[str, ...], list[Problem]]:
    """The files and folders that `files` names, patterns expanded, sorted, none within another."""
    if not isinstance(value, list):
        remedy = (
            f"write [{show(value)}]" if isinstance(value, str) else 'write files = ["train.py"]'
        )
        return (), [
            Problem(where(("files",)), f"should be a list of files, not {show(value)}", remedy)
        ]
    found: set[str] = set()
    problems: list[Problem] = []
    for index, entry in enumerate(value):
        try:
            found |= _matches(entry, folder)
        except Wrong as wrong:
            problems.append(Problem(where(("files", index)), wrong.what, wrong.remedy))
    kept = [path for path in sorted(found) if not any(up in found for up in parents(path))]
    return tuple(kept), problems


def check_container(image: str, folder: Path) -> None:
    """Raise Wrong if an image file beside job.toml is meant and is not there."""
    if "://" in image or image.startswith("/"):
        return
    if (folder / image).exists():
        return
    if image.endswith((".sif", ".img", ".sqsh")):
        raise Wrong(
            f"there is no file {show(image)}", "paths are relative to the folder of job.toml"
        )
    if re.match(r"(docker|osdf|pelican|stash|https?):", image):
        raise Wrong(f"{show(image)} is not a URL", "write it with `://`")
    raise Wrong(
        f"there is no file {show(image)}", f'for an image of a registry write "docker://{image}"'
    )


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
                raise Wrong(f"{show(path)} is a link that leads nowhere", "mend the link")
            raise Wrong(f"there is no file {show(path)}", like(target))
        if not (target.is_file() or target.is_dir()):
            raise Wrong(f"{show(path)} is neither a file nor a folder", "name a regular file")
    except OSError as error:
        raise Wrong(
            f"{show(path)} cannot be read: {error.strerror}", "check its permissions"
        ) from None
    if not os.access(target, os.R_OK | (os.X_OK if target.is_dir() else 0)):
        raise Wrong(f"{show(path)} cannot be read", "check its permissions")
    return path


def like(path: Path) -> str:
    """The remedy for a file that is not there: one whose name is close to it."""
    try:
        near = closest(path.name, [entry.name for entry in path.parent.iterdir()])
    except OSError:
        near = None
    return f"did you mean {show(near)}?" if near else "paths are relative to the folder of job.toml"


# Reading TOML, with errors that say where and what.

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MAX_BYTES = 16 * 10**6
_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


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
        remedy = like(path)
        if "did" not in remedy:
            remedy = "name the file that describes the job; `headway init SCRIPT` writes one"
        raise _error(name, "there is no such file", remedy) from None
    except OSError as error:
        raise _error(name, f"cannot be read: {error.strerror}", "check its permissions") from None
    except ValueError:
        raise _error(name, "is not the name of a file", "") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        what = f"line {line} is not UTF-8"
        raise _error(name, what, f"convert it: iconv -t UTF-8 {name}") from None
    document = parse_toml(text, name)
    if not document:
        raise _error(name, "is empty", 'it needs at least name = "…" and command = "…"')
    return document


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The document in a text; `name` is what errors call it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT.search(message)
        what = _AT.sub("", message)
        what = f"is not TOML: {what[:1].lower()}{what[1:]}"
        if not at:
            raise _error(name, what, "") from None
        if not at.group(1):
            last = text.rstrip().rpartition("\n")[2]
            remedy = _remedy(last, what) or "close what was opened"
            raise _error(f"{name}: at the end", what, remedy) from None
        line = int(at.group(1))
        wrong = text.replace("\r\n", "\n").split("\n")[line - 1]
        where = f"{name}: line {line}, column {at.group(2)}"
        remedy = _remedy(wrong, what)
        if not name.endswith(".toml"):
            remedy = f"`headway init {name}` writes a job.toml for a script or a submit file"
        raise _error(where, what, remedy) from None
    except (RecursionError, ValueError):
        raise _error(name, "is not TOML: nested too deeply, or a number too long", "") from None


def parse_value(text: str) -> Any:
    """A value as TOML reads it, or the text itself where it is not TOML."""
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


# `table`: one job a row, from a CSV file or written out in job.toml.

Rows = list[dict[str, str]]

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_ROWS = 1_000_000
_MAX_TABLE = 500_000_000


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
        if path.stat().st_size > _MAX_TABLE:
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
