"""`headway init`: a first job.toml for a script."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.commands import OK
from headway.cli.parser import Parser
from headway.cli.terminal import near, print_json, print_stderr
from headway.errors import Problem, SpecError
from headway.text import many, printable

if TYPE_CHECKING:
    from headway.cli.convert import Converted
    from headway.cli.draft import Guess
    from headway.pool.lint.evaluate import SkippedLine

# Bytes of disk: for what a command writes, for models and their checkpoints, the step of a
# request, and what is too little to mention.
_ROOM, _ROOM_WITH_MODELS, _STEP, _LITTLE = 10**9, 2 * 10**9, 10**8, 10**7
_MOST_ROWS = 30  # of a table in job.toml itself


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "SCRIPT | JOB.SUB",
        "Write a commented job.toml next to a script or an HTCondor submit file. For a script,"
        " Headway guesses the command, the files and the outputs by reading it; what is uncertain"
        " becomes a comment. A submit file is converted; what job.toml cannot express becomes a"
        " comment with the reason. headway init runs nothing, and never changes a job.toml that"
        " exists.",
        [
            ("headway init train.py", "writes job.toml next to train.py"),
            ("headway init code/train.sh", "writes code/job.toml"),
            ("headway init train.sub", "converts the submit file to a job.toml"),
        ],
    )
    made.argument("script", "SCRIPT", "the script, or the submit file")
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.convert import is_submit_file

    path = Path(arguments.script)
    skipped: list[SkippedLine] = []
    if path.is_file() and is_submit_file(path):
        target, text, made = convert_file(path)
        skipped = made.skipped
        more = {"left": [asdict(each) for each in skipped], "notes": made.notes}
    else:
        (target, text), more = write_job_toml(path), {}
    if arguments.json:
        print_json({"path": str(target), "text": text, **more})
        return OK
    shown = near(target.absolute())
    print(f"wrote {shown}; read through it, then run it:\n  headway run {shown}", flush=True)
    if skipped:
        print_stderr(f"not converted, and why ({many(len(skipped), 'line')}):")
    for each in skipped:
        where = f"{path.name}:{each.line}: " if each.line else ""
        print_stderr(f"  {printable(where + each.text)}\n    {printable(each.reason)}")
    return OK


def write_job_toml(script: Path) -> tuple[Path, str]:
    """Write a job.toml next to a script, atomically, and never over another file."""
    from headway.cli.draft import guess, is_program

    if not script.is_file():
        what = "is a folder" if script.is_dir() else "there is no such file"
        raise SpecError([Problem(str(script), what, "name the script that the job runs")])
    if not is_program(script):
        what = "is neither a script nor a submit file: no interpreter is known for it"
        remedy = "name a script; make it executable, or let it begin with #!"
        raise SpecError([Problem(str(script), what, remedy)])
    target = script.with_name("job.toml")
    _refuse_to_overwrite(target)
    text = job_toml(script.name, guess(script))
    _write_new(target, text, 0o644)
    return target, text


def convert_file(path: Path) -> tuple[Path, str, Converted]:
    """Convert a submit file to a job.toml, with a CSV file next to it if there are many rows.

    Returns:
        The job.toml, its text, and what became of the lines.

    Raises:
        ConversionError: the file cannot be converted; then nothing is written.
    """
    from headway.cli.convert import convert, folder_of

    base = folder_of(path, Path())
    target = base / "job.toml"
    _refuse_to_overwrite(target)
    made = convert(path, base)
    mode = path.stat().st_mode & 0o666  # readable by the same users as the original
    rows = None
    if made.rows[0] and len(made.rows) > _MOST_ROWS:
        rows = base / f"{made.document['name']}.rows.csv"
        _write_new(rows, csv_of(made.rows), mode)
    try:
        text = converted_toml(made, rows.name if rows else None)
        _write_new(target, text, mode)
    except BaseException:
        if rows is not None:
            rows.unlink()
        raise
    return target, text, made


def _refuse_to_overwrite(target: Path) -> None:
    if os.path.lexists(target):
        remedy = "edit it, or move it away and try again"
        raise SpecError([Problem(str(target), "exists already", remedy)])


def _write_new(target: Path, text: str, mode: int) -> None:
    """Write a file atomically and over no other; a job.toml is loaded once to check it."""
    from headway.node.files import write_atomically
    from headway.spec import load_job

    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write_atomically(draft, text.encode(), mode)
        if target.name == "job.toml":
            load_job(draft)
        os.link(draft, target)
    except FileExistsError:
        _refuse_to_overwrite(target)
        raise
    except OSError as error:
        raise SpecError([Problem(str(target), f"cannot be written: {error.strerror}")]) from error
    finally:
        draft.unlink(missing_ok=True)


def job_toml(script: str, found: Guess) -> str:
    """The text of the file."""
    from headway.cli.draft import name_of

    words = (word.replace("{", "{{").replace("}", "}}") for word in found.command)
    command = ", ".join(map(quoted, words))
    gpu = f"the script uses {found.gpu_module}" if found.gpu_module else "if it uses a GPU"
    parts = [
        f"# How Headway runs {one_line(script)}. Run it here: headway run job.toml\n"
        f"# On HTCondor: headway run job.toml --pool htcondor\n",
        f"name = {quoted(name_of(Path(script).stem))}",
        f"command = [{command}]  # with its arguments, as words",
        "\n# The files of this folder that the job needs; they are packed at submit.\n"
        f"files = [{', '.join(quoted(name) for name in found.files)}]",
        "\n# Many jobs: one per row of a table, whose columns fill {placeholders} in the command.\n"
        '# table = "parameters.csv"',
        _resources(found),
        f'\n# Uncomment ({gpu}):\n# [resources.gpus]\n# count = 1\n# memory = "8 GB"',
        _inputs(found),
        _outputs(found),
        "\n# A command that saves its state and exits with 85 continues from there when evicted.\n"
        '# [checkpoint]\n# paths = ["checkpoint.pt"]\n# interval = "1 h"',
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _resources(found: Guess) -> str:
    """The requests, and how the one for disk was estimated, so that the user can correct it."""
    from headway.spec import format_size

    room = _ROOM_WITH_MODELS if found.gpu_module else _ROOM
    twice = 2 * found.file_bytes
    disk, files = room, ""
    if twice > _LITTLE:
        disk += -(-twice // _STEP) * _STEP
        files = f"{format_size(found.file_bytes)} of files, packed and unpacked, and "
    what = "models and checkpoints" if found.gpu_module else "what the command writes"
    lines = [
        "\n# What the command may use; HTCondor stops a job that takes more.",
        f"# disk: {files}{format_size(room)} for {what}.",
    ]
    for url, line in found.urls.items():
        name = one_line(url.rpartition("/")[2])
        lines.append(f"# Add the size of {name}, which line {line} fetches.")
    lines += ["[resources]", "cpus = 1", 'memory = "4 GB"', f'disk = "{disk / 10**9:g} GB"']
    return "\n".join(lines)


def _inputs(found: Guess) -> str:
    lines: list[str] = []
    for path, line in found.above.items():
        name = path.rstrip("/").rpartition("/")[2]
        lines += [
            f"\n# Line {line} names {one_line(path)}, which is outside the job's folder: on a"
            f" node nothing is there.\n# Let the script read {one_line(name)} instead, and copy the"
            " file into this folder and add it to\n# `files`; or, if it is large, put it"
            " behind a URL (`headway publish`) and declare it as an input."
        ]
    lines += ["\n# Data that Headway fetches and verifies before the command starts."]
    urls = {url: f"  # line {line} fetches it" for url, line in found.urls.items()}
    for url, why in (urls or {"https://example.org/data.tar": ""}).items():
        lines += [f"# [[inputs]]{why}", f"# url = {quoted(url)}", '# checksum = "sha256:…"']
    return "\n".join(lines)


def _outputs(found: Guess) -> str:
    lines = ["\n# What the command leaves behind; a job without it counts as failed."]
    for path, line in found.outputs.items():
        lines += [f"[[outputs]]  # line {line} writes it", f"path = {quoted(path)}"]
    for path, line in found.perhaps.items():
        lines += [f"# [[outputs]]  # line {line} writes it, but only under a condition"]
        lines += [f"# path = {quoted(path)}"]
    if not found.outputs and not found.perhaps:
        lines += ["# [[outputs]]", '# path = "model.pt"']
    return "\n".join(lines)


def converted_toml(made: Converted, table: str | None) -> str:
    """The text of the file.

    Args:
        made: what `convert` gave.
        table: the name of the CSV file that holds the rows; None: they stand in the text.
    """
    document = made.document
    lines = [
        f"# What {one_line(made.name)} describes. Run it here: headway run job.toml",
        "# On HTCondor: headway run job.toml --pool htcondor",
        *(f"# Note: {one_line(note)}." for note in dict.fromkeys(made.notes)),
        "",
    ]
    before = ("name", "command", "files", "container", "environment")
    after = ("grace", "duration", "time_limit", "requirements")
    lines += _pairs({key: document[key] for key in before if key in document})
    lines += _table(made, table)
    lines += _pairs({key: document[key] for key in after if key in document})
    for key in ("resources", "checkpoint", "retries", "submit"):
        if key in document:
            lines += ["", f"[{key}]", *_pairs(document[key])]
    for key in ("inputs", "outputs"):
        for item in document.get(key, ()):
            line = made.guessed.get(item.get("path"))
            why = f"  # line {line} of a script writes it" if key == "outputs" and line else ""
            lines += ["", f"[[{key}]]{why}", *_pairs(item)]
    if "outputs" not in document:
        lines += ["", "# What the command leaves behind; a job without it counts as failed."]
        lines += ["# [[outputs]]", '# path = "model.pt"']
    lines += _comments(made)
    return "\n".join(lines) + "\n"


def csv_of(rows: Sequence[dict[str, str]]) -> str:
    """The rows as a CSV file that `table` reads."""
    import csv
    import io

    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return out.getvalue()


def _table(made: Converted, table: str | None) -> list[str]:
    if table is not None:
        return [f"table = {_toml(table)}  # one job a row"]
    if made.rows[0]:
        rows = (f"  {_toml(row)}," for row in made.rows)
        return ["table = [  # one job a row", *rows, "]"]
    return [f"count = {len(made.rows)}"] if len(made.rows) > 1 else []


def _comments(made: Converted) -> list[str]:
    lines: list[str] = []
    if made.skipped:
        lines += ["", f"# Not converted from {one_line(made.name)}; check each of these:"]
    for each in made.skipped:
        where = f"line {each.line}: " if each.line else ""
        lines += [f"# {where}{one_line(each.text)}", f"#   {one_line(each.reason)}"]
    if made.own:
        lines += ["", "# What Headway does itself:"]
    lines += [f"# line {e.line}: {one_line(e.text)}  ({one_line(e.reason)})" for e in made.own]
    return lines


def _pairs(table: dict[str, Any]) -> list[str]:
    nested_last = sorted(table.items(), key=lambda item: isinstance(item[1], dict))
    return [f"{_key(key)} = {_toml(value)}" for key, value in nested_last]


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quoted(key)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(v)}" for key, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return quoted(value)


def one_line(text: str) -> str:
    """A text that is safe in a comment."""
    return "".join(char if char.isprintable() else "?" for char in text)


def quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\u{ord(m[0]):04x}", escaped) + '"'
