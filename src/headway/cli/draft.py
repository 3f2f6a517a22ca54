"""What a script needs and writes, guessed by reading it; `headway init` puts it into job.toml."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from headway.pool.lint.script_traps import is_python, read_script
from headway.pool.prepare import packed_files

_GPU_MODULES = {"torch", "tensorflow", "jax", "lightning", "pytorch_lightning", "keras", "cupy"}
_RUNNERS = {".py": "python3", ".sh": "bash", ".bash": "bash", ".R": "Rscript", ".r": "Rscript"}
_RUNNERS |= {".jl": "julia", ".pl": "perl", ".rb": "ruby", ".js": "node", ".lua": "lua"}
_SHEBANG = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-S\s+)?)?(?:\S*/)?(?P<program>[\w.+-]+)")
_URL = re.compile(r"(?:https?|osdf|pelican)://[\w.-]+(?::\d+)?/[\w./%+~=-]*\w|osdf:///[\w./%+~=-]+")
_DATA = re.compile(
    r"\.(?:tar(?:\.\w+)?|tgz|zip|gz|bz2|xz|zst|npz?|h5|hdf5|csv|tsv|json|jsonl|parquet|pt|pth|bin"
    r"|safetensors|pkl|txt|onnx|arrow|lmdb|mat)\Z",
    re.IGNORECASE,
)
_SAVING = {"save", "savez", "savez_compressed", "savefig", "to_csv", "to_parquet", "to_json"}
_SAVING |= {"to_pickle", "save_file", "save_weights", "imsave", "imwrite", "savetxt", "dump"}
_WRITING = {"write_text", "write_bytes"}
_LITERAL_PATH = re.compile(r"[\w][\w./-]*\.[A-Za-z][\w]{0,11}\Z", re.ASCII)
_OUTPUT_OPTION = re.compile(
    r"--?(?:out\w*|output[-_]?\w*|save[-_]?\w*|results?[-_]?\w*|metrics|model)\Z"
)
_ABOVE = re.compile(r"(?:\./)?(?:\.\./)+[\w][\w. /-]*")
_WORD = re.compile(r"[\w./-]+", re.ASCII)


@dataclass
class Guess:
    """What a script seems to need and to write; the numbers are the lines that say so."""

    command: list[str]
    files: list[str]
    outputs: dict[str, int] = field(default_factory=dict)
    perhaps: dict[str, int] = field(default_factory=dict)  # written only under a condition
    above: dict[str, int] = field(default_factory=dict)  # paths outside the folder
    urls: dict[str, int] = field(default_factory=dict)
    gpu_module: str = ""
    file_bytes: int = 0  # of `files`, with all that is in their folders


def guess(script: Path) -> Guess:
    """Read a script, never run it."""
    text = read_script(script) or ""
    found = Guess(_command(script, text), [script.name])
    if is_python(text, script.name):
        _read_python(text, script, found)
    else:
        _read_text(text, script, found)
    for _, path in packed_files(tuple(found.files), script.parent):
        with contextlib.suppress(OSError):
            found.file_bytes += path.stat().st_size if path.is_file() else 0
    return found


def program_words(program: Path, name: str) -> list[str]:
    """The command for a program that HTCondor starts: the program, or its interpreter first.

    Args:
        program: the file; it may exist only on the node.
        name: what the job calls it.
    """
    if name.startswith("/") or ("/" not in name and not program.is_file()):
        return [name]
    text = read_script(program) or ""
    if os.access(program, os.X_OK) and (text.startswith("#!") or not text):
        return [f"./{name}"]
    return [*_command(program, text)[:-1], name] if text else [f"./{name}"]


def is_program(path: Path) -> bool:
    """Whether a node could start a file: by its ending, its first bytes or its mode."""
    if path.suffix in _RUNNERS or os.access(path, os.X_OK):
        return True
    try:
        with path.open("rb") as file:
            return file.read(4).startswith((b"#!", b"\x7fELF"))
    except OSError:
        return True  # reading it will give the error


def _command(script: Path, text: str) -> list[str]:
    shebang = _SHEBANG.match(text[:300])
    runner = _RUNNERS.get(script.suffix) or (shebang and shebang["program"])
    return [runner, script.name] if runner else [f"./{script.name}"]


def _read_python(text: str, script: Path, found: Guess) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _read_import(node, script, found)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            _read_literal(node.value, node.lineno, script, found)
    _Writes(tree, found).read()


def _read_import(node: ast.Import | ast.ImportFrom, script: Path, found: Guess) -> None:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = [node.module or "", *(names if node.level else [])]
    for name in names:
        top = name.split(".")[0]
        if top in _GPU_MODULES:
            found.gpu_module = found.gpu_module or top
        for file in (f"{top}.py", top) if top else ():
            path = script.with_name(file)
            is_module = path.is_file() or (path / "__init__.py").exists()
            if is_module and file not in found.files:
                found.files.append(file)


class _Writes:
    """Finds what a script writes under fixed names, always or only under a condition."""

    def __init__(self, tree: ast.Module, found: Guess) -> None:
        self.tree = tree
        self.found = found
        self.functions: dict[str, list[ast.AST]] = {}  # by name; of a class, what making one calls
        self.options: dict[str, tuple[str, int]] = {}  # --output with a fixed default, by its dest
        self.entered: set[tuple[str, bool]] = set()

    def read(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
                own = [m for m in methods if m.name.startswith("__") or m.name == "forward"]
                self.functions.setdefault(node.name, []).extend(own)
            elif isinstance(node, ast.Call):
                self._option(node)
        used = {each.attr for each in ast.walk(self.tree) if isinstance(each, ast.Attribute)}
        self._block(self.tree.body, sure=True)
        for name in self.functions:  # a function without a visible call may still be called
            self._enter(name, sure=False)
        for dest, (path, line) in self.options.items():
            written = path in self.found.outputs or path in self.found.perhaps
            if not written or dest not in used:
                _add_output(path, line, self.found.outputs)
        for path in self.found.outputs:
            self.found.perhaps.pop(path, None)

    def _block(self, nodes: Sequence[ast.AST], *, sure: bool) -> None:
        for node in nodes:
            self._visit(node, sure)

    def _visit(self, node: ast.AST, sure: bool) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return  # read where it is called
        if isinstance(node, ast.If):
            self._visit(node.test, sure)
            always = _is_main(node.test)
            both = _paths_in(node.body, self) & _paths_in(node.orelse, self) if sure else set()
            self._block(node.body, sure=sure and always)
            self._block(node.orelse, sure=False)
            for path in both:
                self.found.outputs.setdefault(path, self.found.perhaps.get(path, node.lineno))
        elif isinstance(node, (ast.ExceptHandler, ast.match_case, ast.IfExp)):
            self._block(list(ast.iter_child_nodes(node)), sure=False)
        else:
            if isinstance(node, ast.Call):
                for text, line in self.writes(node):
                    _add_output(text, line, self.found.outputs if sure else self.found.perhaps)
                self._enter(_called(node), sure)
            elif isinstance(node, ast.Name):  # passed as an argument, as in spawn(main)
                self._enter(node.id, sure)
            self._block(list(ast.iter_child_nodes(node)), sure=sure)

    def _enter(self, name: str, sure: bool) -> None:
        """Read a function or a method of this name, if the script has one."""
        if name not in self.functions or {(name, sure), (name, True)} & self.entered:
            return
        self.entered.add((name, sure))
        for function in self.functions[name]:
            self._block(getattr(function, "body", []), sure=sure)

    def _option(self, node: ast.Call) -> None:
        texts = [_text(argument) or "" for argument in node.args]
        if _called(node) != "add_argument" or not any(map(_OUTPUT_OPTION.match, texts)):
            return
        long = next((text for text in texts if text.startswith("--")), texts[0])
        for keyword in node.keywords:
            value = keyword.value
            if isinstance(value, ast.Call) and len(value.args) == 1:
                value = value.args[0]  # Path("model.pt")
            path = _text(value)
            if keyword.arg == "default" and path:
                self.options[long.lstrip("-").replace("-", "_")] = (path, node.lineno)

    def writes(self, node: ast.Call) -> Iterator[tuple[str | None, int]]:
        """The fixed names that a call writes to."""
        called = _called(node)
        texts = [self._path(argument) for argument in node.args]
        if called == "open" and len(texts) > 1 and set(texts[1] or "") & set("wax"):
            yield texts[0], node.lineno
        elif called in _SAVING:
            yield from ((text, node.lineno) for text in texts[:2])
        elif called in _WRITING and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Call) and len(of.args) == 1:
                yield self._path(of.args[0]), node.lineno
            else:
                yield self._path(of), node.lineno

    def _path(self, node: ast.expr) -> str | None:
        """A literal, or the default of the option that `args.output` is."""
        if isinstance(node, ast.Attribute) and node.attr in self.options:
            return self.options[node.attr][0]
        return _text(node)


def _paths_in(nodes: Sequence[ast.AST], writes: _Writes) -> set[str]:
    """What a branch writes under names that can be outputs."""
    found: dict[str, int] = {}
    calls = (call for node in nodes for call in ast.walk(node) if isinstance(call, ast.Call))
    for path, line in chain.from_iterable(map(writes.writes, calls)):
        _add_output(path, line, found)
    return set(found)


def _is_main(test: ast.expr) -> bool:
    """Whether it is `if __name__ == "__main__":`, which is true in a job's script."""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _add_output(path: str | None, line: int, to: dict[str, int]) -> None:
    if path and _LITERAL_PATH.match(path) and ".." not in path.split("/"):
        to.setdefault(path.removeprefix("./"), line)


def _read_literal(text: str, line: int, script: Path, found: Guess) -> None:
    for url in _URL.findall(text):
        if _DATA.search(url):
            found.urls.setdefault(url, line)
    if _ABOVE.fullmatch(text):
        found.above.setdefault(text, line)
    if _LITERAL_PATH.match(text) and text not in found.files and text not in found.outputs:
        path = script.parent / text
        if ".." not in text.split("/") and path.is_file() and path.name != "job.toml":
            found.files.append(text)


def _read_text(text: str, script: Path, found: Guess) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        code = line.partition("#")[0] if not line.startswith("#!") else ""
        for url in _URL.findall(code):
            found.urls.setdefault(url, number)
        for word in _WORD.findall(_URL.sub(" ", code)):
            if _ABOVE.fullmatch(word):
                found.above.setdefault(word, number)
            name = word.removeprefix("./")
            inside = not name.startswith(("/", "-", ".")) and ".." not in name.split("/")
            if inside and (script.parent / name).is_file() and name not in found.files:
                found.files.append(name)
        if re.search(r"\bpython3?\b|\btorchrun\b", code) and not found.gpu_module:
            _read_called(script, found)


def _read_called(script: Path, found: Guess) -> None:
    """A shell script that starts a Python script needs what that one needs."""
    for file in found.files[1:]:
        if file.endswith(".py"):
            inner = Guess([], [])
            _read_python(read_script(script.parent / file) or "", script.parent / file, inner)
            found.gpu_module = found.gpu_module or inner.gpu_module
            for name in ("outputs", "perhaps", "above"):
                for path, line in getattr(inner, name).items():
                    getattr(found, name).setdefault(path, line)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def name_of(text: str) -> str:
    """A name that a run can have."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".- ")
    return plain[:80].rstrip(".- ") or "job"
