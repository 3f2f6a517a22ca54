"""The command: does the job bring what it names, and what do its scripts have in store?"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Iterator

from headway.pool.preflight.case import Case
from headway.pool.preflight.fetches import unwrapped
from headway.pool.preflight.findings import Finding, error, warning
from headway.pool.preflight.pytraps import worker_options
from headway.pool.preflight.shellscan import scan
from headway.pool.preflight.shelltraps import asked_workers
from headway.pool.preflight.traps import script_traps
from headway.spec.words import closest

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


def command_findings(case: Case) -> Iterator[Finding]:
    """Of the program, its arguments, and the traps of every script the job brings."""
    programs: set[str] = set()
    for argv in _commands(case):
        yield from _program(case, argv, programs)
        yield from _script(case, argv)
        yield from _other_files(case, argv)
    yield from _workers(case)
    yield from _traps(case, programs)


def _commands(case: Case) -> Iterator[list[str]]:
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


def _program(case: Case, argv: list[str], programs: set[str]) -> Iterator[Finding]:
    program = argv[0]
    if program == _UNKNOWN or program.startswith(("/", "$", "-", "~")):
        return
    name = posixpath.normpath(program)
    bare = "/" not in program
    if name in case.sizes:
        if bare:
            what = f"{program} is in the job's folder, not on the node's PATH"
            yield error("program-path", "command", what, f"write ./{program}")
        elif not os.access(case.packed[name], os.X_OK):
            what = f"{program} is not executable (exit code 126)"
            yield error("program-mode", "command", what, f"chmod +x {name}")
        programs.add(name)
    elif case.brings(name):
        return
    elif not bare or _is_script_here(case, program):
        yield _not_brought(case, "program-missing", program, name)


def _is_script_here(case: Case, program: str) -> bool:
    """Whether a bare name is meant for a file of this folder, not for a program of the node."""
    is_file = case.is_here(program) and (case.base / program).is_file()
    if case.job.container is not None:
        return is_file and program.endswith(_SUFFIXES)  # the image may have anything
    return program.endswith(_SUFFIXES) or (is_file and shutil.which(program) is None)


def _is_interpreter(program: str) -> bool:
    return _INTERPRETERS.fullmatch(program.rsplit("/", 1)[-1]) is not None


def _script(case: Case, argv: list[str]) -> Iterator[Finding]:
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


def _module(case: Case, module: str) -> Iterator[Finding]:
    place = module.replace(".", "/")
    names = (f"{place}.py", f"{place}/__init__.py", f"{place}/__main__.py")
    if any(name in case.packed for name in names):
        return
    here = next((name for name in names if case.is_here(name)), None)
    if here is not None:
        entry = here if "/" not in here else here.split("/")[0]
        what = f"python -m {module} would not find {here}: it does not go with the job"
        yield error("script-missing", "command", what, _add_to_files(case, entry))


def _other_files(case: Case, argv: list[str]) -> Iterator[Finding]:
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
        yield warning("file-not-brought", "command", what, _add_to_files(case, entry or first))


def _not_brought(case: Case, id: str, word: str, name: str) -> Finding:
    if case.is_here(name):
        what = f"{word} is here, but does not go with the job"
        return error(id, "command", what, _add_to_files(case, name))
    candidates = {*case.provided, *case.siblings(posixpath.dirname(name))}
    near = closest(posixpath.basename(name), sorted(candidates))
    what = f"{word} does not exist, and no input brings it"
    remedy = f"did you mean {near}?" if near else "correct the name, and add the file to `files`"
    return error(id, "command", what, remedy)


def _add_to_files(case: Case, name: str) -> str:
    entries = ", ".join(f'"{entry}"' for entry in (*case.job.files[:_SHOWN], name))
    more = "…, " if len(case.job.files) > _SHOWN else ""
    return f"files = [{more}{entries}]"


def _workers(case: Case) -> Iterator[Finding]:
    """Loader processes that the command asks for; of a table, the most of them."""
    options = {option for text in case.scripts.values() for option in worker_options(text)}
    words = [_most(case.filled(word)) if "{" in word else word for word in case.command_words]
    yield from asked_workers(words, case.job.resources.cpus, "command", "", options)


def _most(values: list[str]) -> str:
    numbers = [value for value in values if value.isdecimal() and len(value) < 6]
    return max(numbers, key=int) if numbers and len(numbers) == len(values) else values[0]


def _traps(case: Case, programs: set[str]) -> Iterator[Finding]:
    found: list[Finding] = []
    if case.job.shell:
        found += script_traps(case.job.command[0], "command", case.context(interpreter="sh"))
    for name, text in case.scripts.items():
        found += script_traps(text, name, case.context(program=name in programs))
    for finding in found:
        if not (case.local and finding.id in ("absolute-path", "scratch-path")):
            yield finding
