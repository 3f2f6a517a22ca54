"""An existing submit description, and the lines that let Headway follow and heal its jobs.

Every line of the original stays as it is; what is added stands in one block before the first
`queue`, where the last assignment of a key is the one that holds.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.errors import HeadwayError
from headway.node.files import write_atomically
from headway.node.plan import AGENT
from headway.node.stage import INPUT, INPUTS
from headway.node.transfer.urls import shown
from headway.pool import policy
from headway.pool.lint.queue_view import submit_folder
from headway.pool.lint.risks import text_risks
from headway.pool.lint.submit_file import (
    UNCLOSED,
    Statement,
    SubmitFile,
    canonical,
    read,
    read_text,
    split_files,
    split_list,
)
from headway.pool.lint.traps import LintFinding
from headway.pool.prepare import build_agent, is_agent
from headway.spec import Retries

# Staging: the agent before a submit file's own executable, for the URLs among its inputs.
#
# The URLs move from `transfer_input_files` to an attribute that the agent reads; the executable
# becomes an input, and the agent, which starts it with its own arguments, the executable. Macros
# such as `$(Process)` stay as they are: HTCondor fills them in where they stand now. What cannot
# be carried over for certain is left to HTCondor, and said.

SCHEMES = ("osdf", "stash", "pelican", "https", "http")
_UNIVERSES = ("", "vanilla", "container", "5")
_TRUE = ("", "true", "yes", "1", "t")
_MOVED = ("executable", "arguments", "transfer_input_files")
_SCHEME = re.compile(r"(?:[\w.-]+\+)?([a-z]+)://", re.I)
# What an attribute's string, or the list in it, could not hold; `$$(…)` is filled in too late.
_ODD = re.compile(r'["\\,\s]|\$\$')
_WHOLE_FOLDERS = re.compile(r"[?&](?:recursive|pack)\b", re.I)


@dataclass(frozen=True)
class Staging:
    """The lines that put the agent in, and what is left to HTCondor, and why."""

    lines: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def staging(file: SubmitFile, base: Path, agent: str, own_policy: bool) -> Staging:
    """`base` is the file's folder, `agent` the name of the agent's file as it stands in the file.

    `own_policy`: the file has a rule of its own for what ends a job.
    """
    given = file.last("transfer_input_files")
    inputs = split_files(given.value) if given else []  # macros stay for HTCondor to fill in
    wanted = [item for item in inputs if _scheme(file.expand(item)) in SCHEMES]
    if not wanted or file.value("executable").endswith(AGENT):
        return Staging((), ())
    why = _obstacle(file, base)
    if why:
        return Staging((), (f"the URLs among the inputs are left to HTCondor: {why}",))
    urls = list(_movable(file, inputs))
    notes = _staging_notes(
        file, [item for item in wanted if item not in urls], bool(urls), own_policy
    )
    if not urls:
        return Staging((), tuple(notes))
    return Staging(tuple(_staging_lines(file, base, agent, inputs, urls, own_policy)), tuple(notes))


def _staging_notes(
    file: SubmitFile, left: list[str], staged: bool, own_policy: bool
) -> Iterator[str]:
    for item in left:
        yield f"{shown(item)} is left to HTCondor: the agent cannot carry it"
    if staged and own_policy:
        yield "your own rule decides on a job whose input did not arrive (exit code 81 or 82)"
    if staged and _contained(file):
        yield "the agent runs in the container, which must have Python 3.9 or later"


def _staging_lines(
    file: SubmitFile, base: Path, agent: str, inputs: list[str], urls: list[str], own_policy: bool
) -> Iterator[tuple[str, str]]:
    program = file.value("executable")
    rest = [*(item for item in inputs if item not in urls), _program_path(file, base, program)]
    yield _key(file, "executable"), agent
    given = file.last("arguments")
    words = f"stage {_name(program)}"
    value = given.value.strip() if given else ""
    quote = '"' if value.startswith('"') else ""  # the new syntax quotes all arguments together
    yield _key(file, "arguments"), f"{quote}{words} {value.removeprefix(quote)}".rstrip()
    yield _key(file, "transfer_input_files"), ", ".join(rest)
    yield f"+{INPUTS}", f'"{", ".join(urls)}"'
    yield f"+{INPUT}", f'"{", ".join([*rest, *urls])}"'
    if not file.value("should_transfer_files"):
        yield "should_transfer_files", "YES"
    yield "+WantIOProxy", "true"
    if not own_policy:
        held = policy.exit_lines(Retries())
        yield from ((key, value) for key, value in held.items() if key.startswith("on_exit_hold"))


def _obstacle(file: SubmitFile, base: Path) -> str:
    """Why the agent cannot be put before the executable; empty: it can."""
    if file.includes:
        return "an `include` or `use` may change what is submitted"
    universe = file.value("universe").lower()
    if universe not in _UNIVERSES:
        return f"the agent does not run in universe {universe}"
    if file.value("transfer_executable").lower() not in _TRUE:
        return "the executable is not transferred (transfer_executable)"
    if file.value("should_transfer_files", "yes").lower() not in ("yes", "true", "always"):
        return "should_transfer_files is not YES"
    if file.last("transfer_output_files") is None:
        return (
            "without transfer_output_files HTCondor would send home what the agent fetches;"
            " name the outputs"
        )
    if file.last("checkpoint_exit_code") and not file.last("transfer_checkpoint_files"):
        return "without transfer_checkpoint_files every checkpoint would hold what it fetches"
    if file.last("transfer_input_remaps") or file.last("preserve_relative_paths"):
        return "transfer_input_remaps and preserve_relative_paths give inputs other places"
    return _unsure(file) or _program(file, base)


def _unsure(file: SubmitFile) -> str:
    """Keys that are not set once, plainly, for all jobs."""
    queue = file.first_queue
    for key in _MOVED:
        places = file.assignments(key)
        late = queue and any(place.first > queue.first for place in places)
        if late or len(places) > 1 or any(place.within for place in places):
            return f"{key} is set more than once, or not for all jobs"
        if any(not re.fullmatch(r"\w+", place.key) for place in places):
            return f"{key} is set as an attribute"
        names = {place.key.lower() for place in places} | {key}
        mentions = re.compile(rf"\$\(({'|'.join(map(re.escape, names))})\b", re.I)
        for statement in file.statements:
            if mentions.search(statement.value) or (
                statement.kind == "queue" and _sets(statement, key)
            ):
                return f"line {statement.first} uses or sets {key}"
    return ""


def _sets(queue: Statement, key: str) -> bool:
    """Whether `queue a, b from …` gives a key a value of its own for each job."""
    return any(canonical(word) == canonical(key) for word in _variables(queue))


def _variables(queue: Statement) -> list[str]:
    names = re.split(r"\b(?:from|in|matching)\b", queue.value, maxsplit=1, flags=re.I)[0]
    return re.findall(r"[A-Za-z_]\w*", names)


def _queue_names(file: SubmitFile) -> set[str]:
    queues = [each for each in file.statements if each.kind == "queue"]
    return {word.lower() for queue in queues for word in _variables(queue)}


def _program(file: SubmitFile, base: Path) -> str:
    program = file.value("executable")
    if not program:
        return "there is no executable"
    if "$" in program or re.search(r'[",\s]', program):
        return f"which executable is meant is known only to HTCondor: {program}"
    if not os.path.isfile(base / program):
        return f"the executable {program} is not here"
    given = file.last("arguments")
    if given and given.value.count('"') == 1:
        return "its arguments cannot be read"
    if _name(program) in [_name(item) for item in split_files(file.value("transfer_input_files"))]:
        return f"an input has the name of the executable, {_name(program)}"
    return ""


def _movable(file: SubmitFile, inputs: list[str]) -> Iterator[str]:
    """The URLs that the agent can stage in as HTCondor would."""
    plugins = file.value("transfer_plugins").lower()
    own = {s.strip() for each in plugins.split(";") for s in each.partition("=")[0].split(",")}
    texts = [file.expand(item) for item in inputs]
    names = [_name(text) for text in texts]
    varied = _queue_names(file)
    for item, text in zip(inputs, texts, strict=True):
        scheme = _scheme(text)
        begins = re.match(r"\$\((\w+)", item)
        if begins and begins[1].lower() in varied:
            continue  # only HTCondor knows whether it is a URL
        if scheme not in SCHEMES or scheme in own or _ODD.search(text) or _ODD.search(item):
            continue
        path = text.partition("?")[0]
        if path.endswith("/") or _WHOLE_FOLDERS.search(text) or names.count(_name(text)) > 1:
            continue
        yield item


def _program_path(file: SubmitFile, base: Path, program: str) -> str:
    """The executable as an input: those are found from `initialdir`, it is not."""
    return program if not file.value("initialdir") else (base / program).absolute().as_posix()


def _key(file: SubmitFile, key: str) -> str:
    """The file's own name for a key, so that the new line overrides its line."""
    given = file.last(key)
    return given.key if given else key


def _contained(file: SubmitFile) -> bool:
    return file.value("universe").lower() == "container" or any(
        file.last(key) for key in ("container_image", "SingularityImage")
    )


def _scheme(item: str) -> str:
    match = _SCHEME.match(item)
    return match[1].lower() if match else ""


def _name(item: str) -> str:
    return item.partition("?")[0].rstrip("/").rpartition("/")[2]


BEGIN = "# Added by headway wrap; every other line is as it was"
END = "# End of what headway wrap added"
RETRIES = 2  # of a job that fails: enough to leave a bad site, too few to burn GPU hours

_OWN_POLICY = ("max_retries", "on_exit_remove", "on_exit_hold", "retry_until", "success_exit_code")
_NO_SITES = ("local", "scheduler", "grid", "vm", "parallel", "7", "9", "12", "13", "11")


@dataclass(frozen=True)
class Wrapped:
    """The new text, the keys that were added, and what was left alone for a reason."""

    original: str
    text: str
    added: tuple[str, ...]
    notes: tuple[str, ...]
    staged: bool = False  # the agent stands before the executable, and must lie beside the file

    @property
    def changed(self) -> bool:
        return self.text != self.original

    def diff(self, before: str = "job.sub", after: str = "job.headway.sub") -> str:
        """The difference as `diff -u` would show it."""
        old, new = (re.findall(r"[^\n]*\n|[^\n]+\Z", text) for text in (self.original, self.text))
        lines = difflib.unified_diff(old, new, before, after)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@dataclass(frozen=True)
class _Line:
    key: str
    value: str
    perhaps: bool = False  # the key may be set by then; only HTCondor will know
    joined: str = ""  # the value to set where it is; without one it stays as it is


def wrap(
    text: str, name: str = "job", *, base: Path | None = None, agent: str | None = None
) -> Wrapped:
    """`text` with what Headway needs; `name` is the file's, without `.sub`, for a missing log.

    With `base`, the folder in which condor_submit is called, URLs are staged in by an agent that is
    found as `agent` there, if the file allows for it.
    """
    file = read(text)
    broken = next((s for s in file.statements if s.key == UNCLOSED), None)
    if broken is not None:
        note = (
            f"line {broken.first} opens `{broken.value}`, and nothing closes it: nothing was added"
        )
        return Wrapped(text, text, (), (note,))
    at = _place(file)
    lines = [line for line in _lines(file, name, at) if line is not None]
    notes = tuple(_notes(file, at, lines))
    put = Staging((), ())
    if base is not None:
        put = staging(file, base, agent or f"{name}.{AGENT}", _own_policy(file))
        lines += [_Line(key, value) for key, value in put.lines]
        notes += put.notes
    if not lines:
        return Wrapped(text, text, (), notes)
    end = "\r\n" if file.lines and file.lines[0].endswith("\r\n") else "\n"
    block = end.join(_block(lines)) + end
    before, after = "".join(file.lines[:at]), "".join(file.lines[at:])
    if before and not before.endswith("\n"):
        before += end
    if before.rstrip().endswith("\\"):  # a comment may end so, or the file: nothing must join
        before += end
    keys = tuple(line.key for line in lines)
    return Wrapped(text, before + block + after, keys, notes, bool(put.lines))


def wrap_file(
    path: Path, to: Path | None = None, *, overwrite: bool = False
) -> tuple[Path, Wrapped]:
    """Write the wrapped description beside the original, `job.headway.sub`, or to another path."""
    text = read_text(path)
    name = path.name.removesuffix(path.suffix)
    target = to or path.with_name(f"{name}.headway{path.suffix or '.sub'}")
    beside = target.absolute().with_name(f"{name}.{AGENT}")
    base = submit_folder(read(text), path.parent, Path())
    here = beside.parent == base.absolute()
    agent = beside.name if here else beside.as_posix()
    wrapped = wrap(text, name, base=base, agent=agent)
    if target.exists() and target.samefile(path) and not overwrite:
        raise HeadwayError(
            f"{target} is the original itself", remedy="write to another file, or say --overwrite"
        )
    if target.exists() and not overwrite:
        raise HeadwayError(
            f"{target} exists already", remedy="choose another name with --to, or say --overwrite"
        )
    if wrapped.staged:
        if beside.exists() and not is_agent(beside):
            raise HeadwayError(
                f"{beside} exists already and is not Headway's agent", remedy="move it away"
            )
        build_agent(beside)
    write_atomically(target, wrapped.text.encode("utf-8", errors="surrogateescape"))
    return target, wrapped


def risks_left(wrapped: Wrapped, path: Path) -> list[LintFinding]:
    """What is risky in the original and has not been mended by the wrapping.

    Args:
        wrapped: what became of it.
        path: the original.

    Returns:
        The findings of `risks`, worst first, with the lines of the original.
    """
    mended = {
        "no-log": "log" in wrapped.added,
        "retry-same-site": "requirements" in wrapped.added,
        "hour-cut": wrapped.staged,
    }
    found = text_risks(wrapped.original, path)
    return [finding for finding in found if not mended.get(finding.id)]


def _place(file: SubmitFile) -> int:
    """How many lines come before the block: up to the first `queue`, or the `if` around it."""
    start = None
    for statement in file.statements:
        if statement.kind == "branch" and statement.key == "if" and statement.within == 1:
            start = statement.first - 1
        elif statement.kind == "branch" and statement.key == "endif" and statement.within == 1:
            start = None
        elif statement.kind == "queue":
            return statement.first - 1 if start is None else start
    return len(file.lines) if start is None else start


def _lines(file: SubmitFile, name: str, at: int) -> Iterator[_Line | None]:
    yield _unless_set(file, at, "log", f"{name}.events.log")
    if file.value("universe").lower() in _NO_SITES:
        return
    for key, value in policy.log_lines().items():
        is_list = not value.isdigit()
        yield _union(file, at, key, value) if is_list else _unless_set(file, at, key, value)
    retries = Retries()
    yield _unless_set(file, at, "periodic_release", policy.release_expression(retries))
    if not _own_policy(file):
        yield _unless_set(file, at, "max_retries", str(RETRIES))
    yield from _avoidance(file, at)


def _unless_set(file: SubmitFile, at: int, key: str, value: str) -> _Line | None:
    places = file.assignments(key, before=at + 1)
    if any(place.within == 0 or _is_ours(file, place.first) for place in places):
        return None
    return _Line(key, value, perhaps=bool(places) or file.includes)


def _union(file: SubmitFile, at: int, key: str, value: str) -> _Line | None:
    places = file.assignments(key, before=at + 1)
    wanted = split_list(value)
    if not places and not file.includes:
        return _Line(key, value)
    given = split_list(places[-1].value) if places else []
    known = {item.lower() for item in given}
    missing = [item for item in wanted if item.lower() not in known]
    if not missing or any(_is_ours(file, place.first) for place in places):
        return None
    plain = places and all(place.within == 0 for place in places) and not file.includes
    name = places[-1].key if places else key  # the file's name for it, so that ours overrides
    is_macro = re.fullmatch(r"\w+", name)
    if plain and "$(" not in places[-1].value:
        union = ", ".join([*given, *missing])
        return _Line(name, union if is_macro else f'"{union}"')
    if not is_macro:
        return None
    # Which value holds is known only when HTCondor reads the file: let it put them together.
    joined = f"$({name}), {', '.join(missing)}"
    if any(place.within == 0 for place in places):
        return _Line(name, joined)
    return _Line(name, value, perhaps=True, joined=joined)


def _avoidance(file: SubmitFile, at: int) -> Iterator[_Line]:
    """What keeps a job away from where it failed."""
    key = "requirements"
    places = file.assignments(key, before=at + 1)
    if any(mark in place.value for place in places for mark in policy.AVOIDANCE):
        return
    if any(not re.fullmatch(r"\w+", place.key) for place in places):
        return  # +Requirements: an ad attribute, which no macro can reach
    for name, value in policy.avoid_lines(Retries()).items():
        yield _Line(name, value)
    alone = not places and not file.includes
    term = policy.NOT_AVOIDED
    yield _Line(key, term if alone else f"($({key}:True)) && ({term})")


def _is_ours(file: SubmitFile, line: int) -> bool:
    """Whether a line stands in a block that an earlier wrapping added."""
    for earlier in reversed(file.lines[: line - 1]):
        if earlier.strip() == END:
            return False
        if earlier.strip() == BEGIN:
            return True
    return False


def _block(lines: list[_Line]) -> Iterator[str]:
    yield BEGIN
    for line in lines:
        if not line.perhaps:
            yield f"{line.key} = {line.value}"
            continue
        if line.joined:
            yield f"if defined {line.key}"
            yield f"  {line.key} = {line.joined}"
            yield "else"
        else:
            yield f"if ! defined {line.key}"
        yield f"  {line.key} = {line.value}"
        yield "endif"
    yield END


def _notes(file: SubmitFile, at: int, lines: list[_Line]) -> Iterator[str]:
    if file.first_queue is None:
        yield "there is no `queue` statement: the lines stand at the end"
    if file.value("universe").lower() in _NO_SITES:
        yield f"universe {file.value('universe')} has no sites: only the log was looked at"
        return
    if not file.assignments("max_retries") and _own_policy(file):
        yield "max_retries was left out: the file has its own rule for what ends a job"
    if file.assignments("periodic_release") and not _any_ours(file, "periodic_release"):
        yield "periodic_release is yours and was left alone"
    if any(not re.fullmatch(r"\w+", place.key) for place in file.assignments("requirements")):
        yield "+Requirements cannot be added to: a job may go back to a site where it failed"
    added = {canonical(line.key) for line in lines}
    for statement in file.statements:
        late = statement.kind == "assign" and statement.first > at and statement.name in added
        if late and not _is_ours(file, statement.first):
            yield (
                f"line {statement.first} sets {statement.key} after the first `queue`:"
                " later jobs have that value alone"
            )


def _own_policy(file: SubmitFile) -> bool:
    """Whether the file has a rule of its own for what ends a job."""
    places = (place for key in _OWN_POLICY for place in file.assignments(key))
    return any(not _is_ours(file, place.first) for place in places)


def _any_ours(file: SubmitFile, key: str) -> bool:
    return any(_is_ours(file, place.first) for place in file.assignments(key))
