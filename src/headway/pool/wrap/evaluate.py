"""A submit description at its `queue`: which lines hold, what macros stand for, and its rows.

Nothing is run: `include command : …` and `queue … from program |` are said to be unknown. What
differs from job to job stays in a text as a mark, the column's name between two control
characters; `template` makes a `{column}` of it.
"""

from __future__ import annotations

import ast
import glob
import operator
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.errors import ConversionError
from headway.node.template import fill, placeholders
from headway.pool.wrap.subfile import UNCLOSED, Kind, Statement, SubmitFile, canonical, read

MOST_JOBS = 100_000
_MOST_VALUES = 5_000_000  # of all rows together
_DEEPEST = 8  # files that include files
_LARGEST = 50_000_000  # bytes of a file with rows, or of one that is included
_MOST_MACROS, _LONGEST = 1000, 100_000  # in one value: macros, characters
_VERSION = (25, 0, 0)  # of HTCondor, for `if version >= …`
_MARK = re.compile("\x01([^\x01\x02]*)\x02")
_DOLLAR = "\x05"  # of $(DOLLAR), which begins no macro
_CALL = re.compile(r"\$(\$?\w*)\(([^()$]*)\)")
_BAD = re.compile(r"[\x00-\x08\x0b-\x1f]")
_HOW = re.compile(r"(?P<before>.*?)(?:^|(?<=[\s,]))(?P<how>in|from|matching)\b(?P<rest>.*)\Z", re.I)
_SLICE = re.compile(r"\s*\[(-?\d*):(-?\d*)(?::(-?\d*))?\]")
_PATH_LETTERS = frozenset("pdnxbq")
_LATE = {
    "cluster": "HTCondor gives the number at submit",
    "clusterid": "HTCondor gives the number at submit",
    "submit_time": "it is the moment of submit",
    "submit_file": "it is the submit file's own name",
    "node": "it is the parallel universe's",
}


class Unknown(Exception):
    """A text that nobody can know before HTCondor has the job; says why."""


@dataclass(frozen=True)
class Setting:
    """A line that holds at the `queue`."""

    key: str  # as it is written
    value: str  # with its macros
    line: int
    text: str  # the line as it stands in the file


@dataclass(frozen=True)
class Left:
    """A line of the file that was not taken over, and why."""

    line: int
    text: str
    reason: str


@dataclass
class Description:
    """Everything of a submit description that its jobs have in common, and one row a job."""

    base: Path
    settings: dict[str, Setting] = field(default_factory=dict)  # by canonical key
    left: list[Left] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)  # in the order of the file, then derived ones
    rows: list[dict[str, str]] = field(default_factory=list)
    queue: Left | None = None  # the statement itself
    _macros: dict[str, str] = field(default_factory=dict)  # by their exact names, in small letters
    _marks: dict[str, str] = field(default_factory=dict)  # queue variable -> column
    _derived: dict[tuple[str, str], str] = field(default_factory=dict)
    _deriving: set[str] = field(default_factory=set)  # names whose values are being looked up

    def setting(self, key: str) -> Setting | None:
        return self.settings.get(canonical(key))

    def text(self, key: str) -> str:
        """The value of a key with its macros filled in; empty where it is not set.

        Raises:
            Unknown: it holds what only HTCondor will know.
        """
        setting = self.setting(key)
        return self.expand(setting.value).strip() if setting else ""

    def expand(self, text: str) -> str:
        """`text` with every macro filled in, and marks for what differs from job to job."""
        for _ in range(_MOST_MACROS):
            match = _CALL.search(text)
            if match is None or len(text) > _LONGEST:
                break
            text = text[: match.start()] + self._called(match) + text[match.end() :]
        if "$(" in text or "$$" in text or re.search(r"\$[A-Z]\w*\(", text):
            raise Unknown(f"{plain(text)[:80]} cannot be read")
        return text.replace(_DOLLAR, "$")

    def each(self, text: str) -> list[str]:
        """What an expanded text is for each job; one text where it is the same for all."""
        if "\x01" not in text:
            return [text]
        return [self.filled(text, job) for job in range(len(self.rows))]

    def filled(self, text: str, job: int) -> str:
        row = self.rows[job]
        return _MARK.sub(lambda m: str(job) if m[1] == "job" else row[m[1]], text)

    def column(self, name: str, values: Sequence[str]) -> str:
        """A mark for values of which each job has one; no mark where they are all the same."""
        if len(set(values)) == 1:
            return values[0]
        for known in self.columns:  # before the job's number: rows may be added or taken out
            if all(row[known] == value for row, value in zip(self.rows, values, strict=True)):
                return mark(known)
        if list(values) == [str(job) for job in range(len(values))]:
            return mark("job")
        name = _free(name, self.columns)
        self.columns.append(name)
        for row, value in zip(self.rows, values, strict=True):
            row[name] = value
        return mark(name)

    # -- macros

    def _called(self, match: re.Match[str]) -> str:
        function, inside = match[1], match[2].strip()
        if function.startswith("$"):
            raise Unknown(f"{match[0]} is filled in by the machine that runs the job")
        if not function:
            name, colon, default = inside.partition(":")
            return self._macro(name.strip(), default if colon else None)
        if function == "ENV":
            return _environment(inside)
        if function[0] == "F" and set(function[1:]) <= _PATH_LETTERS:
            letters = function[1:]
            return self._derive(inside, function, lambda path: _path_parts(path, letters))
        if function in ("BASENAME", "DIRNAME"):
            name, _, suffix = inside.partition(",")
            return self._derive(name, function.lower(), _named_part(function, suffix.strip()))
        if function in ("INT", "REAL"):
            name, _, form = inside.partition(",")
            return self._derive(name, function.lower(), _number(function, form.strip(), match[0]))
        raise Unknown(f"{match[0]}: this function is not one that `headway init` knows")

    def _macro(self, name: str, default: str | None) -> str:
        lower = name.lower()
        if lower in self._marks:
            return self._marks[lower]
        if lower in self._macros:
            value = self._macros[lower]
            if f"$({lower}" in value.lower():
                raise Unknown(f"$({name}) is set by way of itself")
            return value
        if lower == "dollar":
            return _DOLLAR
        if default is not None:
            return default
        why = _LATE.get(lower, "nothing in the file sets it")
        raise Unknown(f"$({name}): {why}")

    def _derive(self, name: str, label: str, change: Callable[[str], str]) -> str:
        """What a function makes of a macro, or of a text that is none."""
        name = name.strip()
        lower = name.lower()
        if lower in self._deriving:
            raise Unknown(f"$({name}) is set by way of itself")
        text = name
        if lower in self._macros or lower in self._marks:
            self._deriving.add(lower)
            try:
                text = self.expand(f"$({name})")
            finally:
                self._deriving.discard(lower)
        if "\x01" not in text:
            return change(text)
        key = (label, text)
        if key not in self._derived:
            word = "_".join(_MARK.findall(text)) or name
            values = [change(self.filled(text, job)) for job in range(len(self.rows))]
            self._derived[key] = self.column(f"{word}_{label}", values)
        return self._derived[key]


def mark(column: str) -> str:
    """The sign for a value of each job's own row."""
    return f"\x01{column}\x02"


def marks(text: str) -> list[str]:
    """The columns that an expanded text asks for."""
    return _MARK.findall(text)


def template(text: str) -> str:
    """An expanded text as job.toml writes it: `{column}`, and braces doubled where they must be.

    Raises:
        ConversionError: job.toml would make something else of it.
    """
    doubled = text.replace("{", "{{").replace("}", "}}")
    for candidate in (text, doubled):
        written = _MARK.sub(lambda m: f"{{{m[1]}}}", candidate)
        if fill(written, {column: mark(column) for column in placeholders(written)}) == text:
            return written
    raise ConversionError(f"job.toml cannot say {plain(text)}", remedy="do without `$` before it")


def plain(text: str) -> str:
    """An expanded text for people."""
    return _MARK.sub(lambda m: "$(Process)" if m[1] == "job" else f"$({m[1]})", text)


def evaluate(text: str, base: Path) -> Description:
    """The description as condor_submit would read it in `base`, without running anything.

    Args:
        text: the submit file's text.
        base: the folder that its paths are relative to.

    Raises:
        ConversionError: it has no single `queue` whose rows can be read.
    """
    if _BAD.search(text.replace("\r\n", "\n")):
        raise ConversionError("it holds control characters", remedy="is it a submit file?")
    found = Description(base)
    file = read(text)
    queue = None
    for statement in _statements(file, found, base):
        if statement.kind is Kind.ASSIGN and queue is None:
            _assign(found, file, statement)
        elif statement.kind is Kind.ASSIGN:
            _leave(found, file, statement, "it stands after `queue`: no job has it")
        elif statement.kind is Kind.QUEUE and queue is not None:
            raise ConversionError(
                f"line {statement.first} is a second `queue`: job.toml describes one kind of job",
                remedy="write the differences as one table: queue a, b from (…)",
            )
        elif statement.kind is Kind.QUEUE:
            queue = statement
            shown = _shown(file, statement)
            found.queue = Left(statement.first, shown, "")
            _take_rows(found, file, statement, base)
    if queue is None:
        found.rows = [{}]
    return found


def _assign(found: Description, file: SubmitFile, statement: Statement) -> None:
    shown = _shown(file, statement)
    setting = Setting(statement.key, statement.value, statement.first, shown)
    name = statement.key.lower()
    if name in ("process", "procid", "job"):
        _leave(found, file, statement, "HTCondor's own macro has this name")
        return
    own = re.compile(rf"\$\({re.escape(name)}(:[^()$]*)?\)", re.I)
    if own.search(setting.value):  # `x = $(x) more`: what it was until now
        before = found._macros.get(name)
        value = own.sub(
            lambda m: before if before is not None else (m[1] or ":")[1:], statement.value
        )
        setting = Setting(statement.key, value, statement.first, shown)
    found.settings[statement.name] = setting
    if not name.startswith(("+", "my.")):
        found._macros[name] = setting.value


def _leave(found: Description, file: SubmitFile, statement: Statement, reason: str) -> None:
    found.left.append(Left(statement.first, _shown(file, statement), reason))


def _shown(file: SubmitFile, statement: Statement) -> str:
    lines = [file.lines[at].strip() for at in range(statement.first - 1, statement.last)]
    lines = [line for line in lines if line and not (line.startswith("#") and len(lines) > 1)]
    return " ".join(line.removesuffix("\\").rstrip() for line in lines)


# -- branches and includes


def _statements(
    file: SubmitFile, found: Description, base: Path, depth: int = 0
) -> Iterator[Statement]:
    """The statements that hold, in order; those of included files among them."""
    holds: list[bool | None] = []  # of each open `if`; None: not known
    done: list[bool] = []  # whether a branch of it has been taken
    for statement in file.statements:
        if statement.kind is Kind.BRANCH:
            _branch(statement, found, holds, done)
        elif statement.kind is Kind.NOTHING or False in holds:
            continue
        elif None in holds:
            why = "whether the `if` around it holds is known only to HTCondor"
            if statement.kind is Kind.QUEUE:
                raise ConversionError(f"line {statement.first}: {why}", remedy="take the `if` out")
            _leave(found, file, statement, why)
        elif statement.key == UNCLOSED:
            raise ConversionError(
                f"line {statement.first} opens `{statement.value}`, and nothing closes it",
                remedy="end it with a line that has @ and the same word",
            )
        elif statement.key == "include":
            _include(statement, file, found, base, depth)
        elif statement.kind is Kind.OTHER:
            why = "is not a line that condor_submit knows" if not statement.key else ""
            _leave(found, file, statement, why or f"`{statement.key}` is the pool's to fill in")
        elif depth and statement.kind is Kind.QUEUE:
            raise ConversionError(
                "an included file has a `queue` of its own", remedy="move it here"
            )
        else:
            yield statement


def _branch(
    statement: Statement, found: Description, holds: list[bool | None], done: list[bool]
) -> None:
    word = statement.key
    if word == "if":
        holds.append(_condition(statement.value, found))
        done.append(holds[-1] is True)
    elif not holds:
        raise ConversionError(f"line {statement.first}: `{word}` without `if`", remedy="mend it")
    elif word == "endif":
        holds.pop()
        done.pop()
    elif holds[-1] is None:
        return
    elif done[-1]:
        holds[-1] = False
    else:
        holds[-1] = True if word == "else" else _condition(statement.value, found)
        done[-1] = holds[-1] is True


def _condition(text: str, found: Description) -> bool | None:
    """What `if` sees; HTCondor knows defined, version, true, false and numbers."""
    text = text.strip()
    if text.startswith("!"):
        inner = _condition(text[1:], found)
        return None if inner is None else not inner
    word, _, rest = text.partition(" ")
    if word.lower() == "defined":
        return rest.strip().lower() in found._macros
    if word.lower() == "version":
        match = re.fullmatch(r"(==|!=|>=|<=|>|<)?\s*([\d.]+)", rest.strip())
        if match is None:
            return None
        asked = tuple(int(part) for part in match[2].split(".") if part)
        return _COMPARE[match[1] or "=="](_VERSION[: len(asked)], asked)
    try:
        value = found.expand(text).strip().lower()
    except Unknown:
        return None
    if value in ("true", "yes", "t"):
        return True
    if value in ("false", "no", "f", ""):
        return False
    try:
        return float(value) != 0
    except ValueError:
        return None


_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def _include(
    statement: Statement, file: SubmitFile, found: Description, base: Path, depth: int
) -> None:
    """Take the lines of another file as if they stood here."""
    if found.queue is not None:
        _leave(found, file, statement, "it stands after `queue`: no job has it")
        return
    match = re.match(r"include\b(?P<how>[^:]*):(?P<what>.*)\Z", statement.value, re.I | re.S)
    how = match["how"].strip().lower() if match else "?"
    what = match["what"].strip() if match else ""
    if how not in ("", "ifexist") or what.endswith("|"):
        _leave(found, file, statement, "it runs a program, which `headway init` does not")
        return
    try:
        path = base / found.expand(what)
        if how == "ifexist" and not os.path.exists(path):
            return
        inner = read(_read(path))
    except (Unknown, OSError, ValueError) as problem:
        _leave(found, file, statement, f"it cannot be included: {problem}")
        return
    if depth >= _DEEPEST:
        raise ConversionError("files include one another without end", remedy="take one out")
    for each in _statements(inner, found, base, depth + 1):
        _assign(found, inner, each)


def _read(path: Path) -> str:
    if not os.path.isfile(path):
        raise OSError(f"there is no file {path}")
    if path.stat().st_size > _LARGEST:
        raise OSError(f"{path} is too large")
    text = path.read_bytes().decode("utf-8", errors="strict")
    if _BAD.search(text.replace("\r\n", "\n").replace("\x1f", "")):
        raise ValueError(f"{path} holds control characters")
    return text


# -- queue


def _take_rows(found: Description, file: SubmitFile, statement: Statement, base: Path) -> None:
    where = f"line {statement.first}: {_shown(file, statement)}"
    try:
        count, names, items = _queue(found, file, statement, base)
    except Unknown as why:
        remedy = "write the rows into the file, or into another that `queue … from` reads"
        raise ConversionError(f"{where}: {why}", remedy=remedy) from None
    except (OSError, ValueError) as problem:
        raise ConversionError(f"{where}: {problem}", remedy="mend the `queue` line") from None
    total = count if items is None else count * len(items)
    if not 1 <= total <= MOST_JOBS:
        what = "it queues no job" if total < 1 else f"{total:,} jobs are more than one job.toml has"
        raise ConversionError(f"{where}: {what}", remedy="mend the `queue` line, or split it")
    found._marks.update({"process": mark("job"), "procid": mark("job")})
    found.columns = _column_names(names) if items is not None else []
    for item in items if items is not None else [()]:
        row = dict(zip(found.columns, item, strict=True))
        found.rows += [dict(row) for _ in range(count)]
    for name, column in zip(names, found.columns, strict=True) if items is not None else ():
        found._marks[name.lower()] = mark(column)
    numbers = range(len(found.rows))
    if count == 1:
        found._marks.update({"step": "0", "row": mark("job")})
        return
    found._marks["step"] = found.column("step", [str(n % count) for n in numbers])
    found._marks["row"] = found.column("row", [str(n // count) for n in numbers])


def _queue(
    found: Description, file: SubmitFile, statement: Statement, base: Path
) -> tuple[int, list[str], list[tuple[str, ...]] | None]:
    """How many jobs an item has, the variables, and the items (None: there are no items)."""
    match = _HOW.match(statement.value)
    if match is None:
        return _count(found, statement.value), [], None
    before = re.match(r"\s*(?P<count>[\d$(].*?(?=\s|\Z))?\s*(?P<names>.*)\Z", match["before"])
    count = _count(found, before["count"] or "") if before else 1
    names = re.split(r"[,\s]+", (before["names"] if before else "").strip(", \t"))
    names = [name for name in names if name] or ["Item"]
    if any(not re.fullmatch(r"[A-Za-z_]\w*", name) for name in names):
        raise Unknown(f"{match['before'].strip()} are not names of variables")
    how, rest = match["how"].lower(), match["rest"]
    kind = re.match(r"\s*(files|dirs|any)\b", rest, re.I) if how == "matching" else None
    rest = rest[kind.end() :] if kind else rest
    part = _SLICE.match(rest)
    rest = (rest[part.end() :] if part else rest).strip()
    lines = _items(found, file, statement, how, rest, base)
    if how == "matching":
        lines = _matching(lines, kind[1].lower() if kind else "any", base)
    if len(names) * len(lines) > _MOST_VALUES:
        raise ValueError(f"{len(lines):,} rows of {len(names):,} values are too many")
    items = [_split(line, len(names)) for line in lines]
    if part:
        items = items[slice(*(int(bound) if bound else None for bound in part.groups()))]
    return count, names, items


def _count(found: Description, text: str) -> int:
    value = found.expand(text).strip()
    number = arithmetic(value) if value else 1
    if number is None or number != int(number):
        raise Unknown(f"{value} is not a number of jobs")
    return int(number)


def _items(
    found: Description, file: SubmitFile, statement: Statement, how: str, rest: str, base: Path
) -> list[str]:
    """The items as HTCondor reads them: by line for `from`, else parted by commas and spaces."""
    if rest.startswith("("):
        body = rest[1:]
        lines = [body.partition(")")[0]] if ")" in body else [body]
        if ")" not in body:
            more = file.lines[statement.first : statement.last]
            lines += [line for line in more if not line.lstrip().startswith(")")]
    elif how == "from":
        source = found.expand(rest).strip()
        if source.endswith("|"):
            raise Unknown("a program gives the rows, and `headway init` runs none")
        if source in ("", "-"):
            raise Unknown("the rows come from the standard input")
        lines = _read(base / source).splitlines()
    else:
        lines = [rest]
    lines = [line.strip() for line in lines]
    lines = [line for line in lines if line and not line.startswith("#")]
    if how == "from":
        return lines
    words = (found.expand(word) for line in lines for word in re.split(r"[,\s]+", line) if word)
    return [word for text in words for word in re.split(r"[,\s]+", text) if word]


def _matching(patterns: Sequence[str], kind: str, base: Path) -> list[str]:
    names: dict[str, None] = {}
    for pattern in patterns:
        for name in sorted(glob.glob(pattern, root_dir=base)):
            folder = (base / name).is_dir()
            if kind == "any" or folder == (kind == "dirs"):
                names[f"{name}/" if folder else name] = None
    if not names:
        raise Unknown(f"nothing matches {' '.join(patterns)}")
    return list(names)


def _split(item: str, width: int) -> tuple[str, ...]:
    """One item's values: the last variable has the rest of the line."""
    if width == 1:
        return (item.strip(),)
    if "\x1f" in item:
        values = [value.strip() for value in item.split("\x1f")][:width]
    else:
        values = re.split(r"[, \t][ \t]*", item, maxsplit=width - 1)
    return (*values, *[""] * (width - len(values)))


def _column_names(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        found.append(_free(name, found))
    return found


def _free(name: str, taken: Sequence[str]) -> str:
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    while name == "job" or name in taken:
        name += "_"
    return name


# -- functions


def _environment(inside: str) -> str:
    name, colon, default = inside.partition(":")
    if re.search("key|token|secret|passw", name, re.I):
        raise Unknown(f"$ENV({name}) looks like a secret, which job.toml must not hold")
    value = os.environ.get(name.strip(), default if colon else None)
    if value is None:
        raise Unknown(f"$ENV({name}) is not set in this shell")
    return value


def _path_parts(path: str, letters: str) -> str:
    """`$Fpdnx(…)` without the letters that are of use on Windows alone."""
    bare = path.strip('"')
    folder, slash, file = bare.rpartition("/")
    stem, dot, extension = file.rpartition(".")
    if not stem:
        stem, dot, extension = file, "", ""
    text = ""
    if "p" in letters:
        text += folder + slash
    elif "d" in letters:
        text += posixpath.basename(folder) + slash
    if "b" in letters and not {"n", "x"} & set(letters):
        text = text.rstrip("/")
    if "n" in letters:
        text += stem
    if "x" in letters:
        text += extension if "b" in letters and "n" not in letters else dot + extension
    if not {"p", "d", "n", "x"} & set(letters):
        text = bare
    return f'"{text}"' if "q" in letters else text


def _named_part(function: str, suffix: str) -> Callable[[str], str]:
    if function == "DIRNAME":
        return lambda path: "".join(path.rpartition("/")[:2])
    return lambda path: path.rpartition("/")[2].removesuffix(suffix)


def _number(function: str, form: str, shown: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        value = arithmetic(text)
        if value is None:
            raise Unknown(f"{shown}: {text} is not a number")
        if form and not re.fullmatch(
            r"[^%]*%[-+ 0#]*(?:[1-9]\d*)?(?:\.\d+)?[dixXoeEfgG][^%]*", form
        ):
            raise Unknown(f"{shown}: {form} is not a format of one number")
        if function == "INT":
            return (form or "%d") % int(value)
        return (form or "%.16g") % float(value)

    return change


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def arithmetic(text: str) -> float | None:
    """The value of an expression of numbers, such as `8*1024`; None if it is anything else."""
    if len(text) > 200 or "#" in text:
        return None
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError
