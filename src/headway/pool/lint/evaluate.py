"""A submit description at its `queue`: which lines apply, the values of its macros, and its rows.

Nothing is run, so `include command : …` and `queue … from program |` stay unknown. A value that
differs from job to job is a mark in the text: the column's name between two control characters.
`template` turns it into `{column}`.

`evaluate` is for a conversion: it takes one `queue`, and raises `Unknown` for a value that only
HTCondor will know. `at_each_queue` is for a check: it takes every `queue`, and leaves such a value
in the text as a mark of its own, so that the rest can be checked.
"""

from __future__ import annotations

import glob
import operator
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headway.errors import ConversionError
from headway.node.plan import fill, placeholders
from headway.pool.lint.submit_file import (
    QUEUE_ITEMS,
    UNCLOSED,
    Statement,
    SubmitFile,
    Unknown,
    arithmetic,
    canonical,
    evaluated,
    is_command,
    number_in_form,
    path_parts,
    read,
    text_in_form,
)

MOST_JOBS = 100_000
_MOST_VALUES = 5_000_000  # of all rows together
_MOST_QUEUES = 200  # of one file
_DEEPEST = 8  # files that include files
_LARGEST = 50_000_000  # bytes of a file with rows, or of one that is included
_MOST_MACROS, _LONGEST = 1000, 100_000  # in one value: macros, characters
_VERSION = (25, 0, 0)  # of HTCondor, for `if version >= …`
_COMPARE = {"==": "eq", "!=": "ne", ">=": "ge", "<=": "le", ">": "gt", "<": "lt"}
_MARK = re.compile("\x01([^\x01\x02]*)\x02")
_DOLLAR = "\x05"  # of $(DOLLAR), which begins no macro
_CALL = re.compile(r"\$(\$?\w*)\(([^()$]*)\)")
_BAD = re.compile(r"[\x00-\x08\x0b-\x1f]")
_SLICE = re.compile(r"\s*\[(-?\d*):(-?\d*)(?::(-?\d*))?\]")
_PATH_LETTERS = frozenset("pdnxbqafwu")
_LATE = {
    **dict.fromkeys(("cluster", "clusterid", "jobid", "taskid"), "HTCondor numbers jobs at submit"),
    **dict.fromkeys(("year", "month", "day", "submit_time"), "it is the time of submit"),
    **dict.fromkeys(("arch", "opsys", "opsysver", "opsysmajorver"), "it is the access point's"),
    **dict.fromkeys(("opsysandver", "islinux", "iswindows", "spool"), "it is the access point's"),
    "submit_file": "it is the submit file's own name",
    "node": "it is the parallel universe's",
}
# Macros that DAGMan sets for the jobs of its nodes.
_FROM_DAGMAN = frozenset(("job", "retry", "dagmanjobid", "dag_status", "failed_count", "node_name"))
_FROM_DAGMAN |= {"dag_parent_names", "my_retry", "splice"}


@dataclass(frozen=True)
class SkippedLine:
    """A line of the file that is not used, and why."""

    line: int
    text: str
    reason: str


@dataclass
class Description:
    """What all jobs of a submit description have in common, and one row for each job."""

    base: Path  # the folder in which condor_submit is called
    assignments: dict[str, Statement] = field(default_factory=dict)  # by canonical key
    skipped: list[SkippedLine] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)  # in the order of the file, then derived ones
    rows: list[dict[str, str]] = field(default_factory=list)
    queue: Statement | None = None
    lenient: bool = False  # values that are not known stay in texts as marks
    trouble: ConversionError | None = None  # why the rows, or the rest of the file, are not known
    perhaps: set[str] = field(default_factory=set)  # keys set under an `if` that cannot be judged
    open: bool = False  # more lines may come from `include command` or `use`
    odd_rows: list[tuple[int, str]] = field(default_factory=list)  # comments and blanks in a file
    undefined: set[str] = field(default_factory=set)  # macros that nothing in the file sets
    unset: set[str] = field(default_factory=set)  # variables of the shell that are not set
    _late: dict[str, str] = field(default_factory=lambda: dict(_LATE))  # macro -> why it is unknown
    _macros: dict[str, str] = field(default_factory=dict)  # by their exact names, in small letters
    _marks: dict[str, str] = field(default_factory=dict)  # queue variable -> column
    _derived: dict[tuple[str, str], str] = field(default_factory=dict)
    _deriving: set[str] = field(default_factory=set)  # macros that are being expanded

    def assignment(self, key: str) -> Statement | None:
        return self.assignments.get(canonical(key))

    def text(self, key: str) -> str:
        """The value of a key with its macros filled in; empty if it is not set.

        Raises:
            Unknown: It contains something that only HTCondor will know.
        """
        given = self.assignment(key)
        return self.expand(given.value).strip() if given else ""

    def expand(self, text: str) -> str:
        """`text` with its macros filled in, and marks for what differs from job to job."""
        if self.lenient:
            text = _without_expressions(text)
        for _ in range(_MOST_MACROS):
            match = _CALL.search(text)
            if match is None or len(text) > _LONGEST:
                break
            try:
                filled = self._called(match)
            except Unknown:
                if not self.lenient:
                    raise
                filled = mark("?" + match[0].replace("$", _DOLLAR))
            text = text[: match.start()] + filled + text[match.end() :]
        if "$(" in text or "$$" in text or re.search(r"\$[A-Z]\w*\(", text):
            if not self.lenient:
                raise Unknown(f"{plain(text)[:80]} cannot be read")
            text = mark("?" + text.replace("\x01", "").replace("\x02", "")[:80])
        return text.replace(_DOLLAR, "$")

    def each(self, text: str) -> list[str]:
        """An expanded text for each job; a single one if it is the same for all."""
        if "\x01" not in text:
            return [text]
        return [self.filled(text, job) for job in range(len(self.rows))]

    def filled(self, text: str, job: int) -> str:
        row = {**self.rows[job], "job": str(job)}
        return _MARK.sub(lambda m: m[0] if m[1].startswith("?") else row[m[1]], text)

    def column(self, name: str, values: Sequence[str]) -> str:
        """A mark for the values of the jobs; the value itself if they are all the same."""
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
            return self._environment(inside)
        shown, letters, derive = match[0], function[1:].lower(), self._derive
        name, _, form = (part.strip() for part in inside.partition(","))
        if function[0] == "F" and set(letters) <= _PATH_LETTERS:
            # `$Ff…` puts the job's initial working directory before a relative path
            base = os.path.abspath(self.base / self.text("initialdir")) if "f" in letters else ""
            return derive(inside, function, lambda path: path_parts(path, letters, base))
        if function == "BASENAME":
            return derive(name, "basename", lambda p: p.rpartition("/")[2].removesuffix(form))
        if function == "DIRNAME":
            return derive(name, "dirname", lambda path: "".join(path.rpartition("/")[:2]))
        if function in ("INT", "REAL"):
            label = function.lower()
            return derive(name, label, lambda text: number_in_form(text, function, form, shown))
        if function == "STRING":
            return derive(name, "string", lambda text: text_in_form(text, form, shown))
        if function == "EVAL":
            return derive(inside, "eval", lambda text: evaluated(text, shown))
        if function == "SUBSTR":
            return self._substring(name, form.split(","), shown)
        if function == "CHOICE":
            return self._choice(inside, shown)
        if function.startswith("RANDOM_"):
            raise Unknown(f"{shown} is chosen by chance at submit")
        raise Unknown(f"{shown}: this function is not one that `headway init` knows")

    def _macro(self, name: str, default: str | None) -> str:
        lower = name.lower()
        if lower in self._marks:
            return self._marks[lower]
        if lower in self._macros and (self._macros[lower] or default is None):
            value = self._macros[lower]
            if f"$({lower}" in value.lower():
                raise Unknown(f"$({name}) is set by way of itself")
            return value
        if lower == "dollar":
            return _DOLLAR
        if lower in self._late:
            raise Unknown(f"$({name}): {self._late[lower]}")
        if default is not None:
            return default
        if lower not in _FROM_DAGMAN and not self.open:
            self.undefined.add(name)
        raise Unknown(f"$({name}): nothing in the file sets it")

    def _environment(self, inside: str) -> str:
        """A variable of this shell, which condor_submit would see too."""
        name, colon, default = inside.partition(":")
        name = name.strip()
        if re.search("key|token|secret|passw", name, re.I):
            raise Unknown(f"$ENV({name}) looks like a secret, which job.toml must not contain")
        value = os.environ.get(name, default if colon else None)
        if value is None:
            self.unset.add(name)
            raise Unknown(f"$ENV({name}) is not set in this shell")
        if _BAD.search(value):
            raise Unknown(f"$ENV({name}) holds control characters")
        return value.replace("$", _DOLLAR)

    def _substring(self, name: str, bounds: Sequence[str], shown: str) -> str:
        numbers = [arithmetic(self._plain_macro(bound)) for bound in bounds]
        if len(numbers) not in (1, 2) or None in numbers:
            raise Unknown(f"{shown}: it takes a name, a start and a length")
        start, length = int(numbers[0] or 0), numbers[1] if len(numbers) > 1 else None

        def change(text: str) -> str:
            rest = text[start:] if start >= 0 else text[max(0, len(text) + start) :]
            return rest if length is None else rest[: int(length)]

        return self._derive(name, "substr", change, only_macros=True)

    def _choice(self, inside: str, shown: str) -> str:
        """`$CHOICE(index,a,b,…)` or `$CHOICE(index,list)`."""
        index, *items = (part.strip() for part in inside.split(","))
        if len(items) == 1:
            items = [part.strip() for part in self._plain_macro(items[0]).split(",")]

        def change(text: str) -> str:
            number = arithmetic(text)
            if number is None or not 0 <= number < len(items):
                raise Unknown(f"{shown}: {text} is not the place of an item")
            return items[int(number)]

        return self._derive(index, "choice", change)

    def _plain_macro(self, name: str) -> str:
        """A macro's value, or the text itself if no macro has that name."""
        name = name.strip()
        return self.expand(f"$({name})") if name.lower() in self._macros else name

    def _derive(
        self, name: str, label: str, change: Callable[[str], str], only_macros: bool = False
    ) -> str:
        """The result of a function for a macro, or for a text that is not one."""
        name = name.strip()
        lower = name.lower()
        if lower in self._deriving:
            raise Unknown(f"$({name}) is set by way of itself")
        text = "" if only_macros else name
        if lower in self._macros or lower in self._marks or lower in self._late:
            self._deriving.add(lower)
            try:
                text = self.expand(f"$({name})")
            finally:
                self._deriving.discard(lower)
        if "\x01" not in text:
            return change(text)
        if "\x01?" in text or not self.rows:
            raise Unknown(f"{plain(text)} is not known")
        key = (label, text)
        if key not in self._derived:
            word = "_".join(_MARK.findall(text)) or name
            values = [change(self.filled(text, job)) for job in range(len(self.rows))]
            self._derived[key] = self.column(f"{word}_{label}", values)
        return self._derived[key]


def _without_expressions(text: str) -> str:
    """`text` with a mark for each `$$([…])`, which HTCondor evaluates for the chosen slot."""
    parts: list[str] = []
    while (start := text.find("$$([")) >= 0 and (end := text.find("])", start)) >= 0:
        parts += [text[:start], mark("?" + text[start : end + 2].replace("$", _DOLLAR))]
        text = text[end + 2 :]
    return "".join((*parts, text))


def mark(column: str) -> str:
    """The sign for a value from the job's row."""
    return f"\x01{column}\x02"


def marks(text: str) -> list[str]:
    """The columns that an expanded text uses."""
    return _MARK.findall(text)


def template(text: str) -> str:
    """An expanded text as job.toml has it: `{column}`, and braces doubled where needed.

    Raises:
        ConversionError: job.toml cannot express it.
    """
    doubled = text.replace("{", "{{").replace("}", "}}")
    for candidate in (text, doubled):
        written = _MARK.sub(lambda m: f"{{{m[1]}}}", candidate)
        if fill(written, {column: mark(column) for column in placeholders(written)}) == text:
            return written
    raise ConversionError(f"job.toml cannot say {plain(text)}", remedy="remove the `$` before it")


def is_known(text: str) -> bool:
    """Whether an expanded text is complete: neither a row nor HTCondor fills anything in."""
    return "\x01" not in text


def plain(text: str) -> str:
    """An expanded text for people."""

    def shown(match: re.Match[str]) -> str:
        if match[1].startswith("?"):
            return match[1][1:]
        return "$(Process)" if match[1] == "job" else f"$({match[1]})"

    return _MARK.sub(shown, text)


def evaluate(text: str, base: Path) -> Description:
    """The description as condor_submit would read it in `base`, without running anything.

    Args:
        text: The submit file's text.
        base: The folder that its paths are relative to.

    Raises:
        ConversionError: It has no single `queue` whose rows can be read.
    """
    if _BAD.search(text.replace("\r\n", "\n")):
        raise ConversionError("it holds control characters", remedy="is it a submit file?")
    found = Description(base)
    for statement in _statements(read(text), found):
        if statement.kind == "queue" and found.queue is not None:
            raise ConversionError(
                f"line {statement.first} is a second `queue`: job.toml describes one kind of job",
                remedy="write the differences as one table: queue a, b from (…)",
            )
        if statement.kind == "queue":
            found.queue = statement
            _take_rows(found, statement)
        elif found.queue is None:
            _assign(found, statement)
        else:
            _skip(found, statement, "it stands after `queue`: no job has it")
    if found.queue is None:
        found.rows = [{}]
    return found


def at_each_queue(text: str, base: Path) -> list[Description]:
    """The description at each `queue`, as far as it is known; nothing is raised or run.

    Args:
        text: The submit file's text.
        base: The folder in which condor_submit is called.

    Returns:
        One description for each `queue`, or a single one if there is none. If the rows are not
        known, they are empty and `trouble` says why.
    """
    found = Description(base, lenient=True)
    queues: list[Description] = []
    try:
        for statement in _statements(read(_BAD.sub("?", text.replace("\r\n", "\n"))), found):
            if statement.kind == "assign":
                _assign(found, statement)
            elif len(queues) < _MOST_QUEUES:
                queues.append(_at(found, statement))
    except ConversionError as trouble:
        found.trouble = trouble
    if not queues:
        found.rows = [{}]
        found._marks.update({"process": mark("job"), "procid": mark("job")})
        queues = [found]
    queues[-1].trouble = queues[-1].trouble or found.trouble
    return queues


def _at(found: Description, queue: Statement) -> Description:
    """The description for the jobs of one `queue`; later lines do not change it."""
    here = Description(
        found.base,
        dict(found.assignments),
        list(found.skipped),
        queue=queue,
        lenient=True,
        perhaps=set(found.perhaps),
        open=found.open,
        _macros=dict(found._macros),
    )
    try:
        _take_rows(here, queue)
    except ConversionError as trouble:
        here.trouble, here.rows, here.columns = trouble, [], []
        names = queue.variables
        own = ("process", "procid", "step", "row", "itemindex", "item")
        here._late.update(dict.fromkeys((*own, *map(str.lower, names)), "its rows are not known"))
        here._marks.clear()
        _set_by_queue(here, queue, names)
    return here


def _set_by_queue(found: Description, queue: Statement, names: Sequence[str]) -> None:
    """Set the submit commands among the variables: `queue arguments from …` sets `arguments`."""
    for name in filter(is_command, names):
        assignment = replace(queue, kind="assign", key=name, value=f"$({name})")
        found.assignments[assignment.name] = assignment


def _assign(found: Description, statement: Statement) -> None:
    name = statement.key.lower()
    if name in ("process", "procid", "job"):
        _skip(found, statement, "HTCondor's own macro has this name")
        return
    own = re.compile(rf"\$\({re.escape(name)}(:[^()$]*)?\)", re.I)
    if own.search(statement.value):  # `x = $(x) more`: the value so far
        before = found._macros.get(name)
        value = own.sub(
            lambda m: before if before is not None else (m[1] or ":")[1:], statement.value
        )
        statement = replace(statement, value=value)
    found.assignments[statement.name] = statement
    bare = name.removeprefix("+").removeprefix("my.")
    found._macros[name if bare == name else f"my.{bare}"] = statement.value


def _skip(found: Description, statement: Statement, reason: str) -> None:
    found.skipped.append(SkippedLine(statement.first, statement.text, reason))


# -- branches and includes


def _statements(file: SubmitFile, found: Description, depth: int = 0) -> Iterator[Statement]:
    """The assignments and `queue`s that apply, in order; those of included files are assigned."""
    holds: list[bool | None] = []  # of each open `if`; None: not known
    done: list[bool] = []  # whether one of its branches applied
    for statement in file.statements:
        queues = statement.kind == "queue"
        if statement.kind == "branch":
            _branch(statement, found, holds, done)
        elif statement.kind == "nothing" or False in holds:
            continue
        elif None in holds:
            why = "only HTCondor knows whether the `if` around it applies"
            if queues and found.lenient:
                yield statement
            elif queues:
                raise ConversionError(f"line {statement.first}: {why}", remedy="remove the `if`")
            else:
                _skip(found, statement, why)
            if statement.kind == "assign":
                found.perhaps.add(statement.name)
            found.open = found.open or statement.kind == "other"
        elif statement.key == UNCLOSED:
            raise ConversionError(
                f"line {statement.first} opens `{statement.value}`, and nothing closes it",
                remedy="end it with a line that has @ and the same word",
            )
        elif statement.key == "include":
            _include(statement, found, depth)
        elif statement.kind == "other":
            found.open = found.open or statement.key == "use"
            why = "is not a line that condor_submit knows"
            if statement.key:
                why = f"only the pool knows what `{statement.key}` stands for"
            _skip(found, statement, why)
        elif depth and queues:
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
        raise ConversionError(f"line {statement.first}: `{word}` without `if`", remedy="correct it")
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
    """Whether an `if` applies: `defined`, `version`, true, false or a number; None: not known."""
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
        return bool(getattr(operator, _COMPARE[match[1] or "=="])(_VERSION[: len(asked)], asked))
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


def _include(statement: Statement, found: Description, depth: int) -> None:
    """Read the lines of another file as if they stood here."""
    if found.queue is not None:
        _skip(found, statement, "it stands after `queue`: no job has it")
        return
    match = re.match(r"include\b(?P<how>[^:]*):(?P<what>.*)\Z", statement.value, re.I | re.S)
    how = match["how"].strip().lower() if match else "?"
    what = match["what"].strip() if match else ""
    if how not in ("", "ifexist") or what.endswith("|"):
        found.open = True
        _skip(found, statement, "it runs a program, which `headway init` does not")
        return
    try:
        path = found.base / found.expand(what)
        if how == "ifexist" and not os.path.exists(path):
            return
        inner = read(_read(path))
    except (Unknown, OSError, ValueError) as problem:
        found.open = True
        _skip(found, statement, f"it cannot be included: {problem}")
        return
    if depth >= _DEEPEST:
        raise ConversionError("files include one another without end", remedy="remove one")
    for each in _statements(inner, found, depth + 1):
        _assign(found, each)


def _read(path: Path) -> str:
    if not os.path.isfile(path):
        raise OSError(f"there is no file {os.path.normpath(path)}")
    if path.stat().st_size > _LARGEST:
        raise OSError(f"{path} is too large")
    text = path.read_bytes().decode("utf-8", errors="strict")
    if _BAD.search(text.replace("\r\n", "\n").replace("\x1f", "")):
        raise ValueError(f"{path} holds control characters")
    return text


# -- queue


def _take_rows(found: Description, statement: Statement) -> None:
    where = f"line {statement.first}: {statement.text}"
    try:
        count, names, items = _queue(found, statement)
    except Unknown as why:
        remedy = "write the rows into the file, or into another that `queue … from` reads"
        raise ConversionError(f"{where}: {why}", remedy=remedy) from None
    except (OSError, ValueError) as problem:
        raise ConversionError(f"{where}: {problem}", remedy="correct the `queue` line") from None
    total = count * len(items)
    if not 1 <= total <= MOST_JOBS:
        what = "it queues no job" if total < 1 else f"{total:,} jobs are more than one job.toml has"
        raise ConversionError(f"{where}: {what}", remedy="correct the `queue` line, or split it")
    found._marks.update({"process": mark("job"), "procid": mark("job")})
    for name in names:
        found.columns.append(_free(name, found.columns))
        found._marks[name.lower()] = mark(found.columns[-1])
    for item in items:
        row = dict(zip(found.columns, item, strict=True))
        found.rows += [dict(row) for _ in range(count)]
    _set_by_queue(found, statement, names)
    numbers = range(len(found.rows))
    if count == 1:
        found._marks.update({"step": "0", "row": mark("job"), "itemindex": mark("job")})
        return
    found._marks["step"] = found.column("step", [str(n % count) for n in numbers])
    found._marks["row"] = found.column("row", [str(n // count) for n in numbers])
    found._marks["itemindex"] = found._marks["row"]


def _queue(
    found: Description, statement: Statement
) -> tuple[int, list[str], list[tuple[str, ...]]]:
    """How many jobs each item has, the variables, and the items: one empty item without a list."""
    match = QUEUE_ITEMS.match(statement.value)
    if match is None:
        return _count(found, statement.value), [], [()]
    before = re.match(r"\s*(?P<count>[\d$(]\S*)?\s*(?P<names>.*)\Z", match["before"])
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
    lines = _items(found, statement, how, rest)
    if how == "matching":
        lines = _matching(lines, kind[1].lower() if kind else "any", found.base)
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


def _items(found: Description, statement: Statement, how: str, rest: str) -> list[str]:
    """The items as HTCondor reads them: lines for `from`, else separated by commas and spaces."""
    if rest.startswith("("):
        body = rest[1:]
        lines = [body.partition(")")[0]] if ")" in body else [body]
        if ")" not in body:
            more = statement.lines[1:]
            lines += [line for line in more if not line.lstrip().startswith(")")]
    elif how == "from":
        source = found.expand(rest).strip()
        if source.endswith("|"):
            raise Unknown("a program prints the rows, and `headway init` runs none")
        if source in ("", "-"):
            raise Unknown("the rows come from the standard input")
        if not is_known(source):
            raise Unknown(f"which file holds the rows is not known: {plain(source)}")
        return _rows_of_a_file(found, source, _read(found.base / source))
    else:
        lines = [rest]
    lines = [line.strip() for line in lines]
    lines = [line for line in lines if line and not line.startswith("#")]
    if how == "from":
        return lines
    words = (found.expand(word) for line in lines for word in re.split(r"[,\s]+", line) if word)
    return [word for text in words for word in re.split(r"[,\s]+", text) if word]


def _rows_of_a_file(found: Description, source: str, text: str) -> list[str]:
    """The lines of a file: HTCondor makes a job of each, even of comments and empty lines."""
    lines = [line.strip() for line in text.splitlines()]
    found.odd_rows = [
        (number, line) for number, line in enumerate(lines, 1) if not line or line.startswith("#")
    ]
    if not found.lenient:
        for number, line in found.odd_rows:
            why = f"line {number} of {source} is not a row; HTCondor would make a job of it"
            found.skipped.append(SkippedLine(0, line, why))
        return [line for line in lines if line and not line.startswith("#")]
    for at, line in enumerate(lines):  # an empty line leaves the variables as they are
        lines[at] = line or (lines[at - 1] if at else "")
    return lines


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
    """One item's values; the last variable gets the rest of the line."""
    if width == 1:
        return (item.strip(),)
    if "\x1f" in item:
        values = [value.strip() for value in item.split("\x1f")][:width]
    else:
        values = re.split(r"[, \t][ \t]*", item, maxsplit=width - 1)
    return (*values, *[""] * (width - len(values)))


def _free(name: str, taken: Sequence[str]) -> str:
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    while name == "job" or name in taken:
        name += "_"
    return name
