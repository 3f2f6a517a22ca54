"""Submit descriptions as HTCondor reads them: statements, and the lines each of them covers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from headway.errors import HeadwayError

_QUEUE = re.compile(r"queue(?:\s|\Z)", re.I)
_HEREDOC = re.compile(r"(?P<key>\S+?)\s*@=(?P<tag>\w+)\s*\Z")
_ASSIGNMENT = re.compile(r"(?P<key>\+?[A-Za-z_$][\w.$()]*|\d\w*)\s*=(?P<value>.*)\Z", re.S)
_BRANCH = re.compile(r"(if|elif|else|endif)(?:\s|\Z)", re.I)
_OTHER = re.compile(r"(include|use|error|warning)(?:\s|:|\Z)", re.I)
_OPEN_LIST = re.compile(r".*\(([^)]*)\Z", re.S)
_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.]*)(?::([^()]*))?\)")

UNCLOSED = "unclosed"  # the key of an `@=tag` that runs to the end of the file

# Names of the job ad that stand for a submit command only as an attribute (`+Out = …`): without
# the `+` they are a macro of the file, or a command of their own (transfer_output = true).
_AS_ATTRIBUTES = {
    "in": "input",
    "out": "output",
    "err": "error",
    "transferinput": "transferinputfiles",
    "transferoutput": "transferoutputfiles",
}
# Names of the job ad, or older ones, for what submit files call otherwise.
_ALIASES = {
    "userlog": "log",
    "cmd": "executable",
    "args": "arguments",
    "arguments2": "arguments",
    "stdin": "input",
    "stdout": "output",
    "stderr": "error",
    "env": "environment",
    "environment2": "environment",
    "jobmaxretries": "maxretries",
    "ulogexecuteeventattrs": "ulogexecuteattrs",
    "userlogexecuteeventattrs": "ulogexecuteattrs",
    "jobiwd": "initialdir",
    "iwd": "initialdir",
}

# How the names of keys begin that no other kind of file has: enough to know a submit description
# without a `queue`, which may come from the command line.
_TELLING = (
    *("executable", "universe", "containerimage", "dockerimage", "shouldtransfer"),
    *("requestcpus", "requestmemory", "requestdisk", "requestgpus"),
    *("transferinput", "transferoutput"),
)


class Kind(Enum):
    """What a statement is."""

    ASSIGN = "key = value"
    QUEUE = "queue"
    BRANCH = "if, elif, else, endif"
    OTHER = "include, use and the like"
    NOTHING = "comment or empty line"


@dataclass(frozen=True)
class Statement:
    """One statement and its lines, counted from 1; `value` with continuations joined."""

    kind: Kind
    first: int
    last: int
    key: str = ""
    value: str = ""
    within: int = 0  # how many `if`s are open around it

    @property
    def name(self) -> str:
        """The key without regard to case, underscores, `+` and `MY.`."""
        return canonical(self.key)


@dataclass(frozen=True)
class SubmitFile:
    """A submit description; `lines` put together are the file, byte for byte."""

    lines: tuple[str, ...]
    statements: tuple[Statement, ...]

    @property
    def first_queue(self) -> Statement | None:
        return next((s for s in self.statements if s.kind is Kind.QUEUE), None)

    @property
    def includes(self) -> bool:
        """Whether keys may come from elsewhere (`include`, `use`)."""
        return any(s.kind is Kind.OTHER and s.key in ("include", "use") for s in self.statements)

    def assignments(self, key: str, *, before: int | None = None) -> list[Statement]:
        """Every line that sets `key`, under any of its names, up to a line of the file."""
        name = canonical(key)
        return [
            statement
            for statement in self.statements
            if statement.kind is Kind.ASSIGN
            and statement.name == name
            and (before is None or statement.last < before)
        ]

    def last(self, key: str) -> Statement | None:
        """The assignment that holds at the first `queue`."""
        queue = self.first_queue
        found = self.assignments(key, before=queue.first if queue else None)
        return found[-1] if found else None

    def value(self, key: str, default: str = "") -> str:
        """What `key` is at the first `queue`, with the file's own macros filled in."""
        statement = self.last(key)
        return self.expand(statement.value).strip() if statement else default

    def expand(self, text: str, depth: int = 8) -> str:
        """`text` with each `$(name)` that the file sets; others stay, as `$(Process)` does."""
        if depth == 0 or "$(" not in text:
            return text

        def filled(match: re.Match[str]) -> str:
            value = self._macro(match[1].lower())
            if value is None:
                return match[0] if match[2] is None else match[2]
            return match[0] if f"$({match[1]}".lower() in value.lower() else value

        expanded = _REFERENCE.sub(filled, text)
        return expanded if expanded == text else self.expand(expanded, depth - 1)

    def _macro(self, name: str) -> str | None:
        """A macro by its exact name: `+Foo` does not set `$(Foo)`."""
        value = None
        for statement in self.statements:
            if statement.kind is Kind.QUEUE:
                break
            if statement.kind is Kind.ASSIGN and statement.key.lower() == name:
                value = statement.value
        return value


def canonical(key: str) -> str:
    """`WhenToTransferOutput`, `when_to_transfer_output`, `MY.…` and `+…` are one key."""
    bare = key.lower().removeprefix("+").removeprefix("my.")
    name = bare.replace("_", "")
    if len(bare) < len(key) and name in _AS_ATTRIBUTES:
        return _AS_ATTRIBUTES[name]
    return _ALIASES.get(name, name)


def split_list(value: str) -> list[str]:
    """The items of a list such as `a, b c`, quotes around the whole taken off."""
    return [item for item in re.split(r"[,\s]+", value.strip().strip('"')) if item]


def split_files(value: str) -> list[str]:
    """The items of a list of files, which commas alone separate."""
    return [item for item in (part.strip() for part in value.strip().strip('"').split(",")) if item]


def split_arguments(text: str) -> list[str]:
    """The words of `arguments`, in the old syntax or the new.

    Raises:
        ValueError: quotes have no partner.
    """
    text = text.strip()
    if not text.startswith('"'):
        if '"' in text.replace('\\"', ""):
            raise ValueError('a " in arguments without quotes around them is written \\"')
        return [word.replace('\\"', '"') for word in text.split()]
    if len(text) < 2 or not text.endswith('"'):
        raise ValueError('the arguments begin with " and do not end with it')
    inside = re.sub('""', "\x04", text[1:-1])
    if '"' in inside:
        raise ValueError('a " within the arguments is written ""')
    return [word.replace("\x04", '"') for word in _quoted_words(inside)]


def split_environment(text: str) -> Iterator[tuple[str, str]]:
    """The variables of `environment`, in the old syntax (`A=1;B=2`) or the new.

    Raises:
        ValueError: quotes have no partner, or a word is no assignment.
    """
    text = text.strip()
    if text.startswith('"'):
        words = split_arguments(text)
    else:
        words = [word.strip() for word in text.split(";")]
    for word in words:
        if not word:
            continue
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", name.strip()):
            raise ValueError(f"{word} is not NAME=value")
        yield name.strip(), value


def _quoted_words(text: str) -> Iterator[str]:
    """Words parted by spaces, with '…' around those that hold any, and '' for a quote in them."""
    for match in re.finditer(r"(?:[^\s']|'(?:[^']|'')*')+|'", text):
        word = match[0]
        if word == "'" or (word.count("'") % 2):
            raise ValueError("a single quote has no partner")
        yield re.sub(r"'((?:[^']|'')*)'", lambda quoted: quoted[1].replace("''", "'"), word)


def read(text: str) -> SubmitFile:
    """Read a submit description; what is not understood stays as it is."""
    lines = tuple(re.findall(r"[^\n]*\n|[^\n]+\Z", text))
    return SubmitFile(lines, tuple(_statements(lines)))


def _statements(lines: tuple[str, ...]) -> Iterator[Statement]:
    at = 0
    within = 0
    while at < len(lines):
        first = at
        logical, at = _logical_line(lines, at)
        heredoc = _HEREDOC.match(logical)
        branch = _BRANCH.match(logical)
        other = _OTHER.match(logical)
        assignment = _ASSIGNMENT.match(logical)
        if not logical or logical.startswith("#"):
            yield Statement(Kind.NOTHING, first + 1, at, within=within)
        elif heredoc:
            value, at = _heredoc_body(lines, at, heredoc["tag"])
            if value is None:
                yield Statement(Kind.OTHER, first + 1, at, UNCLOSED, logical, within)
            else:
                yield Statement(Kind.ASSIGN, first + 1, at, heredoc["key"], value, within)
        elif _QUEUE.match(logical):
            arguments = logical[5:].strip()
            at = _after_items(lines, at, arguments)
            yield Statement(Kind.QUEUE, first + 1, at, "queue", arguments, within)
        elif branch:
            word = branch[1].lower()
            within += word == "if"
            yield Statement(Kind.BRANCH, first + 1, at, word, logical[branch.end() :], within)
            within -= word == "endif" and within > 0
        elif assignment:
            key, value = assignment["key"], assignment["value"].strip()
            yield Statement(Kind.ASSIGN, first + 1, at, key, value, within)
        else:
            word = other[1].lower() if other else ""
            yield Statement(Kind.OTHER, first + 1, at, word, logical, within)


def _logical_line(lines: tuple[str, ...], at: int) -> tuple[str, int]:
    """One line with its continuations; a comment among them is dropped, its backslash counts."""
    text = lines[at].strip()
    at += 1
    if text.startswith("#"):
        return text, at
    parts = [text]
    goes_on = text.endswith("\\")
    while goes_on and at < len(lines):
        parts[-1] = parts[-1].removesuffix("\\")
        text = lines[at].strip()
        at += 1
        goes_on = text.endswith("\\")
        parts.append("\\" if text.startswith("#") and goes_on else text)
        if text.startswith("#") and not goes_on:
            parts.pop()
            break
    return "".join(parts).removesuffix("\\").strip(), at


def _heredoc_body(lines: tuple[str, ...], at: int, tag: str) -> tuple[str | None, int]:
    body: list[str] = []
    while at < len(lines):
        text, at = _logical_line(lines, at)
        if text == f"@{tag}":
            return "\n".join(body), at
        if not text.startswith("#"):
            body.append(text)
    return None, at


def _after_items(lines: tuple[str, ...], at: int, arguments: str) -> int:
    """Past the items of `queue … (`, which end with a line that begins with `)`."""
    if not _OPEN_LIST.match(arguments):
        return at
    for end in range(at, len(lines)):
        if lines[end].lstrip().startswith(")"):
            return end + 1
    return len(lines)


def read_text(path: Path) -> str:
    """The text of a submit description on disk; bytes that are no UTF-8 can be written back.

    Raises:
        HeadwayError: the file cannot be read, or nothing in it is said to HTCondor.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError as problem:
        raise HeadwayError(
            f"{path} cannot be read: {problem.strerror}", remedy="name a submit description"
        ) from problem
    file = read(text)
    nodes = _nodes_of_a_dag(text)
    if nodes and file.first_queue is None:
        raise HeadwayError(
            f"{path} is a DAG, for condor_submit_dag, and not a submit file",
            remedy=f"name a submit file of its nodes: {nodes[0]}",
        )
    if not _says_something(file):
        raise HeadwayError(
            f"{path} is not a submit file: it has no `queue`, no `executable` and no `request_…`",
            remedy="name the file that you give to condor_submit;"
            " for a script, `headway init` writes a job.toml",
        )
    return text


def _nodes_of_a_dag(text: str) -> list[str]:
    """The submit files of `JOB A a.sub` and the like."""
    lines = (line.split(None, 3) for line in text.splitlines())
    nodes = [words for words in lines if len(words) > 2 and words[0].upper() in ("JOB", "FINAL")]
    return [words[2] for words in nodes if words[1] != "=" and words[2][0] not in "={"]


def _says_something(file: SubmitFile) -> bool:
    """Whether one statement at least is one that a script, a table or a TOML file has not."""
    return (
        file.first_queue is not None
        or file.includes
        or any(
            statement.kind is Kind.ASSIGN and statement.name.startswith(_TELLING)
            for statement in file.statements
        )
    )
