"""The job that preflight checks, with its files; and the checks of its command."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import shutil
from collections.abc import Iterator, Sequence
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
from headway.pool.lint.traps import Context, LintFinding, base_name, error, unwrapped, warning
from headway.pool.prepare import packed_files
from headway.spec import Job
from headway.spec.places import filler
from headway.text import closest

_MOST_SCRIPTS = 200
_OSPOOL_URL = re.compile(r"(?:[\w.-]+\+)?(?:osdf|stash)://+ospool/", re.I)


def in_ospool(url: str) -> bool:
    """Whether a URL lies in the OSPool's own part of the federation."""
    return _OSPOOL_URL.match(url) is not None


def put_where_cached(case: PreflightCase) -> str:
    """What to do with a large file on this pool."""
    return "put it on OSDF, where it is cached" if case.ospool else "put it behind a URL"


class PreflightCase:
    """The job, its pool and its files, for all checks; each file is read once."""

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
        """The different values of a text that `{column}` makes differ from job to job."""
        names, fill = filler(template)
        return list(dict.fromkeys(fill({name: self._column(name) for name in names})))

    def _column(self, name: str) -> list[str]:
        rows: Sequence[dict[str, str]] = self.job.rows or [{}] * self.job.size
        if name == "job":
            return [row.get(name, str(number)) for number, row in enumerate(rows)]
        return [row[name] for row in rows]

    # -- files

    @cached_property
    def packed(self) -> dict[str, Path]:
        """Every file and folder of the payload, by its name in the job's folder."""
        return dict(packed_files(self.job.files, self.base))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes of the payload's regular files, without those that cannot be read."""
        sizes = {}
        for name, path in self.packed.items():
            with contextlib.suppress(OSError):
                if path.is_file():
                    sizes[name] = path.stat().st_size
        return sizes

    @cached_property
    def payload_bytes(self) -> int:
        """The size of payload.tar: a header for each file, and its data in blocks of 512 bytes."""
        return 512 * len(self.packed) + sum(-(-size // 512) * 512 for size in self.sizes.values())

    @cached_property
    def input_bytes(self) -> int:
        """The declared sizes of the inputs; those without one count as 0."""
        return sum(given.size or 0 for given in self.job.inputs)

    @cached_property
    def input_disk(self) -> int:
        """The disk space that the inputs need at once, as far as it is declared."""
        total = 0
        for given in self.job.inputs:
            size = given.size or 0
            total += size if given.window is None else min(given.window, size or given.window)
            total += size if given.unpack else 0  # for a while the archive is there too
        return total

    @cached_property
    def image_path(self) -> Path:
        return self.base / (self.job.container or "")

    @cached_property
    def image_bytes(self) -> int:
        """The size of a container image that goes with the job."""
        local = self.job.container is not None and "://" not in self.job.container
        return self.image_path.stat().st_size if local and self.image_path.is_file() else 0

    @cached_property
    def provided(self) -> frozenset[str]:
        """The paths that exist when the command of any job starts."""
        inputs = [given.path for given in self.job.inputs if not placeholders(given.path)]
        return frozenset((*self.packed, *inputs))

    def brings(self, name: str) -> bool:
        """Whether a path exists when the command starts, perhaps within an unpacked input."""
        unpacked = [given.path for given in self.job.inputs if given.unpack]
        return name in self.provided or any(name.startswith(f"{path}/") for path in unpacked)

    # -- scripts

    @cached_property
    def scripts(self) -> dict[str, str]:
        """The text of the job's scripts; of those in a folder, the ones that the command names."""
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
        """The words of the command; a shell line is split roughly."""
        if self.job.shell:
            return re.split(r"[\s;&|()<>\"']+", self.job.command[0])
        return list(self.job.command)

    def mentions(self, text: str, *, word: bool = False) -> bool:
        """Whether the command or one of its scripts contains `text`, perhaps as a whole word."""
        pattern = re.escape(text)
        wanted = re.compile(rf"(?<![\w.]){pattern}(?![\w.])" if word else pattern)
        texts = (*self.job.command, *self.job.environment.values(), *self.scripts.values())
        return any(map(wanted.search, texts))

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
        """Whether a file or folder of this name is in the job's folder."""
        folder, _, last = name.rstrip("/").rpartition("/")
        return last in self.siblings(folder)

    def siblings(self, folder: str) -> frozenset[str]:
        """The names in a folder below the job's."""
        if folder not in self._listed:
            names: list[str] = []
            # A table may name many folders: ask for one only if its parent has it.
            if folder.startswith("/") or "." in folder or not folder or self.is_here(folder):
                with contextlib.suppress(OSError, ValueError):  # a long argument, or one with NUL
                    names = os.listdir(self.base / folder)
            self._listed[folder] = frozenset(names)
        return self._listed[folder]


# The command: does the job bring what it names, and which traps are in its scripts?

_LAUNCHERS = re.compile("torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec")
_INTERPRETERS = re.compile(
    r"(?:python|pypy)[\d.]*|bash|sh|dash|zsh|Rscript|perl|ruby|julia|node|" + _LAUNCHERS.pattern
)
_SUFFIXES = (".py", ".sh", ".bash", ".R", ".r", ".pl", ".jl", ".rb", ".js", ".exe", ".out")
_WITH_VALUE = {"-W", "-X", "-o", "-O", "--check-hash-based-pycs"}
_UNKNOWN = "\0"  # a word that differs from job to job
_NOT_HERE = ("", "/", "~", "$", _UNKNOWN)  # beginnings of words that name no file here
_SHOWN = 3
_MOST = 1000  # programs or scripts of a table that are checked


def command_findings(case: PreflightCase) -> Iterator[LintFinding]:
    """Check the program, its arguments, and the job's scripts."""
    programs: set[str] = set()
    for argv in _commands(case):
        yield from _program(case, argv, programs)
        yield from _script(case, argv)
        yield from _other_files(case, argv)
    yield from _workers(case)
    yield from _traps(case, programs)


def _commands(case: PreflightCase) -> Iterator[list[str]]:
    """The argument lists to check; for a table, one for each different set of file names."""
    if case.job.shell:
        for command in scan(case.job.command[0]).commands:
            if command.words and not {"$", "{"} & set(command.words[0]):
                yield unwrapped(command.words)
        return
    plain = list(case.job.command)
    # Words that differ are checked one by one: their combinations would be too many.
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
    """Whether a bare name means a file of this folder, not a program of the node."""
    is_file = case.is_here(program) and (case.base / program).is_file()
    if case.job.container is not None:
        return is_file and program.endswith(_SUFFIXES)  # the image may have anything
    return program.endswith(_SUFFIXES) or (is_file and shutil.which(program) is None)


def _is_interpreter(program: str) -> bool:
    return _INTERPRETERS.fullmatch(base_name(program)) is not None


def _script(case: PreflightCase, argv: list[str]) -> Iterator[LintFinding]:
    """`python3 train.py`, `bash run.sh`, `torchrun --nproc-per-node 2 train.py`, `-m module`."""
    if not _is_interpreter(argv[0]):
        return
    launcher = _LAUNCHERS.fullmatch(base_name(argv[0]))
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
        what = f"python -m {module} would not find {here}: it does not go with the job"
        yield error("script-missing", what, _add_to_files(case, here.split("/")[0]), "command")


def _other_files(case: PreflightCase, argv: list[str]) -> Iterator[LintFinding]:
    """Arguments that name files of this folder which do not go with the job."""
    made = [posixpath.normpath(output.path) for output in case.job.outputs]
    made += case.job.checkpoint.paths if case.job.checkpoint else ()
    left: dict[str, None] = {}
    for word in argv[1:]:  # a table may have many: quick tests first
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
    """Check the loader processes that the command asks for; for a table, the largest number."""
    options = {option for text in case.scripts.values() for option in worker_options(text)}
    words = list(case.command_words)
    for at, word in enumerate(words):
        asked = f"{words[at - 1]} {word}" if at else word
        if "{" in word and any(option in asked for option in (*options, "worker")):
            words[at] = _most(case.filled(word))
    yield from asked_workers(words, case.job.resources.cpus, "command", "", options)


def _most(values: list[str]) -> str:
    numbers = [value for value in values if value.isdecimal() and len(value) < 6]
    return max(numbers, key=int) if numbers and len(numbers) == len(values) else values[0]


def _traps(case: PreflightCase, programs: set[str]) -> Iterator[LintFinding]:
    scripts = [(n, text, case.context(program=n in programs)) for n, text in case.scripts.items()]
    if case.job.shell:
        scripts.insert(0, ("command", case.job.command[0], case.context(interpreter="sh")))
    for name, text, context in scripts:
        for finding in script_traps(text, name, context):
            if not (case.local and finding.id in ("absolute-path", "scratch-path")):
                yield finding
