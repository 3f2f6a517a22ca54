"""Adds to an existing submit description the lines with which Headway can follow and heal its jobs.

Every line of the original stays as it is. The new lines are one block before the first `queue`,
where the last assignment of a key is the one that counts.
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
    SubmitFile,
    canonical,
    read,
    read_text,
    split_files,
    split_list,
)
from headway.pool.lint.traps import LintFinding
from headway.pool.program import build_agent, is_agent
from headway.spec import Retries

# Staging: the agent runs the submit file's own executable, after it has downloaded the URLs.
#
# The URLs move from `transfer_input_files` to an attribute that the agent reads. The agent becomes
# the executable, and the executable an input, which the agent starts with its arguments. Macros
# such as `$(Process)` are kept: HTCondor fills them in at their new place. A URL that may not work
# this way is left to HTCondor, and reported.

SCHEMES = ("osdf", "stash", "pelican", "https", "http")
_UNIVERSES = ("", "vanilla", "container", "5")
_TRUE = ("", "true", "yes", "1", "t")
_MOVED = ("executable", "arguments", "transfer_input_files")
_SCHEME = re.compile(r"(?:[\w.-]+\+)?([a-z]+)://", re.I)
# What the list in an attribute cannot contain; HTCondor fills in `$$(…)` too late.
_ODD = re.compile(r'["\\,\s]|\$\$')
_WHOLE_FOLDERS = re.compile(r"[?&](?:recursive|pack)\b", re.I)


def _staging(
    file: SubmitFile, base: Path, agent: str, own_policy: bool
) -> tuple[list[_Line], list[str]]:
    """The lines that let the agent download the URLs, and notes on those left to HTCondor."""
    given = file.last("transfer_input_files")
    inputs = split_files(given.value) if given else []  # with macros, which HTCondor fills in
    wanted = [item for item in inputs if _scheme(file.expand(item)) in SCHEMES]
    if not wanted or file.value("executable").endswith(AGENT):
        return [], []
    why = _obstacle(file, base)
    if why:
        return [], [f"the URLs among the inputs are left to HTCondor: {why}"]
    urls = list(_movable(file, inputs))
    left = [item for item in wanted if item not in urls]
    notes = [f"{shown(item)} is left to HTCondor: the agent cannot fetch it" for item in left]
    if not urls:
        return [], notes
    if own_policy:
        notes.append("your own rule decides on a job whose input did not arrive (exit code 81, 82)")
    images = ("container_image", "SingularityImage")
    if file.value("universe").lower() == "container" or any(map(file.last, images)):
        notes.append("the agent runs in the container, which must have Python 3.9 or later")
    lines = _staging_lines(file, base, agent, inputs, urls, own_policy)
    return [_Line(key, value) for key, value in lines], notes


def _staging_lines(
    file: SubmitFile, base: Path, agent: str, inputs: list[str], urls: list[str], own_policy: bool
) -> Iterator[tuple[str, str]]:
    program = file.value("executable")
    path = program
    if file.value("initialdir"):  # unlike the executable, inputs are relative to it
        path = (base / program).absolute().as_posix()
    rest = [*(item for item in inputs if item not in urls), path]
    yield _key(file, "executable"), agent
    given = file.last("arguments")
    value = given.value.strip() if given else ""
    quote = '"' if value.startswith('"') else ""  # the new syntax quotes all arguments together
    words = f"{quote}stage {_name(program)} {value.removeprefix(quote)}"
    yield _key(file, "arguments"), words.rstrip()
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
    """Why the agent cannot start the executable; empty if it can."""
    if file.includes:
        return "an `include` or `use` may change the job"
    universe = file.value("universe").lower()
    if universe not in _UNIVERSES:
        return f"the agent does not run in universe {universe}"
    if file.value("transfer_executable").lower() not in _TRUE:
        return "the executable is not transferred (transfer_executable)"
    if file.value("should_transfer_files", "yes").lower() not in ("yes", "true", "always"):
        return "should_transfer_files is not YES"
    if file.last("transfer_output_files") is None:
        return (
            "without transfer_output_files HTCondor would return everything that the agent fetches;"
            " name the outputs"
        )
    if file.last("checkpoint_exit_code") and not file.last("transfer_checkpoint_files"):
        return "without transfer_checkpoint_files every checkpoint would contain what it fetches"
    if file.last("transfer_input_remaps") or file.last("preserve_relative_paths"):
        return "transfer_input_remaps and preserve_relative_paths move the inputs"
    return _unsure(file) or _program(file, base)


def _unsure(file: SubmitFile) -> str:
    """Why it is not clear what a key is; empty if each is set once, for all jobs."""
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
            if mentions.search(statement.value) or canonical(key) in map(
                canonical, statement.variables
            ):
                return f"line {statement.first} uses or sets {key}"
    return ""


def _program(file: SubmitFile, base: Path) -> str:
    program = file.value("executable")
    if not program:
        return "there is no executable"
    if "$" in program or re.search(r'[",\s]', program):
        return f"only HTCondor knows which executable is meant: {program}"
    if not os.path.isfile(base / program):
        return f"the executable {program} is not here"
    given = file.last("arguments")
    if given and given.value.count('"') == 1:
        return "its arguments cannot be read"
    if _name(program) in [_name(item) for item in split_files(file.value("transfer_input_files"))]:
        return f"an input has the name of the executable, {_name(program)}"
    return ""


def _movable(file: SubmitFile, inputs: list[str]) -> Iterator[str]:
    """The URLs that the agent can download as HTCondor would."""
    plugins = file.value("transfer_plugins").lower()
    own = {s.strip() for each in plugins.split(";") for s in each.partition("=")[0].split(",")}
    texts = [file.expand(item) for item in inputs]
    names = [_name(text) for text in texts]
    varied = {name.lower() for each in file.statements for name in each.variables}
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


def _key(file: SubmitFile, key: str) -> str:
    """The file's own name for a key, so that the new line overrides its line."""
    given = file.last(key)
    return given.key if given else key


def _scheme(item: str) -> str:
    match = _SCHEME.match(item)
    return match[1].lower() if match else ""


def _name(item: str) -> str:
    return item.partition("?")[0].rstrip("/").rpartition("/")[2]


BEGIN = "# Added by headway wrap; every other line is as it was"
END = "# End of what headway wrap added"
RETRIES = 2  # enough to leave a bad site, too few to waste GPU hours

_OWN_POLICY = ("max_retries", "on_exit_remove", "on_exit_hold", "retry_until", "success_exit_code")
_NO_SITES = ("local", "scheduler", "grid", "vm", "parallel", "7", "9", "12", "13", "11")


@dataclass(frozen=True)
class Wrapped:
    """The new text, the keys that were added, and notes about what was left alone."""

    original: str
    text: str
    added: tuple[str, ...]
    notes: tuple[str, ...]
    staged: bool = False  # the agent starts the executable, and must be in the file's folder

    def diff(self, before: str = "job.sub", after: str = "job.headway.sub") -> str:
        """The difference as `diff -u` would show it."""
        old, new = (re.findall(r"[^\n]*\n|[^\n]+\Z", text) for text in (self.original, self.text))
        lines = difflib.unified_diff(old, new, before, after)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@dataclass(frozen=True)
class _Line:
    key: str
    value: str
    perhaps: bool = False  # only HTCondor knows whether the key is set already
    joined: str = ""  # the value if it is set; without one it is left alone


def wrap(
    text: str, name: str = "job", *, base: Path | None = None, agent: str | None = None
) -> Wrapped:
    """Add the lines that Headway needs; `name` is the file's, without `.sub`, for a missing log.

    With `base`, the folder in which condor_submit is called, the agent downloads the URLs if the
    file allows it; the submit file names it `agent`.
    """
    file = read(text)
    broken = next((s for s in file.statements if s.key == UNCLOSED), None)
    if broken is not None:
        note = f"line {broken.first} opens `{broken.value}`, and nothing closes it"
        return Wrapped(text, text, (), (f"{note}: nothing was added",))
    at = _place(file)
    lines = [line for line in _lines(file, name, at) if line is not None]
    notes = list(_notes(file, at, lines))
    staged: list[_Line] = []
    if base is not None:
        staged, more = _staging(file, base, agent or f"{name}.{AGENT}", _own_policy(file))
        lines, notes = lines + staged, notes + more
    if not lines:
        return Wrapped(text, text, (), tuple(notes))
    end = "\r\n" if file.lines and file.lines[0].endswith("\r\n") else "\n"
    block = end.join(_block(lines)) + end
    before, after = "".join(file.lines[:at]), "".join(file.lines[at:])
    if before and not before.endswith("\n"):
        before += end
    if before.rstrip().endswith("\\"):  # of a comment, or at the end of the file
        before += end
    keys = tuple(line.key for line in lines)
    return Wrapped(text, before + block + after, keys, tuple(notes), bool(staged))


def wrap_file(
    path: Path, to: Path | None = None, *, overwrite: bool = False
) -> tuple[Path, Wrapped]:
    """Write the wrapped description to `job.headway.sub` next to the original, or elsewhere."""
    text = read_text(path)
    name = path.name.removesuffix(path.suffix)
    target = to or path.with_name(f"{name}.headway{path.suffix or '.sub'}")
    agent = target.absolute().with_name(f"{name}.{AGENT}")
    base = submit_folder(read(text), path.parent, Path())
    here = agent.parent == base.absolute()
    wrapped = wrap(text, name, base=base, agent=agent.name if here else agent.as_posix())
    if target.exists() and not overwrite:
        what, remedy = "exists already", "choose another name with --to"
        if target.samefile(path):
            what, remedy = "is the original itself", "write to another file"
        raise HeadwayError(f"{target} {what}", remedy=f"{remedy}, or use --overwrite")
    if wrapped.staged:
        if agent.exists() and not is_agent(agent):
            raise HeadwayError(
                f"{agent} exists already and is not Headway's agent", remedy="move it away"
            )
        build_agent(agent)
    write_atomically(target, wrapped.text.encode("utf-8", errors="surrogateescape"))
    return target, wrapped


def risks_left(wrapped: Wrapped, path: Path) -> list[LintFinding]:
    """The risks in the original at `path` that the wrapping has not removed, worst first."""
    solved = {
        "no-log": "log" in wrapped.added,
        "retry-same-site": "requirements" in wrapped.added,
        "hour-cut": wrapped.staged,
    }
    found = text_risks(wrapped.original, path)
    return [finding for finding in found if not solved.get(finding.id)]


def _place(file: SubmitFile) -> int:
    """The number of lines before the block: up to the first `queue`, or the `if` around it."""
    start = None
    for statement in file.statements:
        if statement.kind == "branch" and statement.within == 1:
            start = {"if": statement.first - 1, "endif": None}.get(statement.key, start)
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
    # Only HTCondor will know the current value, so let it join the two.
    joined = f"$({name}), {', '.join(missing)}"
    if any(place.within == 0 for place in places):
        return _Line(name, joined)
    return _Line(name, value, perhaps=True, joined=joined)


def _avoidance(file: SubmitFile, at: int) -> Iterator[_Line]:
    """The lines that keep a job away from where it failed."""
    key = "requirements"
    places = file.assignments(key, before=at + 1)
    if any(mark in place.value for place in places for mark in policy.AVOIDANCE):
        return
    if any(not re.fullmatch(r"\w+", place.key) for place in places):
        return  # +Requirements is an attribute, which a macro cannot use
    for name, value in policy.avoid_lines(Retries()).items():
        yield _Line(name, value)
    alone = not places and not file.includes
    term = policy.NOT_AVOIDED
    yield _Line(key, term if alone else f"($({key}:True)) && ({term})")


def _is_ours(file: SubmitFile, line: int) -> bool:
    """Whether a line is in a block that an earlier wrapping added."""
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
        elif line.joined:
            yield from (f"if defined {line.key}", f"  {line.key} = {line.joined}", "else")
        else:
            yield f"if ! defined {line.key}"
        if line.perhaps:
            yield from (f"  {line.key} = {line.value}", "endif")
    yield END


def _notes(file: SubmitFile, at: int, lines: list[_Line]) -> Iterator[str]:
    if file.first_queue is None:
        yield "there is no `queue` statement: the lines stand at the end"
    if file.value("universe").lower() in _NO_SITES:
        yield f"universe {file.value('universe')} has no sites: only the log was checked"
        return
    if not file.assignments("max_retries") and _own_policy(file):
        yield "max_retries was left out: the file has its own rule for what ends a job"
    releases = file.assignments("periodic_release")
    if releases and not any(_is_ours(file, place.first) for place in releases):
        yield "periodic_release is yours and was left alone"
    if any(not re.fullmatch(r"\w+", place.key) for place in file.assignments("requirements")):
        yield "+Requirements cannot be extended: a job may go back to a site where it failed"
    added = {canonical(line.key) for line in lines}
    for statement in file.statements:
        late = statement.kind == "assign" and statement.first > at and statement.name in added
        if late and not _is_ours(file, statement.first):
            yield (
                f"line {statement.first} sets {statement.key} after the first `queue`:"
                " later jobs have only that value"
            )


def _own_policy(file: SubmitFile) -> bool:
    """Whether the file has its own rule for what ends a job."""
    places = (place for key in _OWN_POLICY for place in file.assignments(key))
    return any(not _is_ours(file, place.first) for place in places)
