"""Known traps in the scripts of a job, whatever language they are in.

Those of Python scripts are found here, in the syntax tree: comments and strings raise no alarm.
Those of shell scripts are in `shell_traps`; `traps` has the table of them all.
"""

from __future__ import annotations

import ast
import platform
import re
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path

from headway.pool.lint.shell_traps import WORKER_OPTION, is_shell, shebang_traps, shell_traps
from headway.pool.lint.traps import (
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
)
from headway.text import many

_MOST_LINES, _LONGEST_LINE = 20_000, 500
LONGEST_SCRIPT = 2_000_000  # bytes; what is longer was not written by hand
# Dotted names of calls, as regular expressions, and the trap that each of them is.
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


def script_traps(text: str, name: str, context: Context | None = None) -> list[LintFinding]:
    """The traps of a script; a language that is not known has those of its first line alone."""
    context = context or Context()
    if is_python(text, name):
        return python_traps(text, name, context)
    if is_shell(text, name) or context.interpreter:
        return shell_traps(text, name, context)
    return [*shebang_traps(text, name, context), *plain_paths(text, name, context)]


def plain_paths(text: str, name: str, context: Context) -> Iterator[LintFinding]:
    """Paths of another machine in a text whose language is not known: a hint on each such line."""
    for number, line in enumerate(text.split("\n")[:_MOST_LINES], 1):
        if line.lstrip()[:1] in ("#", "%", ";") or line.lstrip().startswith("//"):
            continue
        for word in re.split(r"[\s\"'`()\[\]{},;<>]+", line[:_LONGEST_LINE]):
            far = far_path(word, context.contained) and not word.startswith("~")
            if far or scratch_path(word):
                trap = "absolute-path" if far else "scratch-path"
                where, path = f"{name}:{number}", path_in(word)
                yield found(trap, where, line[:_LONGEST_LINE], Severity.HINT, path=path)
                break


def is_python(text: str, name: str) -> bool:
    """Whether a file is a Python script, by its name or its first line."""
    return name.endswith(".py") or (text.startswith("#!") and "python" in text.split("\n", 1)[0])


def read_script(path: Path) -> str | None:
    """The text of a script, or None if the file is no text or cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > LONGEST_SCRIPT:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in data else data.decode("utf-8", errors="replace")


def python_traps(text: str, name: str, context: Context) -> list[LintFinding]:
    """Every trap in a Python script called `name`, in the order of its lines."""
    traps = shebang_traps(text, name, context)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a script's odd escapes are not ours to report
            tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        line = getattr(problem, "lineno", None) or 1
        reason = getattr(problem, "msg", "") or str(problem)
        shown = (text.split("\n")[line - 1 : line] or [""])[0]
        version = ".".join(platform.python_version_tuple()[:2])
        return [*traps, found("syntax", f"{name}:{line}", shown, version=version, reason=reason)]
    visitor = _Visitor(text.split("\n"), name, context)
    visitor.visit(tree)
    traps += visitor.traps
    return sorted(traps, key=lambda trap: int(trap.where.rpartition(":")[2]))


def worker_options(text: str) -> set[str]:
    """The options by which a script takes the number of its loader processes: `-j`, `--workers`."""
    found: set[str] = set()
    for match in re.finditer(r"add_argument\(([^)=]*)", text):
        options = re.findall(r"[\"'](--?[\w-]+)[\"']", match[1])
        if any(WORKER_OPTION.fullmatch(option) for option in options):
            found.update(options)
    return found


def _is_given(options: list[str], arguments: tuple[str, ...]) -> bool:
    return any(
        word.partition("=")[0] == option
        or (len(option) == 2 and re.fullmatch(re.escape(option) + r"\d+", word))
        for word in arguments
        for option in options
    )


def uses_loader(text: str) -> bool:
    """Whether a script feeds its model through a loader with worker processes."""
    return bool(re.search(r"\bDataLoader\s*\(|\bnum_workers\b", text))


class _Visitor(ast.NodeVisitor):
    def __init__(self, lines: list[str], name: str, context: Context) -> None:
        self.lines = lines
        self.name = name
        self.context = context
        self.traps: list[LintFinding] = []
        self.modules: dict[str, str] = {}  # local name -> dotted name, from imports
        self.guards = 0  # if and try around the current node

    # -- structure

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self.modules[alias.asname] = alias.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.modules[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"

    def visit_If(self, node: ast.If) -> None:
        self._guarded(node)

    def visit_Try(self, node: ast.Try) -> None:
        self._guarded(node)

    def _guarded(self, node: ast.AST) -> None:
        self.guards += 1
        self.generic_visit(node)
        self.guards -= 1

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
            self._add("home-file", node, path=node.value)
        elif node.value[:1] != "/" or any(char in node.value for char in " \t<>|"):
            return  # a sentence, or a path of the job's own
        elif far_path(node.value, self.context.contained):
            self._add("absolute-path", node, path=path_in(node.value))
        elif scratch_path(node.value) and not self.guards:
            severity = Severity.HINT if TEMPORARY.match(node.value) else None
            self._add("scratch-path", node, severity, path=path_in(node.value))

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _text(target.slice) == "CUDA_VISIBLE_DEVICES":
                self._add("visible-devices", node)
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
                self._add(trap, node, call=short, program=short, waits=waits)
        self._weights(node, called, keywords)
        self._datasets(node, called, keywords)
        self._workers(node, called, keywords)
        self._folders(node, called, keywords)
        if _RUNNERS.fullmatch(called) and node.args:
            words = _command_words(node.args[0])
            fetch = fetch_of(words)
            if fetch:
                self._add(fetch.id, node, program=fetch.shown(words))
        if called == "torch.cuda.set_device" or called.endswith(".cuda"):
            index = (_number(node.args[0]) or 0) if node.args else 0
            self._gpu_index(node, f"{_short(called)}({index})", index)
        self.generic_visit(node)

    def _weights(self, node: ast.Call, called: str, keywords: dict[str, ast.expr]) -> None:
        last = called.rpartition(".")[2]
        if _is_true(keywords.get("pretrained")):
            self._add("weights", node, call=f"{_short(called)}(pretrained=True)")
        elif self._named_weights(keywords.get("weights")):
            self._add("weights", node, call=f"{_short(called)}(weights=…)")
        elif called == "torch.hub.load" and _text(keywords.get("source")) != "local":
            self._add("weights", node, call=called)
        elif last == "from_pretrained" and not _is_true(keywords.get("local_files_only")):
            wanted = _text(node.args[0]) if node.args else None
            if wanted is not None and not self._is_here(wanted):
                self._add("weights", node, call=f'{_short(called)}("{wanted}")')

    def _named_weights(self, value: ast.expr | None) -> bool:
        if isinstance(value, ast.Attribute):
            return any(part.endswith("Weights") for part in self._dotted(value).split("."))
        text = _text(value)
        return text is not None and _WEIGHTS.fullmatch(text) is not None

    def _datasets(self, node: ast.Call, called: str, keywords: dict[str, ast.expr]) -> None:
        if _is_true(keywords.get("download")):
            self._add("dataset", node, call=f"{_short(called)}(download=True)")
        elif called in ("datasets.load_dataset", "load_dataset") and node.args:
            wanted = _text(node.args[0])
            files = _text(keywords.get("data_files")) or ""
            local = wanted in _LOCAL_BUILDERS and "://" not in files
            if wanted is not None and not local and not self._is_here(wanted):
                self._add("dataset", node, call=f'load_dataset("{wanted}")')

    def _workers(self, node: ast.Call, called: str, keywords: dict[str, ast.expr]) -> None:
        cpus = self.context.cpus
        number = keywords.get("num_workers")
        if called.endswith(".add_argument") or called == "add_argument":
            options = [_text(argument) or "" for argument in node.args]
            if any(WORKER_OPTION.fullmatch(option) for option in options):
                if _is_given(options, self.context.arguments):
                    return  # the command's word counts, and is looked at with the command
                number = keywords.get("default")
        if isinstance(number, ast.Call):
            counter = self._dotted(number.func)
            if counter in ("os.cpu_count", "multiprocessing.cpu_count"):
                self._add("cpu-count", number)
            return
        workers = _number(number)
        if number is not None and workers is not None and cpus and workers > cpus:
            # One worker beside the main process is the usual choice even on one cpu.
            severity = Severity.HINT if workers <= cpus + 1 else None
            self._add("workers", number, severity, workers=workers, cpus=many(cpus, "cpu"))

    def _folders(self, node: ast.Call, called: str, keywords: dict[str, ast.expr]) -> None:
        if not self.context.checkpointed or self.guards or _is_true(keywords.get("exist_ok")):
            return
        if called in ("os.mkdir", "os.makedirs") or (called.endswith(".mkdir") and not node.args):
            self._add("makedirs", node, call=_short(called))

    def _gpu_index(self, node: ast.expr, device: str, index: int) -> None:
        gpus = self.context.gpus or 1
        if index >= gpus:
            severity = Severity.HINT if self.guards else None  # `if device_count() > 1:`
            of_gpus = many(gpus, "GPU")
            self._add("gpu-index", node, severity, device=device, gpus=of_gpus)

    def _is_here(self, wanted: str) -> bool:
        path = wanted.removeprefix("./").rstrip("/")
        brought = any(path == name or path.startswith(f"{name}/") for name in self.context.provided)
        return brought or wanted.startswith((".", "/"))

    # -- helpers

    def _dotted(self, node: ast.expr) -> str:
        """`resnet50` after `from torchvision.models import resnet50` is the full name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.modules.get(node.id, node.id))
        elif isinstance(node, ast.Call):
            parts.append(self._dotted(node.func))
        else:
            parts.append("?")
        return ".".join(reversed(parts))

    def _add(
        self, id: str, node: ast.expr | ast.stmt, severity: Severity | None = None, **words: object
    ) -> None:
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        self.traps.append(found(id, f"{self.name}:{node.lineno}", line, severity, **words))


def _writes(node: ast.Call) -> bool:
    """`ZipFile(name, "w")` packs; nothing is missing for that."""
    mode = next((k.value for k in node.keywords if k.arg == "mode"), None)
    return (_text(mode or (node.args[1] if len(node.args) > 1 else None)) or "r") in ("w", "a", "x")


def _short(called: str) -> str:
    return ".".join(called.split(".")[-2:]).removeprefix("?.")


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _number(node: ast.expr | None) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _command_words(node: ast.expr) -> list[str]:
    """The words of a command given as a string or a list; what is computed is `?`."""
    if isinstance(node, ast.JoinedStr):
        texts = [_text(part) if isinstance(part, ast.Constant) else "?" for part in node.values]
        return _split("".join(text or "" for text in texts))
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_word(element) for element in node.elts]
    return _split(_text(node) or "")


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and node.attr == "executable":
        return "python3"
    return _text(node) or "?"


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
