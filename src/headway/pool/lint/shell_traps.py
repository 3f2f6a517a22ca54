"""Traps in shell scripts: lines that work on a laptop and cost an attempt on a pool."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from headway.pool.lint.shell import ShellCommand, ShellScript, scan
from headway.pool.lint.traps import (
    FAR_PATH,
    HOME,
    HOME_FILE,
    TEMPORARY,
    Context,
    LintFinding,
    Severity,
    far_path,
    fetch_of,
    found,
    path_in,
    scratch_path,
    unwrapped,
)
from headway.text import many

WORKER_OPTION = re.compile(
    r"--?(?:[\w-]*[-_])?(?:num[-_]?workers|workers|n[-_]workers)"
    r"|(?:\+{0,2}[\w.]+\.)?num_workers"  # as Hydra has it: data.num_workers=4
)
_ARCHIVES = (".tar", ".tgz", ".gz", ".xz", ".bz2", ".zst", ".zip", ".h5", ".npz")
_SHELLS = {"sh", "bash", "dash", "ksh", "zsh"}
_NOT_STARTED_BY_SHEBANG = (".bat", ".cmd", ".exe", ".com", ".ps1", ".vbs", ".class", ".jar")
# Commands whose failure nobody misses.
_TRIVIAL = {
    *(
        ":",
        ".",
        "[",
        "[[",
        "cat",
        "date",
        "df",
        "echo",
        "env",
        "exit",
        "export",
        "free",
        "hostname",
    ),
    *("id", "local", "ls", "module", "nvidia-smi", "printf", "pwd", "return", "set", "shopt"),
    *("sleep", "source", "test", "trap", "true", "ulimit", "umask", "uname", "unset", "wait"),
    *("which", "whoami"),
}
# Commands that tidy up or pack: never what the job was submitted for.
_CLEANUP = {
    *(":", "cp", "date", "df", "du", "echo", "find", "gzip", "ls", "mkdir", "mv", "printf", "rm"),
    *("rmdir", "sync", "tar", "touch", "true", "zip"),
}
_WORK = re.compile(r"(?:python[\d.]*|torchrun|accelerate|deepspeed|Rscript|julia|bash|sh)\Z")
_STATEMENT = re.compile(
    r"\s*(?:exit(?:\s+(?:\d+|\$\S+))?|fi|done|esac|if\s+\[.*|export\s+\w+=.*|[A-Za-z_]\w*=\S*)"
    r"\s*(?:[;#].*)?"
)
_JOINED = re.compile(r"(?:&&|\|\|?|;|\(|\{|\bthen|\bdo|\belse)\s*\Z")


def shell_traps(text: str, name: str, context: Context) -> list[LintFinding]:
    """Every trap in a shell script called `name`, in the order of its lines."""
    script = scan(text)
    traps = [
        *_line_ends(text, name),
        *shebang_traps(text, name, context),
        *_continuations(script, name),
        *_second_start(script, name, context),
        *_hidden_by_pipe(script, name),
        *_hidden_status(script, name),
        *_bashisms(script, name, context),
        *(
            trap
            for command in script.commands
            for trap in _one_command(command, script, name, context)
        ),
    ]
    return sorted(traps, key=lambda trap: int(trap.where.rpartition(":")[2]))


def is_shell(text: str, name: str) -> bool:
    """Whether a file is a shell script, by its name or its first line."""
    if name.endswith((".sh", ".bash")):
        return True
    words = text.split("\n", 1)[0].removeprefix("#!").split() if text.startswith("#!") else []
    return any(word.rsplit("/", 1)[-1] in _SHELLS for word in words[:3])


def shebang_traps(text: str, name: str, context: Context) -> list[LintFinding]:
    """What is wrong with the first line of a script that is started by itself."""
    if not context.program or name.lower().endswith(_NOT_STARTED_BY_SHEBANG):
        return []
    where = f"{name}:1"
    first = text.split("\n", 1)[0].rstrip("\r")
    shebang = "#!/usr/bin/env python3" if name.endswith(".py") else "#!/bin/bash"
    if not first.startswith("#!"):
        late = re.search(r"^[\ufeff \t]*#[ \t]*!", text[:200], re.M)
        return [found("shebang-late" if late else "shebang-missing", where, first, shebang=shebang)]
    words = first[2:].split()
    if not words or not words[0].startswith("/"):
        return [found("shebang-relative", where, first, shebang=shebang)]
    if words[0].endswith("/env") and len(words) > 2 and not words[1].startswith("-"):
        program = " ".join(words[1:])
        return [found("shebang-arguments", where, first, program=program, first=words[1])]
    if FAR_PATH.search(words[0]):
        return [found("shebang-far", where, first, shebang="#!/usr/bin/env " + _base(words[0]))]
    return []


def _line_ends(text: str, name: str) -> Iterator[LintFinding]:
    at = text.find("\r\n")
    if at >= 0:
        yield found("crlf", f"{name}:{text.count(chr(10), 0, at) + 1}", "", name=name)


def _continuations(script: ShellScript, name: str) -> Iterator[LintFinding]:
    explained: set[int] = set()
    for broken in script.breaks:
        explained.add(broken.next_line)
        cut = script.text(broken.next_line).strip() or "what follows"
        severity = Severity.ERROR if cut.startswith("-") else None
        where = f"{name}:{broken.line}"
        line = script.text(broken.line)
        yield found(f"continuation-{broken.kind}", where, line, severity, cut=cut)
    for command in script.commands:
        option = command.words and re.match(r"--?[A-Za-z]", command.words[0])
        if option and command.line not in explained:
            line = script.text(command.line)
            yield found("continuation-option", f"{name}:{command.line}", line)
    for number in script.joins:
        cut = script.text(number + 1)
        before = script.text(number).rstrip().removesuffix("\\")
        if _STATEMENT.fullmatch(cut) and before.strip() and not _JOINED.search(before):
            line = script.text(number)
            yield found("continuation-swallow", f"{name}:{number}", line, cut=cut.strip())


def _second_start(script: ShellScript, name: str, context: Context) -> Iterator[LintFinding]:
    severity = None
    when = "a script that starts again in the same folder comes here twice"
    if context.checkpointed:
        severity = Severity.WARNING
        when = "after a checkpoint the script starts again in the same folder"
    for command in script.commands:
        operands = command.operands()
        if not operands or _guarded(command, script):
            continue
        where, line = f"{name}:{command.line}", script.text(command.line)
        if command.name == "mkdir" and not command.has_flag("p", "--parents"):
            sure = context.checkpointed and _errexit(script) and _stays(operands, script)
            yield found("mkdir", where, line, Severity.ERROR if sure else severity, when=when)
        elif command.name == "rm" and not command.has_flag("f", "--force"):
            yield found("rm", where, line, severity, when=when)
        elif command.name == "mv":
            gone = [word for word in operands[:-1] if _is_input(word, context)]
            if gone:
                yield found("mv", where, line, severity, when=when, source=gone[0])


def _stays(folders: list[str], script: ShellScript) -> bool:
    """Whether these are folders of the job's own, which nothing in the script removes."""
    removers = script.calls("rm", "rmdir", "trap", "mv")
    removed = " ".join(word for command in removers for word in command.words)
    return not any(re.search(r"[$*`]|^/", name) or name.strip("/") in removed for name in folders)


def _is_input(word: str, context: Context) -> bool:
    base = _base(word.rstrip("/"))
    return base in context.provided or word in context.provided or base.endswith(_ARCHIVES)


def _guarded(command: ShellCommand, script: ShellScript) -> bool:
    if command.after == "||" or command.condition or {"if", "case"} & set(command.within):
        return True
    at = script.commands.index(command)
    tests = ("[", "[[", "test")
    return command.before in ("&&", "||") and at > 0 and script.commands[at - 1].name in tests


def _errexit(script: ShellScript) -> bool:
    first = script.text(1)
    if first.startswith("#!") and re.search(r"\s-\w*e", first):
        return True
    return any(
        (re.fullmatch(r"-[a-zA-Z]+", word) and "e" in word) or word == "errexit"
        for command in script.calls("set")
        for word in command.arguments
    )


def _hidden_status(script: ShellScript, name: str) -> Iterator[LintFinding]:
    handled = any("$?" in " ".join((*c.words, *c.assignments)) for c in script.commands)
    if handled or _errexit(script) or any("ERR" in c.words for c in script.calls("trap")):
        return
    top = [
        command
        for command in script.commands
        if not (command.nested or command.condition or "function" in command.within)
    ]
    steps = [
        command
        for command in top
        if command.words
        and command.name not in _TRIVIAL
        and command.after not in ("||", "&&", "|")
        and command.before != "||"
    ]
    if not steps:
        return
    last = top[-1]
    work = [step for step in steps if step.name not in _CLEANUP and step is not last]
    tidies = (last.name in _CLEANUP or last.words == ["exit", "0"]) and not last.within
    if tidies and work and last.before != "&&":
        where, line = f"{name}:{last.line}", script.text(last.line)
        yield found("status", where, line, work=work[-1].name, at=work[-1].line)
    elif len(steps) > 1:
        first = steps[0].line
        yield found("errexit", f"{name}:{first}", script.text(first), steps=len(steps))


def _hidden_by_pipe(script: ShellScript, name: str) -> Iterator[LintFinding]:
    if any("pipefail" in command.arguments for command in script.calls("set")):
        return
    for command in script.commands:
        program = unwrapped(command.words)[:1]
        works = program and (_WORK.match(_base(program[0])) or program[0].startswith("./"))
        if works and command.after == "|" and not command.nested and not command.condition:
            line = script.text(command.line)
            yield found("pipe", f"{name}:{command.line}", line, work=_base(program[0]))


def _bashisms(script: ShellScript, name: str, context: Context) -> Iterator[LintFinding]:
    words = script.text(1)[2:].split() if script.text(1).startswith("#!") else []
    shell = context.interpreter or (_base(words[-1]) if words else "")
    if shell not in ("sh", "dash"):
        return
    for command in script.commands:
        pipefail = command.name == "set" and "pipefail" in command.arguments
        if pipefail or command.name in ("[[", "source", "pushd", "popd", "declare", "shopt"):
            word = "set -o pipefail" if pipefail else command.name
            yield found("bashism", f"{name}:{command.line}", script.text(command.line), word=word)
            return


def _one_command(
    command: ShellCommand, script: ShellScript, name: str, context: Context
) -> Iterator[LintFinding]:
    """What can be said of a command by itself."""
    where, line = f"{name}:{command.line}", script.text(command.line)
    words = unwrapped(command.words)
    program = _base(words[0]) if words else ""
    fetch = fetch_of(words)
    if fetch:
        yield found(fetch.id, where, line, program=fetch.shown(words))
    if program in ("unzip", "zip", "7z", "unrar"):
        yield found("unzip", where, line, program=program)
    elif program == "tar" and _extracts(words):
        yield found("extract", where, line, waits=context.waits)
    if _WORK.match(program):
        yield from asked_workers(words, context.cpus, where, line)
    sourced = program in ("source", ".")
    if program not in ("echo", "printf"):
        for word in (*command.words, *command.assignments, *command.targets):
            if HOME_FILE.search(word) or (sourced and HOME.search(word)):
                yield found("home-file", where, line, path=word)
                return
            if far_path(word, context.contained):
                yield found("absolute-path", where, line, path=path_in(word))
                return
            looks = program in _TRIVIAL or _guarded(command, script)  # ls /tmp, [ -d /scratch ]
            if scratch_path(word) and (not looks or program == "export"):
                severity = Severity.HINT if TEMPORARY.search(word) else None
                yield found("scratch-path", where, line, severity, path=path_in(word))
                return


def asked_workers(
    words: Sequence[str], cpus: int | None, where: str, line: str, options: Collection[str] = ()
) -> Iterator[LintFinding]:
    """The loader processes that a command asks for, if they are more than its cpus.

    Args:
        words: The words of the command.
        cpus: How many the job asks for; None: not known.
        where: The place to name.
        line: The text at fault.
        options: Further options for their number, such as `-j`, that the script is known to have.

    Returns:
        One finding at most.
    """
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        short = next((o for o in options if len(o) == 2 and word.startswith(o)), "")
        if short and word != short:
            option, value = short, word[2:].lstrip("=")
        elif not equals:
            value = words[at + 1] if at + 1 < len(words) else ""
        if option not in options and not (
            WORKER_OPTION.fullmatch(option) and (equals or option[0] == "-")
        ):
            continue
        if cpus and value.isdecimal() and len(value) < 6 and int(value) > cpus:
            # One worker beside the main process is the usual choice even on one cpu.
            severity = Severity.HINT if int(value) <= cpus + 1 else None
            shown = many(cpus, "cpu")
            yield found("workers", where, line, severity, workers=int(value), cpus=shown)
        return


def _extracts(words: list[str]) -> bool:
    if {"--extract", "--get"} & set(words):
        return True
    bundle = words[1] if len(words) > 1 and not words[1].startswith("--") else ""
    return "x" in bundle or any(re.fullmatch(r"-\w+", word) and "x" in word for word in words[2:])


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]
