"""`headway init`: a first job.toml for a script."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli import OK
from headway.cli.parser import Parser

if TYPE_CHECKING:
    from headway.cli.draft import Guess


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "SCRIPT",
        "Write a commented job.toml next to a script. The command, the files and the outputs are\n"
        "guessed by reading the script, which is not run; what is uncertain stays a comment.\n"
        "A job.toml that is already there is never touched.",
        [
            ("headway init train.py", "writes job.toml beside train.py"),
            ("headway init code/train.sh", "writes code/job.toml"),
        ],
    )
    made.add_argument("script", metavar="SCRIPT", help="the script to run as a job")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.show import near, print_json

    script = Path(arguments.script)
    target, text = write_job_toml(script)
    if arguments.json:
        print_json({"path": str(target), "text": text})
    else:
        print(f"{near(target.absolute())} is written; look through it, then:")
        print(f"  headway run {near(target.absolute())}")
    return OK


def write_job_toml(script: Path) -> tuple[Path, str]:
    """Write job.toml beside a script, whole or not at all, and never over another."""
    from headway.cli.draft import guess
    from headway.errors import Problem, SpecError
    from headway.pool.folder import write_atomically
    from headway.spec import load_job

    if not script.is_file():
        what = "is a folder" if script.is_dir() else "there is no such file"
        raise SpecError([Problem(str(script), what, "name the script that the job shall run")])
    target = script.with_name("job.toml")
    there = Problem(str(target), "exists already", "edit it, or move it away and try again")
    if os.path.lexists(target):
        raise SpecError([there])
    text = job_toml(script.name, guess(script))
    draft = script.with_name(f".job.toml.{os.getpid()}")
    try:
        write_atomically(draft, text.encode())
        load_job(draft)  # what is handed out must be good
        os.link(draft, target)
    except FileExistsError:
        raise SpecError([there]) from None
    except OSError as error:
        raise SpecError([Problem(str(target), f"cannot be written: {error.strerror}")]) from error
    finally:
        draft.unlink(missing_ok=True)
    return target, text


def job_toml(script: str, found: Guess) -> str:
    """The text of the file."""
    parts = [
        f"# How Headway runs {_one_line(script)}. Run it here: headway run job.toml\n"
        f"# On HTCondor: headway run job.toml --pool htcondor\n",
        f"name = {_quoted(_name(script))}",
        _command(found),
        "\n# What the job needs from this folder, as it is at submit.\n"
        f"files = [{', '.join(_quoted(name) for name in found.files)}]",
        "\n# Many jobs: one per row of a table, whose columns fill {placeholders} in the command.\n"
        '# table = "parameters.csv"',
        "\n# What the command may use; the pool stops it where it takes more.\n"
        '[resources]\ncpus = 1\nmemory = "4 GB"\ndisk = "10 GB"',
        _gpus(found),
        _inputs(found),
        _outputs(found),
        "\n# A command that saves its state and exits with 85 goes on from there when evicted.\n"
        '# [checkpoint]\n# paths = ["checkpoint.pt"]\n# interval = "1 h"',
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _command(found: Guess) -> str:
    words = ", ".join(_quoted(word.replace("{", "{{").replace("}", "}}")) for word in found.command)
    return f"command = [{words}]  # with its arguments, as words"


def _gpus(found: Guess) -> str:
    why = f"the script uses {found.gpu_module}" if found.gpu_module else "if it uses a GPU"
    return f'\n# Uncomment ({why}):\n# [resources.gpus]\n# count = 1\n# memory = "8 GB"'


def _inputs(found: Guess) -> str:
    lines = ["\n# Data that is fetched, and proven whole, before the command starts."]
    for url, line in found.urls.items():
        lines += [f"# [[inputs]]  # line {line} fetches it", f"# url = {_quoted(url)}"]
        lines += ['# checksum = "sha256:…"']
    if not found.urls:
        lines += ["# [[inputs]]", '# url = "https://example.org/data.tar"']
        lines += ['# checksum = "sha256:…"']
    return "\n".join(lines)


def _outputs(found: Guess) -> str:
    lines = ["\n# What the command leaves behind; a job without it counts as failed."]
    for path, line in found.outputs.items():
        lines += [f"[[outputs]]  # line {line} writes it", f"path = {_quoted(path)}"]
    if not found.outputs:
        lines += ["# [[outputs]]", '# path = "model.pt"']
    return "\n".join(lines)


def _name(script: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(script).stem).strip(".- ")
    return stem[:80].rstrip(".- ") or "job"


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\u{ord(m[0]):04x}", escaped) + '"'
