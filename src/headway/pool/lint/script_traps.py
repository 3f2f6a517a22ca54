"""Known traps in the scripts of a job: lines that work on a laptop and cost an attempt on a pool.

Python scripts are read as a syntax tree, shell scripts with `shell.scan`, so comments and strings
raise no alarm. `traps` has the table of all traps.
"""

from __future__ import annotations

import ast
import platform
import re
import shlex
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

from headway.pool.lint.shell import ShellCommand, scan
from headway.pool.lint.traps import (
    FAR_PATH,
    HOME,
    HOME_FILE,
    TEMPORARY,
    Context,
    LintFinding,
    Severity,
    base_name,
    far_path,
    fetch_of,
    path_in,
    scratch_path,
    trap_finding,
    unwrapped,
)
from headway.text import many

LONGEST_SCRIPT = 2_000_000  # bytes; nobody wrote a longer one by hand
_MOST_LINES, _LONGEST_LINE = 20_000, 500
_SHELLS = {"sh", "bash", "dash", "ksh", "zsh"}
_NOT_STARTED_BY_SHEBANG = (".bat", ".cmd", ".exe", ".com", ".ps1", ".vbs", ".class", ".jar")
_WORKER_OPTION = re.compile(
    r"--?(?:[\w-]*[-_])?(?:num[-_]?workers|workers|n[-_]workers)"
    r"|(?:\+{0,2}[\w.]+\.)?num_workers"  # Hydra's data.num_workers=4
)


def script_traps(text: str, name: str, context: Context | None = None) -> list[LintFinding]:
    """The traps of a script, in the order of its lines.

    Args:
        text: The script.
        name: Its name, for the findings.
        context: How the job starts it and what the job gives it.

    Returns:
        The findings. In a language that is not known, the first line and paths are checked.
    """
    context = context or Context()
    traps: _Traps
    if is_python(text, name):
        traps = _PythonTraps(text, name, context)
    elif _is_shell(text, name) or context.interpreter:
        traps = _ShellTraps(text, name, context)
    else:
        traps = _UnknownTraps(text, name, context)
    traps.check_shebang(text)
    traps.check(text)
    return sorted(traps.findings, key=lambda each: int(each.where.rpartition(":")[2]))


def is_python(text: str, name: str) -> bool:
    """Whether a file is a Python script, by its name or its first line."""
    return name.endswith(".py") or (text.startswith("#!") and "python" in text.split("\n", 1)[0])


def _is_shell(text: str, name: str) -> bool:
    words = text.split("\n", 1)[0].removeprefix("#!").split() if text.startswith("#!") else []
    return name.endswith((".sh", ".bash")) or any(base_name(word) in _SHELLS for word in words[:3])


def read_script(path: Path) -> str | None:
    """The text of a script, or None if the file is not text or cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > LONGEST_SCRIPT:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in data else data.decode("utf-8", errors="replace")


def uses_loader(text: str) -> bool:
    """Whether a script feeds its model through a loader with worker processes."""
    return bool(re.search(r"\bDataLoader\s*\(|\bnum_workers\b", text))


def worker_options(text: str) -> set[str]:
    """The options that set a script's number of loader processes: `-j`, `--workers`."""
    found: set[str] = set()
    for match in re.finditer(r"add_argument\(([^)=]*)", text):
        options = re.findall(r"[\"'](--?[\w-]+)[\"']", match[1])
        if any(map(_WORKER_OPTION.fullmatch, options)):
            found.update(options)
    return found


def asked_workers(
    words: Sequence[str], cpus: int | None, where: str, line: str, options: Collection[str] = ()
) -> list[LintFinding]:
    """At most one finding: the command asks for more loader processes than the job has cpus.

    `options` are further options for their number, such as `-j`, that the script is known to have.
    """
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        short = next((o for o in options if len(o) == 2 and word.startswith(o)), "")
        if short and word != short:
            option, value = short, word[2:].lstrip("=")
        elif not equals:
            value = words[at + 1] if at + 1 < len(words) else ""
        if option not in options and not (
            _WORKER_OPTION.fullmatch(option) and (equals or option[0] == "-")
        ):
            continue
        workers = int(value) if value.isdecimal() and len(value) < 6 else 0
        return _too_many_workers(workers, cpus, where, line)
    return []


def _too_many_workers(workers: int, cpus: int | None, where: str, line: str) -> list[LintFinding]:
    if not cpus or workers <= cpus:
        return []
    # One worker besides the main process is the usual choice even on one cpu.
    severity = Severity.HINT if workers <= cpus + 1 else None
    shown = many(cpus, "cpu")
    return [trap_finding("workers", where, line, severity, workers=workers, cpus=shown)]


class _Traps:
    """Collects the traps of one script."""

    def __init__(self, text: str, name: str, context: Context) -> None:
        self.lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        self.name = name
        self.context = context
        self.findings: list[LintFinding] = []

    def at(self, line: int) -> tuple[str, str]:
        """A place of the script for a finding, and its text."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return f"{self.name}:{line}", text

    def add(self, id: str, line: int, severity: Severity | None = None, **words: object) -> None:
        where, text = self.at(line)
        self.findings.append(trap_finding(id, where, text, severity, **words))

    def check(self, text: str) -> None:
        raise NotImplementedError

    def check_shebang(self, text: str) -> None:
        """Look at the first line of a script that the node starts directly."""
        if not self.context.program or self.name.lower().endswith(_NOT_STARTED_BY_SHEBANG):
            return
        first = text.split("\n", 1)[0].rstrip("\r")
        shebang = "#!/usr/bin/env python3" if self.name.endswith(".py") else "#!/bin/bash"
        words = first[2:].split()
        if not first.startswith("#!"):
            late = re.search(r"^[\ufeff \t]*#[ \t]*!", text[:200], re.M)
            self.add("shebang-late" if late else "shebang-missing", 1, shebang=shebang)
        elif not words or not words[0].startswith("/"):
            self.add("shebang-relative", 1, shebang=shebang)
        elif words[0].endswith("/env") and len(words) > 2 and not words[1].startswith("-"):
            self.add("shebang-arguments", 1, program=" ".join(words[1:]), first=words[1])
        elif FAR_PATH.search(words[0]):
            self.add("shebang-far", 1, shebang=f"#!/usr/bin/env {base_name(words[0])}")


class _UnknownTraps(_Traps):
    """Paths of another machine in a text whose language is not known: one hint for each line."""

    def check(self, text: str) -> None:
        self.lines = [line[:_LONGEST_LINE] for line in self.lines[:_MOST_LINES]]
        for number, line in enumerate(self.lines, 1):
            if line.lstrip().startswith(("#", "%", ";", "//")):
                continue
            for word in re.split(r"[\s\"'`()\[\]{},;<>]+", line):
                far = far_path(word, self.context.contained) and not word.startswith("~")
                if far or scratch_path(word):
                    trap = "absolute-path" if far else "scratch-path"
                    self.add(trap, number, Severity.HINT, path=path_in(word))
                    break


# Python


# Dotted names of calls, as regular expressions, and their traps.
_CALLS = (
    ("fetch", r"urllib\.request\.(?:urlretrieve|urlopen)|requests\.get|httpx\.(?:get|stream)"),
    ("fetch", r"wget\.download|gdown\.\w*download\w*|kagglehub\.\w*download"),
    ("fetch", r"(?:torch\.hub|torchvision\.datasets\.utils)\.download_\w+|pooch\.retrieve"),
    ("weights", r"torch\.hub\.load_state_dict_from_url|(?:torch\.utils\.)?model_zoo\.load_url"),
    ("weights", r"huggingface_hub\.(?:hf_hub_download|snapshot_download)|spacy\.cli\.download"),
    ("dataset", r"nltk\.download|tensorflow_datasets\.load|sklearn\.datasets\.fetch_\w+"),
    ("dataset", r"(?:tensorflow\.)?keras\.(?:utils\.get_file|datasets\.\w+\.load_data)"),
    ("zip", r"zipfile\.ZipFile|shutil\.unpack_archive"),
)
_WEIGHTS = re.compile(r"imagenet|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
_LOCAL_BUILDERS = {"csv", "json", "parquet", "text", "arrow", "imagefolder", "audiofolder"}
_LOCAL_BUILDERS |= {"webdataset", "pandas", "xml"}
_RUNNERS = re.compile(r"os\.(?:system|popen)|subprocess\.\w+")


class _PythonTraps(_Traps, ast.NodeVisitor):
    def __init__(self, text: str, name: str, context: Context) -> None:
        super().__init__(text, name, context)
        self.modules: dict[str, str] = {}  # local name -> dotted name, from imports
        self.guards = 0  # if and try around the current node

    def check(self, text: str) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # odd escapes in a script are not ours to report
                tree = ast.parse(text.removeprefix("\ufeff"))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            reason = getattr(problem, "msg", "") or str(problem)
            version = ".".join(platform.python_version_tuple()[:2])
            self.add("syntax", getattr(problem, "lineno", 0) or 1, version=version, reason=reason)
        else:
            self.visit(tree)

    # -- structure

    def visit_Import(self, node: ast.Import) -> None:
        self.modules |= {alias.asname: alias.name for alias in node.names if alias.asname}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.modules[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"

    def visit_If(self, node: ast.If | ast.Try) -> None:
        self.guards += 1
        self.generic_visit(node)
        self.guards -= 1

    visit_Try = visit_If

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring is not a value
            self.generic_visit(node)

    # -- values

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str) or "\n" in node.value:
            return
        device = re.fullmatch(r"cuda:([0-9]+)", node.value)
        if device:
            self._gpu_index(node, node.value, int(device[1]))
        elif HOME_FILE.match(node.value) and not node.value.startswith("~"):
            self.add("home-file", node.lineno, path=node.value)
        elif node.value[:1] != "/" or any(char in node.value for char in " \t<>|"):
            return  # a sentence, or a path of the job's own
        elif far_path(node.value, self.context.contained):
            self.add("absolute-path", node.lineno, path=path_in(node.value))
        elif scratch_path(node.value) and not self.guards:
            severity = Severity.HINT if TEMPORARY.match(node.value) else None
            self.add("scratch-path", node.lineno, severity, path=path_in(node.value))

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _text(target.slice) == "CUDA_VISIBLE_DEVICES":
                self.add("visible-devices", node.lineno)
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        for part in node.values[:1]:
            self.visit(part)

    # -- calls

    def visit_Call(self, node: ast.Call) -> None:
        called = self._dotted(node.func)
        keywords = {k.arg: k.value for k in node.keywords if k.arg}
        for trap, pattern in _CALLS:
            if re.fullmatch(pattern, called) and not _writes(node):
                short, waits = _short(called), self.context.waits
                self.add(trap, node.lineno, call=short, program=short, waits=waits)
        self._weights(node, called, keywords)
        self._datasets(node, called, keywords)
        self._workers(node, called, keywords)
        self._folders(node, called, keywords)
        if _RUNNERS.fullmatch(called) and node.args:
            words = _command_words(node.args[0])
            fetch = fetch_of(words)
            if fetch:
                self.add(fetch.id, node.lineno, program=fetch.shown(words))
        if called == "torch.cuda.set_device" or called.endswith(".cuda"):
            index = _number(node.args[0]) if node.args else 0
            self._gpu_index(node, f"{_short(called)}({index})", index)
        self.generic_visit(node)

    def _weights(self, node: ast.Call, called: str, keywords: dict[str, ast.expr]) -> None:
        call = ""
        if _is_true(keywords.get("pretrained")):
            call = f"{_short(called)}(pretrained=True)"
        elif self._named_weights(keywords.get("weights")):
            call = f"{_short(called)}(weights=…)"
        elif called == "torch.hub.load" and _text(keywords.get("source")) != "local":
            call = called
        elif called.rpartition(".")[2] == "from_pretrained" and node.args:
            wanted = _text(node.args[0])
            local = _is_true(keywords.get("local_files_only"))
            if wanted is not None and not local and not self._is_here(wanted):
                call = f'{_short(called)}("{wanted}")'
        if call:
            self.add("weights", node.lineno, call=call)

    def _named_weights(self, value: ast.expr | None) -> bool:
        if isinstance(value, ast.Attribute):
            return any(part.endswith("Weights") for part in self._dotted(value).split("."))
        return _WEIGHTS.fullmatch(_text(value) or "") is not None

    def _datasets(self, node: ast.Call, called: str, keywords: dict[str, ast.expr]) -> None:
        if _is_true(keywords.get("download")):
            self.add("dataset", node.lineno, call=f"{_short(called)}(download=True)")
        elif called in ("datasets.load_dataset", "load_dataset") and node.args:
            wanted = _text(node.args[0])
            files = _text(keywords.get("data_files")) or ""
            local = wanted in _LOCAL_BUILDERS and "://" not in files
            if wanted is not None and not local and not self._is_here(wanted):
                self.add("dataset", node.lineno, call=f'load_dataset("{wanted}")')

    def _workers(self, node: ast.Call, called: str, keywords: dict[str, ast.expr]) -> None:
        number = keywords.get("num_workers")
        if called.endswith(".add_argument") or called == "add_argument":
            options = [_text(argument) or "" for argument in node.args]
            if any(map(_WORKER_OPTION.fullmatch, options)):
                if _is_given(options, self.context.arguments):
                    return  # the command overrides it, and is checked by itself
                number = keywords.get("default")
        if isinstance(number, ast.Call):
            if self._dotted(number.func) in ("os.cpu_count", "multiprocessing.cpu_count"):
                self.add("cpu-count", number.lineno)
        elif number is not None:
            at, cpus = self.at(number.lineno), self.context.cpus
            self.findings += _too_many_workers(_number(number), cpus, *at)

    def _folders(self, node: ast.Call, called: str, keywords: dict[str, ast.expr]) -> None:
        if not self.context.checkpointed or self.guards or _is_true(keywords.get("exist_ok")):
            return
        if called in ("os.mkdir", "os.makedirs") or (called.endswith(".mkdir") and not node.args):
            self.add("makedirs", node.lineno, call=_short(called))

    def _gpu_index(self, node: ast.expr, device: str, index: int) -> None:
        gpus = self.context.gpus or 1
        if index >= gpus:
            severity = Severity.HINT if self.guards else None  # `if device_count() > 1:`
            self.add("gpu-index", node.lineno, severity, device=device, gpus=many(gpus, "GPU"))

    def _is_here(self, wanted: str) -> bool:
        path = wanted.removeprefix("./").rstrip("/")
        brought = any(path == name or path.startswith(f"{name}/") for name in self.context.provided)
        return brought or wanted.startswith((".", "/"))

    def _dotted(self, node: ast.expr) -> str:
        """`resnet50` after `from torchvision.models import resnet50` is the full name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.modules.get(node.id, node.id))
        else:
            parts.append(self._dotted(node.func) if isinstance(node, ast.Call) else "?")
        return ".".join(reversed(parts))


def _is_given(options: list[str], arguments: tuple[str, ...]) -> bool:
    return any(
        word.partition("=")[0] == option
        or (len(option) == 2 and re.fullmatch(re.escape(option) + r"\d+", word))
        for word in arguments
        for option in options
    )


def _writes(node: ast.Call) -> bool:
    """`ZipFile(name, "w")` creates an archive, which needs no `unzip`."""
    mode = next((k.value for k in node.keywords if k.arg == "mode"), None)
    return (_text(mode or (node.args[1] if len(node.args) > 1 else None)) or "r") in ("w", "a", "x")


def _short(called: str) -> str:
    return ".".join(called.split(".")[-2:]).removeprefix("?.")


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _number(node: ast.expr) -> int:
    """The value of a whole number; 0 for anything else."""
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else 0


def _command_words(node: ast.expr) -> list[str]:
    """The words of a command given as a string or a list; `?` for what is computed."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_word(element) for element in node.elts]
    text = _text(node) or ""
    if isinstance(node, ast.JoinedStr):
        text = "".join(_text(part) or "?" for part in node.values)
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and node.attr == "executable":
        return "python3"
    return _text(node) or "?"


# Shell

_ARCHIVES = (".tar", ".tgz", ".gz", ".xz", ".bz2", ".zst", ".zip", ".h5", ".npz")
# Commands whose failure does not matter.
_TRIVIAL = {
    *(":", ".", "[", "[[", "cat", "date", "df", "echo", "env", "exit", "export", "free"),
    *("hostname", "id", "local", "ls", "module", "nvidia-smi", "printf", "pwd", "return", "set"),
    *("shopt", "sleep", "source", "test", "trap", "true", "ulimit", "umask", "uname", "unset"),
    *("wait", "which", "whoami"),
}
# Commands that tidy up or pack: never the job's real work.
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


class _ShellTraps(_Traps):
    def __init__(self, text: str, name: str, context: Context) -> None:
        super().__init__(text, name, context)
        self.script = scan(text)
        self.lines = self.script.lines

    def check(self, text: str) -> None:
        at = text.find("\r\n")
        if at >= 0:
            self.add("crlf", text.count("\n", 0, at) + 1, name=self.name)
        self._continuations()
        self._second_start()
        self._hidden_by_pipe()
        self._hidden_status()
        self._bashisms()
        for command in self.script.commands:
            self._one_command(command)

    def _continuations(self) -> None:
        script = self.script
        for broken in script.breaks:
            cut = script.text(broken.next_line).strip() or "what follows"
            severity = Severity.ERROR if cut.startswith("-") else None
            self.add(f"continuation-{broken.kind}", broken.line, severity, cut=cut)
        explained = {broken.next_line for broken in script.breaks}
        for command in script.commands:
            option = command.words and re.match(r"--?[A-Za-z]", command.words[0])
            if option and command.line not in explained:
                self.add("continuation-option", command.line)
        for number in script.joins:
            cut = script.text(number + 1)
            before = script.text(number).rstrip().removesuffix("\\")
            if _STATEMENT.fullmatch(cut) and before.strip() and not _JOINED.search(before):
                self.add("continuation-swallow", number, cut=cut.strip())

    def _second_start(self) -> None:
        """Commands that fail when the script runs again in the same folder."""
        severity, when = None, "a script that starts again in the same folder comes here twice"
        if self.context.checkpointed:
            severity = Severity.WARNING
            when = "after a checkpoint the script starts again in the same folder"
        for command in self.script.commands:
            operands = command.operands()
            if not operands or self._guarded(command):
                continue
            if command.name == "mkdir" and not command.has_flag("p", "--parents"):
                sure = self.context.checkpointed and self._errexit() and self._stays(operands)
                self.add("mkdir", command.line, Severity.ERROR if sure else severity, when=when)
            elif command.name == "rm" and not command.has_flag("f", "--force"):
                self.add("rm", command.line, severity, when=when)
            elif command.name == "mv":
                gone = next(filter(self._is_input, operands[:-1]), None)
                if gone:
                    self.add("mv", command.line, severity, when=when, source=gone)

    def _stays(self, folders: list[str]) -> bool:
        """Whether these are folders of the job's own, which nothing in the script removes."""
        removers = self.script.calls("rm", "rmdir", "trap", "mv")
        removed = " ".join(word for command in removers for word in command.words)
        return not any(
            re.search(r"[$*`]|^/", name) or name.strip("/") in removed for name in folders
        )

    def _is_input(self, word: str) -> bool:
        base = base_name(word.rstrip("/"))
        return bool({base, word} & self.context.provided) or base.endswith(_ARCHIVES)

    def _guarded(self, command: ShellCommand) -> bool:
        if command.after == "||" or command.condition or {"if", "case"} & set(command.within):
            return True
        at = self.script.commands.index(command)
        tests = ("[", "[[", "test")
        before = self.script.commands[at - 1].name if at else ""
        return command.before in ("&&", "||") and before in tests

    def _errexit(self) -> bool:
        words = [word for command in self.script.calls("set") for word in command.arguments]
        first = self.script.text(1)
        words += re.findall(r"\s(-\w+)", first) if first.startswith("#!") else []
        grouped = [word for word in words if re.fullmatch(r"-[a-zA-Z]+", word)]
        return "errexit" in words or any("e" in word for word in grouped)

    def _hidden_status(self) -> None:
        script = self.script
        handled = any("$?" in " ".join((*c.words, *c.assignments)) for c in script.commands)
        if handled or self._errexit() or any("ERR" in c.words for c in script.calls("trap")):
            return
        top = [c for c in script.commands if not (c.nested or c.condition)]
        top = [c for c in top if "function" not in c.within]
        steps = [c for c in top if c.words and c.name not in _TRIVIAL]
        steps = [c for c in steps if c.after not in ("||", "&&", "|") and c.before != "||"]
        if not steps:
            return
        last = top[-1]
        work = [step for step in steps if step.name not in _CLEANUP and step is not last]
        tidies = (last.name in _CLEANUP or last.words == ["exit", "0"]) and not last.within
        if tidies and work and last.before != "&&":
            self.add("status", last.line, work=work[-1].name, at=work[-1].line)
        elif len(steps) > 1:
            self.add("errexit", steps[0].line, steps=len(steps))

    def _hidden_by_pipe(self) -> None:
        if any("pipefail" in command.arguments for command in self.script.calls("set")):
            return
        for command in self.script.commands:
            program = (unwrapped(command.words) or [""])[0]
            works = _WORK.match(base_name(program)) or program.startswith("./")
            if works and command.after == "|" and not command.nested and not command.condition:
                self.add("pipe", command.line, work=base_name(program))

    def _bashisms(self) -> None:
        words = self.script.text(1)[2:].split() if self.script.text(1).startswith("#!") else []
        shell = self.context.interpreter or (base_name(words[-1]) if words else "")
        if shell not in ("sh", "dash"):
            return
        for command in self.script.commands:
            pipefail = command.name == "set" and "pipefail" in command.arguments
            if pipefail or command.name in ("[[", "source", "pushd", "popd", "declare", "shopt"):
                word = "set -o pipefail" if pipefail else command.name
                self.add("bashism", command.line, word=word)
                return

    def _one_command(self, command: ShellCommand) -> None:
        words = unwrapped(command.words)
        program = base_name(words[0]) if words else ""
        fetch = fetch_of(words)
        if fetch:
            self.add(fetch.id, command.line, program=fetch.shown(words))
        if program in ("unzip", "zip", "7z", "unrar"):
            self.add("unzip", command.line, program=program)
        elif program == "tar" and _extracts(words):
            self.add("extract", command.line, waits=self.context.waits)
        if _WORK.match(program):
            self.findings += asked_workers(words, self.context.cpus, *self.at(command.line))
        if program not in ("echo", "printf"):
            self._paths(command, program)

    def _paths(self, command: ShellCommand, program: str) -> None:
        """The first path of a command that the node may not have."""
        looks = program in _TRIVIAL or self._guarded(command)  # ls /tmp, [ -d /scratch ]
        for word in (*command.words, *command.assignments, *command.targets):
            severity = None
            if HOME_FILE.search(word) or (program in ("source", ".") and HOME.search(word)):
                trap, path = "home-file", word
            elif far_path(word, self.context.contained):
                trap, path = "absolute-path", path_in(word)
            elif scratch_path(word) and (not looks or program == "export"):
                trap, path = "scratch-path", path_in(word)
                severity = Severity.HINT if TEMPORARY.search(word) else None
            else:
                continue
            self.add(trap, command.line, severity, path=path)
            return


def _extracts(words: list[str]) -> bool:
    if {"--extract", "--get"} & set(words):
        return True
    bundle = words[1] if len(words) > 1 and not words[1].startswith("--") else ""
    return "x" in bundle or any(re.fullmatch(r"-\w+", word) and "x" in word for word in words[2:])
