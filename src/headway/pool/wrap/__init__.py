"""An existing submit description, and the lines that let Headway follow and heal its jobs.

Every line of the original stays as it is; what is added stands in one block before the first
`queue`, where the last assignment of a key is the one that holds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.errors import HeadwayError
from headway.pool import policy
from headway.pool.folder import write_atomically
from headway.pool.package import build_agent, is_agent
from headway.pool.preflight.findings import Finding
from headway.pool.wrap.risks import file_risks, risks, text_risks
from headway.pool.wrap.staging import AGENT, Staging, staging
from headway.pool.wrap.subfile import (
    UNCLOSED,
    Kind,
    SubmitFile,
    canonical,
    read,
    read_text,
    split_list,
)
from headway.pool.wrap.view import submit_folder
from headway.spec import Retries

__all__ = [
    "AGENT",
    "Wrapped",
    "file_risks",
    "risks",
    "risks_left",
    "submit_folder",
    "wrap",
    "wrap_file",
]

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


def risks_left(wrapped: Wrapped, path: Path) -> list[Finding]:
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
        if statement.kind is Kind.BRANCH and statement.key == "if" and statement.within == 1:
            start = statement.first - 1
        elif statement.kind is Kind.BRANCH and statement.key == "endif" and statement.within == 1:
            start = None
        elif statement.kind is Kind.QUEUE:
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
        late = statement.kind is Kind.ASSIGN and statement.first > at and statement.name in added
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
