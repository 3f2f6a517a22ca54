"""The case that preflight judges: the job, the pool's limits, and the job's files as they are."""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

from headway.node.template import placeholders
from headway.pool.base import Limits
from headway.pool.preflight.findings import Context
from headway.pool.preflight.pytraps import uses_loader
from headway.pool.preflight.traps import read_script
from headway.pool.prepare import packed_files
from headway.spec import Job
from headway.spec.templates import filler

_MOST_SCRIPTS = 200
_OSPOOL_URL = re.compile(r"(?:[\w.-]+\+)?(?:osdf|stash)://+ospool/", re.I)


def in_ospool(url: str) -> bool:
    """Whether a URL names the OSPool's own part of the federation."""
    return _OSPOOL_URL.match(url) is not None


def put_where_cached(case: Case) -> str:
    """What to do with something large, in the words of the pool."""
    return "put it on OSDF, where it is cached" if case.ospool else "put it behind a URL"


class Case:
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
