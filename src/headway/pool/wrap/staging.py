"""Staging: the agent before a submit file's own executable, for the URLs among its inputs.

The URLs move from `transfer_input_files` to an attribute that the agent reads; the executable
becomes an input, and the agent, which starts it with its own arguments, the executable. Macros such
as `$(Process)` stay as they are: HTCondor fills them in where they stand now. What cannot be
carried over for certain is left to HTCondor, and said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.node.transfer.urls import shown
from headway.node.way_out import INPUT
from headway.node.wrapped import INPUTS
from headway.pool import policy
from headway.pool.wrap.subfile import Kind, Statement, SubmitFile, canonical, split_files
from headway.spec import Retries

SCHEMES = ("osdf", "stash", "pelican", "https", "http")
AGENT = "headway-node.pyz"
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
    notes = _notes(file, [item for item in wanted if item not in urls], bool(urls), own_policy)
    if not urls:
        return Staging((), tuple(notes))
    return Staging(tuple(_lines(file, base, agent, inputs, urls, own_policy)), tuple(notes))


def _notes(file: SubmitFile, left: list[str], staged: bool, own_policy: bool) -> Iterator[str]:
    for item in left:
        yield f"{shown(item)} is left to HTCondor: the agent cannot carry it"
    if staged and own_policy:
        yield "your own rule decides on a job whose input did not arrive (exit code 81 or 82)"
    if staged and _contained(file):
        yield "the agent runs in the container, which must have Python 3.9 or later"


def _lines(
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
                statement.kind is Kind.QUEUE and _sets(statement, key)
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
    queues = [each for each in file.statements if each.kind is Kind.QUEUE]
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
