"""The case that preflight judges: the job, the pool's limits and the job's files; its command."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from headway.node.plan import placeholders
from headway.pool.base import Limits
from headway.pool.lint.script_traps import (
    asked_workers,
    read_script,
    script_traps,
    uses_loader,
    worker_options,
)
from headway.pool.lint.shell import scan
from headway.pool.lint.traps import Context, LintFinding, error, unwrapped, warning
from headway.pool.prepare import packed_files
from headway.spec import Job
from headway.spec.places import filler
from headway.text import closest

_MOST_SCRIPTS = 200
_OSPOOL_URL = re.compile(r"(?:[\w.-]+\+)?(?:osdf|stash)://+ospool/", re.I)


def in_ospool(url: str) -> bool:
    """Whether a URL names the OSPool's own part of the federation."""
    return _OSPOOL_URL.match(url) is not None


def put_where_cached(case: PreflightCase) -> str:
    """What to do with something large, in the words of the pool."""
    return "put it on OSDF, where it is cached" if case.ospool else "put it behind a URL"


class PreflightCase:
    """Looks at each file once; every check asks here."""

    def __init__(self, job: Job, base: Path, limits: Limits, pool: str) -> None:
        self.job = job
        self.base = base
        self.limits = limits
        self.local = pool.partition(":")[0] == "local"
        self._listed: dict[str, frozenset[str]] = {}
        texts = (job.container or "", *(url for given in job.inputs for url in given.urls))
        texts += tuple(output.to or "" for output in job.outputs)
        self.ospool = not self.local and (limits.ospool or any(map(in_ospool, texts)))

    # -- the table

    def filled(self, template: str) -> list[str]:
        """What a text is for the jobs, each different one once."""
        names, fill = filler(template)
        return list(dict.fromkeys(fill({name: self._column(name) for name in names})))

    def _column(self, name: str) -> list[str]:
        if name == "job":
            return [self.job.row(number)["job"] for number in range(self.job.size)]
        return [row[name] for row in self.job.rows or ()]

    # -- files

    @cached_property
    def packed(self) -> dict[str, Path]:
        """Every file and folder of the payload, by its name in the job's folder."""
        return dict(packed_files(self.job.files, self.base))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes of the payload's regular files; what cannot be looked at is left out."""
        sizes = {}
        for name, path in self.packed.items():
            try:
                if path.is_file():
                    sizes[name] = path.stat().st_size
            except OSError:
                continue
        return sizes

    @cached_property
    def payload_bytes(self) -> int:
        """The size of payload.tar: each file in blocks of 512 bytes, and a header before it."""
        return 512 * len(self.packed) + sum(-(-size // 512) * 512 for size in self.sizes.values())

    @cached_property
    def input_bytes(self) -> int:
        """The declared sizes of the inputs; those without one count nothing."""
        return sum(given.size or 0 for given in self.job.inputs)

    @cached_property
    def input_disk(self) -> int:
        """What the inputs take of the disk at once, as far as it is declared.

        An archive and what is in it lie side by side for a while; unpacked it is no smaller.
        """
        return sum(
            (given.size or 0) if given.window is None else min(given.window, given.size or 1 << 62)
            for given in self.job.inputs
        ) + sum(given.size or 0 for given in self.job.inputs if given.unpack)

    @cached_property
    def image_path(self) -> Path:
        return self.base / (self.job.container or "")

    @cached_property
    def image_bytes(self) -> int:
        """The size of a container image that goes with the job from here."""
        if self.job.container is None or "://" in self.job.container:
            return 0
        return self.image_path.stat().st_size if self.image_path.is_file() else 0

    @cached_property
    def provided(self) -> frozenset[str]:
        """The paths that are there when the command starts, for every job."""
        inputs = [given.path for given in self.job.inputs if not placeholders(given.path)]
        return frozenset((*self.packed, *inputs))

    def brings(self, name: str) -> bool:
        """Whether a path is there when the command starts, perhaps within what is unpacked."""
        unpacked = [given.path for given in self.job.inputs if given.unpack]
        return name in self.provided or any(name.startswith(f"{path}/") for path in unpacked)

    # -- scripts

    @cached_property
    def scripts(self) -> dict[str, str]:
        """The text of the scripts that the job brings, by name; a folder's own only if named."""
        named = [name for name in self.job.files if name in self.sizes]
        called = [word.removeprefix("./") for word in self.command_words if "{" not in word]
        inner = [name for name in called if name in self.sizes]
        scripts: dict[str, str] = {}
        for name in dict.fromkeys((*inner, *named)):
            text = read_script(self.packed[name]) if len(scripts) < _MOST_SCRIPTS else None
            looks = name.endswith((".py", ".sh", ".bash")) or name in inner
            if text is not None and (looks or text.startswith("#!")):
                scripts[name] = text
        return scripts

    @cached_property
    def command_words(self) -> list[str]:
        """The words of the command; those of a shell's line as far as they can be told apart."""
        if self.job.shell:
            return re.split(r"[\s;&|()<>\"']+", self.job.command[0])
        return list(self.job.command)

    @cached_property
    def _everything(self) -> str:
        return "\n".join(
            (*self.job.command, *self.job.environment.values(), *self.scripts.values())
        )

    def mentions(self, text: str, *, word: bool = False) -> bool:
        """Whether the command or one of its scripts has `text` in it."""
        if not word:
            return text in self._everything
        return re.search(rf"(?<![\w.]){re.escape(text)}(?![\w.])", self._everything) is not None

    @cached_property
    def uses_loader(self) -> bool:
        return any(uses_loader(text) for name, text in self.scripts.items() if name.endswith(".py"))

    def context(self, *, program: bool = False, interpreter: str = "") -> Context:
        """What the traps of a script depend on."""
        asked = self.job.resources
        return Context(
            program=program,
            interpreter=interpreter,
            checkpointed=self.job.checkpoint is not None,
            cpus=asked.cpus,
            gpus=asked.gpus.count if asked.gpus else 0,
            provided=self.provided,
            arguments=tuple(self.command_words),
            contained=self.job.container is not None,
        )

    # -- the folder of job.toml

    def is_here(self, name: str) -> bool:
        """Whether a file or folder of this name lies in the job's folder; each is listed once."""
        folder, _, last = name.rstrip("/").rpartition("/")
        return last in self.siblings(folder)

    def siblings(self, folder: str) -> frozenset[str]:
        """The names in a folder below the job's."""
        if folder not in self._listed:
            names: list[str] = []
            # Not even asked for where the folder above has no such name: tables name many.
            if folder.startswith("/") or "." in folder or not folder or self.is_here(folder):
                try:
                    names = os.listdir(self.base / folder)
                except (OSError, ValueError):  # a long argument, or one with NUL, is no folder
                    names = []
            self._listed[folder] = frozenset(names)
        return self._listed[folder]


# The command: does the job bring what it names, and what do its scripts have in store?

_LAUNCHERS = re.compile("torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec")
_INTERPRETERS = re.compile(
    r"(?:python|pypy)[\d.]*|bash|sh|dash|zsh|Rscript|perl|ruby|julia|node|" + _LAUNCHERS.pattern
)
_SUFFIXES = (".py", ".sh", ".bash", ".R", ".r", ".pl", ".jl", ".rb", ".js", ".exe", ".out")
_WITH_VALUE = {"-W", "-X", "-o", "-O", "--check-hash-based-pycs"}
_UNKNOWN = "\0"  # stands for a word that is not the same for every job
_NOT_HERE = ("", "/", "~", "$", _UNKNOWN)  # how a word begins that names no file of the folder
_SHOWN = 3
_MOST = 1000  # different programs or scripts of a table that are looked at


def command_findings(case: PreflightCase) -> Iterator[LintFinding]:
    """Of the program, its arguments, and the traps of every script the job brings."""
    programs: set[str] = set()
    for argv in _commands(case):
        yield from _program(case, argv, programs)
        yield from _script(case, argv)
        yield from _other_files(case, argv)
    yield from _workers(case)
    yield from _traps(case, programs)


def _commands(case: PreflightCase) -> Iterator[list[str]]:
    """The argument lists to look at; of a table, one for each different set of file names."""
    if case.job.shell:
        commands = [c for c in scan(case.job.command[0]).commands if c.words]
        for command in commands:
            if not any("$" in word or "{" in word for word in command.words[:1]):
                yield unwrapped(command.words)
        return
    plain = list(case.job.command)
    # What rows fill in is looked at place by place: all of it together would be rows times rows.
    for at, word in enumerate(plain):
        if "{" not in word:
            continue
        values = case.filled(word)
        plain[at] = values[0] if len(values) == 1 else _UNKNOWN
        if len(values) == 1:
            continue
        if at == 0:
            yield from ([value] for value in values[:_MOST])
        elif at == 1 and _is_interpreter(plain[0]):
            yield from ([plain[0], value] for value in values[:_MOST])
        else:
            yield [_UNKNOWN, *values]
    if plain[0] != _UNKNOWN:
        yield unwrapped(plain)


def _program(case: PreflightCase, argv: list[str], programs: set[str]) -> Iterator[LintFinding]:
    program = argv[0]
    if program == _UNKNOWN or program.startswith(("/", "$", "-", "~")):
        return
    name = posixpath.normpath(program)
    bare = "/" not in program
    if name in case.sizes:
        if bare:
            what = f"{program} is in the job's folder, not on the node's PATH"
            yield error("program-path", what, f"write ./{program}", "command")
        elif not os.access(case.packed[name], os.X_OK):
            what = f"{program} is not executable (exit code 126)"
            yield error("program-mode", what, f"chmod +x {name}", "command")
        programs.add(name)
    elif case.brings(name):
        return
    elif not bare or _is_script_here(case, program):
        yield _not_brought(case, "program-missing", program, name)


def _is_script_here(case: PreflightCase, program: str) -> bool:
    """Whether a bare name is meant for a file of this folder, not for a program of the node."""
    is_file = case.is_here(program) and (case.base / program).is_file()
    if case.job.container is not None:
        return is_file and program.endswith(_SUFFIXES)  # the image may have anything
    return program.endswith(_SUFFIXES) or (is_file and shutil.which(program) is None)


def _is_interpreter(program: str) -> bool:
    return _INTERPRETERS.fullmatch(program.rsplit("/", 1)[-1]) is not None


def _script(case: PreflightCase, argv: list[str]) -> Iterator[LintFinding]:
    """`python3 train.py`, `bash run.sh`, `torchrun --nproc-per-node 2 train.py`, `-m module`."""
    if not _is_interpreter(argv[0]):
        return
    launcher = _LAUNCHERS.fullmatch(argv[0].rsplit("/", 1)[-1])
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            yield from _module(case, next(words, ""))
            return
        if word in ("-c", "-"):
            return
        if word in _WITH_VALUE:
            next(words, "")
        elif not word.startswith("-") and (word.endswith(_SUFFIXES) or not launcher):
            break
    else:
        return
    name = posixpath.normpath(word)
    if word.startswith(("/", "$", "~", _UNKNOWN)) or case.brings(name):
        return
    if word.endswith(_SUFFIXES) or case.is_here(name):
        yield _not_brought(case, "script-missing", word, name)


def _module(case: PreflightCase, module: str) -> Iterator[LintFinding]:
    place = module.replace(".", "/")
    names = (f"{place}.py", f"{place}/__init__.py", f"{place}/__main__.py")
    if any(name in case.packed for name in names):
        return
    here = next((name for name in names if case.is_here(name)), None)
    if here is not None:
        entry = here if "/" not in here else here.split("/")[0]
        what = f"python -m {module} would not find {here}: it does not go with the job"
        yield error("script-missing", what, _add_to_files(case, entry), "command")


def _other_files(case: PreflightCase, argv: list[str]) -> Iterator[LintFinding]:
    """Arguments that name something of this folder which stays behind."""
    made = [posixpath.normpath(output.path) for output in case.job.outputs]
    made += case.job.checkpoint.paths if case.job.checkpoint else ()
    left: dict[str, None] = {}
    for word in argv[1:]:  # of a large table: quick tests first
        value = word.partition("=")[2] if word[:1] == "-" else word
        if value[:1] in _NOT_HERE or not case.is_here(value) or value.endswith(_SUFFIXES):
            continue
        name = posixpath.normpath(value)
        plain_word = "." not in value and "/" not in value  # `--mode test` beside a folder test
        if plain_word or case.brings(name) or name.startswith("."):
            continue
        if not any(f"{name}/".startswith(f"{path}/") for path in made):
            left[value] = None
    if left:
        first = next(iter(left))
        more = f" (and {len(left) - 1:,} more)" if len(left) > 1 else ""
        what = f"{first}{more} is here, but does not go with the job"
        entry = posixpath.dirname(first) if len(left) > 1 else ""
        yield warning("file-not-brought", what, _add_to_files(case, entry or first), "command")


def _not_brought(case: PreflightCase, id: str, word: str, name: str) -> LintFinding:
    if case.is_here(name):
        what = f"{word} is here, but does not go with the job"
        return error(id, what, _add_to_files(case, name), "command")
    candidates = {*case.provided, *case.siblings(posixpath.dirname(name))}
    near = closest(posixpath.basename(name), sorted(candidates))
    what = f"{word} does not exist, and no input brings it"
    remedy = f"did you mean {near}?" if near else "correct the name, and add the file to `files`"
    return error(id, what, remedy, "command")


def _add_to_files(case: PreflightCase, name: str) -> str:
    entries = ", ".join(f'"{entry}"' for entry in (*case.job.files[:_SHOWN], name))
    more = "…, " if len(case.job.files) > _SHOWN else ""
    return f"files = [{more}{entries}]"


def _workers(case: PreflightCase) -> Iterator[LintFinding]:
    """Loader processes that the command asks for; of a table, the most of them."""
    options = {option for text in case.scripts.values() for option in worker_options(text)}
    words = [_most(case.filled(word)) if "{" in word else word for word in case.command_words]
    yield from asked_workers(words, case.job.resources.cpus, "command", "", options)


def _most(values: list[str]) -> str:
    numbers = [value for value in values if value.isdecimal() and len(value) < 6]
    return max(numbers, key=int) if numbers and len(numbers) == len(values) else values[0]


def _traps(case: PreflightCase, programs: set[str]) -> Iterator[LintFinding]:
    found: list[LintFinding] = []
    if case.job.shell:
        found += script_traps(case.job.command[0], "command", case.context(interpreter="sh"))
    for name, text in case.scripts.items():
        found += script_traps(text, name, case.context(program=name in programs))
    for finding in found:
        if not (case.local and finding.id in ("absolute-path", "scratch-path")):
            yield finding
