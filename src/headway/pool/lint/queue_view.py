"""A submit description at one `queue`, with the values and files that the checks need.

Paths are those that condor_submit uses: inputs are relative to `initialdir`, which, like the
executable, is relative to the folder in which condor_submit is called. The folder of the submit
file does not matter.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from headway.pool.lint.case import in_ospool
from headway.pool.lint.evaluate import Description, is_known, plain
from headway.pool.lint.submit_file import (
    SubmitFile,
    canonical,
    split_arguments,
    split_environment,
    split_files,
)

MOST_JOBS = 2000  # of a queue: the values of more are not checked
_MOST_ROWS = 200  # whose arguments are read word by word
_NUMBERS = {"1": "standard", "5": "vanilla", "7": "scheduler", "8": "mpi", "9": "grid"}
_NUMBERS |= {"10": "java", "11": "parallel", "12": "local", "13": "vm"}
_MOST_ABOVE = 4  # folders above a submit file to search for its files
CLOUDS = ("ec2", "gce", "azure")
# Parts of a name that another program fills in before condor_submit reads the file.
_TEMPLATE = re.compile(
    r"\{\{|\{%|\{\w+\}|\$\{?[A-Za-z_]|%\(\w+\)|%[sd]\b|<[\w ./-]+>|__[A-Z]\w*__|@\w+@"
)

_WINDOWS = re.compile(r"(?i)[a-z]:[\\/]|\\\\|[\w.]\\[\w.]")
BATCH = (".bat", ".cmd", ".ps1")  # only Windows runs these; an .exe may be a program for Linux


class QueueView:
    """One `queue` of a submit file, and the folder in which condor_submit is called."""

    def __init__(self, file: SubmitFile, description: Description, here: Path, name: str) -> None:
        self.file = file
        self.description = description
        self.here = Path(os.path.abspath(here))
        self.name = name

    # -- values

    def has(self, key: str) -> bool:
        """Whether a key is set, or may be by an `if` that cannot be judged."""
        return self.has_line(key) or self.perhaps(key)

    def perhaps(self, key: str) -> bool:
        """Whether a key may be set in a place that is not known, so that it cannot be judged."""
        return canonical(key) in self.description.perhaps or self.description.open

    def raw(self, key: str) -> str:
        """The value as it is in the file."""
        given = self.description.assignment(key)
        return given.value if given else ""

    def value(self, key: str, default: str = "") -> str:
        """The value for people: what differs from job to job stays `$(…)`."""
        return plain(self.description.text(key)) if self.has_line(key) else default

    def each(self, *keys: str) -> list[tuple[str, ...]]:
        """The different combinations of the values of some keys; unknown parts stay as marks."""
        texts = [self.description.text(key) for key in keys]
        joined = "\x1e".join(texts)
        if "\x01" not in joined or not self.description.rows:
            return [tuple(texts)]
        filled = (self.description.filled(joined, job) for job in range(min(self.jobs, MOST_JOBS)))
        return [tuple(text.split("\x1e")) for text in dict.fromkeys(filled)]

    def is_true(self, key: str) -> bool:
        return self.value(key).lower() in ("true", "yes", "1", "t")

    @property
    def jobs(self) -> int:
        """How many jobs this `queue` makes; 0 if that is not known."""
        return len(self.description.rows)

    def at(self, key: str) -> tuple[str, str]:
        """Where a key is set, and the line; the file if it is not set."""
        given = self.description.assignment(key)
        return (f"{self.name}:{given.first}", given.text) if given else (self.name, "")

    # -- what kind of job it is

    @cached_property
    def universe(self) -> str:
        given = self.value("universe").lower()
        return _NUMBERS.get(given, given) or "vanilla"

    @property
    def runs_here(self) -> bool:
        """Whether the job runs on the access point, where all its paths exist."""
        return self.universe in ("local", "scheduler")

    @property
    def grid_type(self) -> str:
        words = self.value("grid_resource").split()
        return words[0].lower() if self.universe == "grid" and words else ""

    @property
    def on_slots(self) -> bool:
        """Whether HTCondor finds a slot for the job, so that requests matter."""
        return not self.runs_here and self.universe not in ("grid", "vm")

    @cached_property
    def contained(self) -> bool:
        images = ("container_image", "docker_image", "SingularityImage", "DockerImage")
        return self.universe in ("docker", "container") or any(map(self.has_line, images))

    def has_line(self, key: str) -> bool:
        return self.description.assignment(key) is not None

    @property
    def asks_for_gpus(self) -> bool:
        return self.value("request_gpus").strip() not in ("", "0")

    @cached_property
    def ospool(self) -> bool:
        """Whether the file is for the OSPool, judging by its values."""
        words = (self.value("container_image"), *self.inputs(), self.value("output_destination"))
        image = "singularity.opensciencegrid.org" in self.value("SingularityImage")
        return image or self.has_line("ProjectName") or any(map(in_ospool, words))

    @property
    def transfers(self) -> str:
        """Whether HTCondor transfers files: "yes", "no" or "if needed"."""
        value = self.value("should_transfer_files").lower()
        if value in ("yes", "true", "always"):
            return "yes"
        if value in ("no", "false", "never"):
            return "no"
        default = not value and self.value("when_to_transfer_output").upper() == "ON_EXIT_OR_EVICT"
        return "yes" if default or self.ospool else "if needed"

    @cached_property
    def for_windows(self) -> bool:
        """Whether the job runs on Windows, judging by its program, paths and requirements."""
        program = self.value("executable")
        paths = f"{program},{self.value('transfer_input_files')},{self.value('initialdir')}"
        asked = re.search(r'\bOpSys\w{0,20} ?== ?"win|iswindows', self.value("requirements"), re.I)
        batch = program.lower().endswith(BATCH)
        return batch or asked is not None or _WINDOWS.search(paths) is not None

    # -- files of the access point

    def inputs(self) -> list[str]:
        """The items of transfer_input_files, for people."""
        return [plain(item) for item in _files(self.description.text("transfer_input_files"))]

    def folders(self) -> list[Path]:
        """Each initial working directory whose name is known."""
        names = (folder for (folder,) in self.each("initialdir"))
        return [self._path(name, self.here) for name in names if is_known(name)]

    def local_inputs(self) -> list[tuple[str, Path]]:
        """Inputs on the access point whose names are known, and their paths."""
        found: dict[tuple[str, Path], None] = {}
        for folder, files in self.each("initialdir", "transfer_input_files"):
            base = self._path(folder, self.here)
            items = filter(self.names_a_file, _files(files)) if is_known(folder) else ()
            found.update({(item, self._path(item, base)): None for item in items})
        return list(found)

    def std_files(self, key: str) -> Iterator[tuple[str, Path]]:
        """The files that a key such as `log` or `output` names, as far as they are known."""
        for folder, name in self.each("initialdir", key):
            if is_known(folder) and name not in ("", "/dev/null") and "://" not in name:
                yield name, self._path(name, self._path(folder, self.here))

    def executables(self) -> Iterator[tuple[str, Path]]:
        """The programs that condor_submit looks for on this machine, and their paths."""
        if not self.sends_executable:
            return
        for (name,) in self.each("executable"):
            if name and self.names_a_file(name):
                yield name, self._path(name, self.here)

    @property
    def sends_executable(self) -> bool:
        """Whether the executable is a file of this machine; condor_submit knows only `false`."""
        if self.universe == "vm" or self.grid_type in CLOUDS or self.has_line("shell"):
            return False
        return not self.value("transfer_executable").lower().startswith("f")

    def names_a_file(self, name: str) -> bool:
        """Whether a name is complete, and that of a file on this machine."""
        odd = "://" in name or "$$" in name or name[0] == "~" or _TEMPLATE.search(name)
        drive = re.match(r"(?i)[a-z]:[\\/]|\\\\", name)
        return is_known(name) and not odd and not drive

    def is_template(self, name: str) -> bool:
        return _TEMPLATE.search(name) is not None

    def _path(self, name: str, base: Path) -> Path:
        name = name.strip()
        if self.for_windows and os.sep == "/":
            name = name.replace("\\", "/")
        return Path(os.path.normpath(base / name))

    # -- words

    @cached_property
    def words(self) -> list[str]:
        """The words of the arguments, as far as they can be read."""
        try:
            return split_arguments(self.value("arguments"))
        except ValueError:
            return self.value("arguments").split()

    @cached_property
    def all_words(self) -> list[str]:
        """The words of all jobs' arguments, each once."""
        if is_known(self.description.text("arguments")):
            return self.words
        found: dict[str, None] = {}
        for (text,) in self.each("arguments")[:_MOST_ROWS]:
            with contextlib.suppress(ValueError):
                found.update(dict.fromkeys(split_arguments(plain(text))))
        return list(found)

    @cached_property
    def variables(self) -> list[tuple[str, str]]:
        """The variables that `environment` sets, as far as they can be read."""
        try:
            return list(split_environment(self.value("environment")))
        except ValueError:
            return []


def _files(text: str) -> list[str]:
    """The items of a list of files; a comma within `$RANDOM_CHOICE(a,b)` separates none."""
    items = re.findall(r"(?:\x01[^\x01\x02]*\x02|[^,\x01])+", text.strip().strip('"'))
    return [item.strip() for item in items if item.strip()]


def submit_folder(file: SubmitFile, beside: Path, here: Path) -> Path:
    """The folder in which condor_submit will be called.

    It is `here` if a file that the submit file names by a relative path is here. Otherwise it is
    the first of `beside`, the submit file's own folder, and those above it where one is.
    """
    named = [file.value(key) for key in ("executable", "initialdir")]
    named += split_files(file.value("transfer_input_files"))
    names = [name for name in named if name and not re.match(r"[/~]|\w+://|.*\$", name)]
    names = [name for name in names if posixpath.normpath(name) not in (".", "..")]
    near = beside.absolute()
    above = [near, *list(near.parents)[:_MOST_ABOVE]]
    for folder in (here, *(beside if each == near else each for each in above)):
        if any(os.path.exists(folder / name) for name in names):
            return folder
    return here
