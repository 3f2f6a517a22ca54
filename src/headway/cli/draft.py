"""A first job.toml for a script: what can be read off it is filled in, the rest is explained."""

from __future__ import annotations

import ast
import os
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from headway.pool.preflight.traps import is_python, read_script

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
_WORD = re.compile(r"[\w./-]+", re.ASCII)


@dataclass
class Guess:
    """What a script seems to need and to leave behind; each with the line that says so."""

    command: list[str]
    files: list[str]
    outputs: dict[str, int] = field(default_factory=dict)
    urls: dict[str, int] = field(default_factory=dict)
    gpu_module: str = ""


def guess(script: Path) -> Guess:
    """Read a script, never run it."""
    text = read_script(script) or ""
    found = Guess(_command(script, text), [script.name])
    if is_python(text, script.name):
        _read_python(text, script, found)
    else:
        _read_text(text, script, found)
    return found


def program_words(program: Path, name: str) -> list[str]:
    """How a program that HTCondor starts by itself is started: so, or by its interpreter.

    Args:
        program: the file, which may be one of the node's.
        name: what the job calls it.
    """
    if name.startswith("/") or ("/" not in name and not program.is_file()):
        return [name]
    text = read_script(program) or ""
    if os.access(program, os.X_OK) and (text.startswith("#!") or not text):
        return [f"./{name}"]
    return [*_command(program, text)[:-1], name] if text else [f"./{name}"]


def _command(script: Path, text: str) -> list[str]:
    runner = _RUNNERS.get(script.suffix)
    shebang = _SHEBANG.match(text)
    if runner is None and shebang:
        runner = shebang["program"]
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
        elif isinstance(node, ast.Call):
            _read_call(node, found)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            _read_literal(node.value, node.lineno, script, found)


def _read_import(node: ast.Import | ast.ImportFrom, script: Path, found: Guess) -> None:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [node.module or ""] + ([alias.name for alias in node.names] if node.level else [])
    for name in names:
        top = name.split(".")[0]
        if top in _GPU_MODULES:
            found.gpu_module = found.gpu_module or top
        for beside in (f"{top}.py", top) if top else ():
            there = script.with_name(beside)
            is_module = there.is_file() or (there / "__init__.py").exists()
            if is_module and beside not in found.files:
                found.files.append(beside)


def _read_call(node: ast.Call, found: Guess) -> None:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if isinstance(node.func, ast.Name):
        called = node.func.id
    texts = [_text(argument) for argument in node.args]
    if called == "open" and len(texts) > 1 and set(texts[1] or "") & set("wax"):
        _add_output(texts[0], node.lineno, found)
    elif called in _SAVING:
        for text in texts[:2]:
            _add_output(text, node.lineno, found)
    elif called in _WRITING and isinstance(node.func, ast.Attribute):
        of = node.func.value
        if isinstance(of, ast.Call) and len(of.args) == 1:
            _add_output(_text(of.args[0]), node.lineno, found)
    elif called == "add_argument" and any(_OUTPUT_OPTION.match(text or "") for text in texts):
        for keyword in node.keywords:
            if keyword.arg == "default":
                value = keyword.value
                if isinstance(value, ast.Call) and len(value.args) == 1:
                    value = value.args[0]
                _add_output(_text(value), node.lineno, found)


def _add_output(path: str | None, line: int, found: Guess) -> None:
    if path and _LITERAL_PATH.match(path) and ".." not in path.split("/"):
        found.outputs.setdefault(path.removeprefix("./"), line)


def _read_literal(text: str, line: int, script: Path, found: Guess) -> None:
    for url in _URL.findall(text):
        if _DATA.search(url):
            found.urls.setdefault(url, line)
    if _LITERAL_PATH.match(text) and text not in found.files and text not in found.outputs:
        there = script.parent / text
        if ".." not in text.split("/") and there.is_file() and there.name != "job.toml":
            found.files.append(text)


def _read_text(text: str, script: Path, found: Guess) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        code = line.partition("#")[0] if not line.startswith("#!") else ""
        for url in _URL.findall(code):
            found.urls.setdefault(url, number)
        for word in _WORD.findall(_URL.sub(" ", code)):
            name = word.removeprefix("./")
            inside = not name.startswith(("/", "-", ".")) and ".." not in name.split("/")
            if inside and (script.parent / name).is_file() and name not in found.files:
                found.files.append(name)
        if re.search(r"\bpython3?\b|\btorchrun\b", code) and not found.gpu_module:
            _gpu_of_called(script, found)


def _gpu_of_called(script: Path, found: Guess) -> None:
    """A shell script that starts a Python script needs what that one needs."""
    for name in found.files[1:]:
        if name.endswith(".py"):
            inner = Guess([], [])
            _read_python(read_script(script.parent / name) or "", script.parent / name, inner)
            found.gpu_module = found.gpu_module or inner.gpu_module
            for path, line in inner.outputs.items():
                found.outputs.setdefault(path, line)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
