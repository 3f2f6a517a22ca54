"""What is risky in a submit description, said before it costs an attempt."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.pool.preflight.case import in_ospool
from headway.pool.preflight.findings import Context, Finding, error, hint, warning, worst_first
from headway.pool.preflight.pytraps import worker_options
from headway.pool.preflight.shelltraps import asked_workers
from headway.pool.preflight.traps import read_script, script_traps
from headway.pool.wrap.subfile import (
    UNCLOSED,
    Kind,
    SubmitFile,
    read,
    read_text,
    split_arguments,
    split_files,
)
from headway.spec.units import format_size

TRANSFER_LIMIT = 5000 * 2**20  # MAX_TRANSFER_INPUT_MB of the OSPool
_FEDERATION = ("osdf", "stash", "pelican")
_GPU_KEYS = (
    "gpus_minimum_memory",
    "gpus_minimum_capability",
    "gpus_maximum_capability",
    "gpus_minimum_runtime",
    "require_gpus",
)
_BOUNDS = re.compile(r"num(?:system)?holds|numshadowstarts|jobruncount|numjobmatches", re.I)
_TRUE = ("true", "yes", "1", "t")


def file_risks(path: Path) -> list[Finding]:
    """The risks of a submit description on disk, and of the scripts that it names."""
    return risks(read_text(path), path.parent, path.name)


def risks(text: str, base: Path, name: str = "job.sub") -> list[Finding]:
    """The risks of a submit description whose paths are relative to `base`, worst first."""
    view = _View(read(text), base, name)
    checks: tuple[Callable[[_View], Iterator[Finding]], ...] = (
        _gpus,
        _releases,
        _transfers,
        _inputs,
        _outputs,
        _containers,
        _records,
        _checkpoints,
        _requests,
        _habits,
        _syntax,
        _scripts,
    )
    return worst_first(finding for check in checks for finding in check(view))


class _View:
    """A submit file with the questions that the checks ask of it."""

    def __init__(self, file: SubmitFile, base: Path, name: str) -> None:
        self.file = file
        self.name = name
        folder = file.value("initialdir")
        self.base = base / folder if folder and "$(" not in folder else base
        self.value = file.value

    def has(self, key: str) -> bool:
        return self.file.last(key) is not None

    def is_true(self, key: str) -> bool:
        return self.value(key).lower() in _TRUE

    @property
    def has_gpus(self) -> bool:
        return self.value("request_gpus") not in ("", "0")

    @property
    def ospool(self) -> bool:
        """Whether the file is for the OSPool, by its own words."""
        words = (self.value("container_image"), *self.inputs(), self.value("output_destination"))
        image = "singularity.opensciencegrid.org" in self.value("SingularityImage")
        return image or self.has("ProjectName") or any(map(in_ospool, words))

    def at(self, key: str) -> tuple[str, str]:
        """Where a key is set, and the line; the file itself where it is not."""
        statement = self.file.last(key)
        if statement is None:
            return self.name, ""
        line = self.file.lines[statement.first - 1].strip()
        return f"{self.name}:{statement.first}", line

    def inputs(self) -> list[str]:
        return split_files(self.value("transfer_input_files"))

    def local_inputs(self) -> Iterator[tuple[str, Path]]:
        """Inputs of the access point whose names are known before the queue fills them in."""
        for item in self.inputs():
            if "://" not in item and "$(" not in item and "$$" not in item:
                yield item, self.base / item

    def executable(self) -> Path | None:
        name = self.value("executable")
        moved = self.value("transfer_executable", "true").lower() in _TRUE
        return self.base / name if name and moved and "$(" not in name else None


def _gpus(view: _View) -> Iterator[Finding]:
    if view.has_gpus:
        return
    for key in _GPU_KEYS:
        if view.has(key):
            where, line = view.at(key)
            yield error(
                "gpu-keys",
                where,
                f"{key} is silently ignored without request_gpus: the job runs where no GPU is",
                "request_gpus = 1",
                line,
            )


def _releases(view: _View) -> Iterator[Finding]:
    value = view.value("periodic_release")
    if not value or value.lower() == "false" or _BOUNDS.search(value):
        return
    where, line = view.at("periodic_release")
    slot = "GPU" if view.has_gpus else "slot"
    what = f"releases for ever: a job that cannot succeed takes a {slot} again and again"
    if re.search("numjobstarts", value, re.I):
        what = "NumJobStarts stays 0 when input transfers fail: the job is released for ever"
    remedy = "bound it: NumHolds <= 5 && NumShadowStarts <= 30, or leave it to `headway wrap`"
    yield warning("release-unbounded", where, what, remedy, line)


def _transfers(view: _View) -> Iterator[Finding]:
    if view.value("should_transfer_files").lower() in ("no", "false", "never"):
        where, line = view.at("should_transfer_files")
        what = "the job never matches a machine outside this file system"
        yield error("no-transfer", where, what, "should_transfer_files = YES", line)


def _inputs(view: _View) -> Iterator[Finding]:
    where, line = view.at("transfer_input_files")
    sizes: dict[str, int] = {}
    for item, path in view.local_inputs():
        if not os.path.exists(path):
            what = f"{item} does not exist: the job is held (code 13, subcode 2)"
            yield error("input-missing", where, what, "correct the name, or take it out", line)
            continue
        files = [path] if path.is_file() else (p for p in path.rglob("*") if p.is_file())
        sizes[item] = sum(file.stat().st_size for file in files)
    total = sum(sizes.values())
    if total > TRANSFER_LIMIT:
        biggest = max(sizes, key=lambda item: sizes[item])
        named = f"The biggest is {biggest}, {format_size(sizes[biggest])}"
        if view.ospool:
            what = f"{format_size(total)} of input; the OSPool holds jobs with more than 5,000 MB"
            remedy = "put it on OSDF and name its osdf:// URL"
            yield error("input-size", where, f"{what} (code 32). {named}", remedy, line)
        else:
            what = f"{format_size(total)} of input go from here to each job. {named}"
            remedy = "put it behind a URL; many pools hold such jobs (code 32)"
            yield warning("input-size", where, what, remedy, line)
    for item in view.inputs():
        scheme = item.split("://", 1)[0].lower().rpartition("+")[2]
        if "://" in item and scheme in _FEDERATION:
            what = (
                f"{item}: HTCondor cuts a transfer off after an hour even while bytes flow, and"
                " begins again from nothing (140 GB need 40 MB/s)"
            )
            remedy = "`headway wrap` has the agent stage it in, from within the job"
            yield hint("hour-cut", where, what, remedy, line)
        if item.lower().split("?")[0].endswith(".zip"):
            what = f"{item}: `unzip` is missing in many containers"
            yield hint("zip", where, what, "repack it as .tar", line)


def _outputs(view: _View) -> Iterator[Finding]:
    where, line = view.at("transfer_output_files")
    names = [n for n in split_files(view.value("transfer_output_files")) if "$" not in n]
    if not names:
        return
    executable = view.executable()
    paths = [path for _, path in view.local_inputs()]
    scripts = [read_script(path) for path in ([executable] if executable else []) + paths]
    text = "\n".join((view.value("arguments"), *(script for script in scripts if script)))
    for name in names:
        what = f"if {name} is missing the job is held (code 12, subcode 2), also when it failed"
        remedy = "name one folder that always exists: mkdir -p it at the start"
        if name.rstrip("/").rsplit("/", 1)[-1] in text or not any(scripts):
            yield hint("output-missing", where, what, remedy, line)
        else:
            what += "; no script of this job mentions it"
            yield warning("output-missing", where, what, remedy, line)


def _containers(view: _View) -> Iterator[Finding]:
    if not view.has("SingularityImage"):
        return
    where, line = view.at("SingularityImage")
    remedy = "container_image = …, with universe = container or none"
    if view.has("container_image"):
        what = "+SingularityImage and container_image: which one holds depends on the site"
        yield warning("two-images", where, what, "keep container_image alone", line)
    else:
        what = "+SingularityImage is the older way: HTCondor does not transfer or check the image"
        yield hint("singularity-image", where, what, remedy, line)


def _records(view: _View) -> Iterator[Finding]:
    if not view.has("log"):
        what = "there is no event log: nobody can tell what became of the job, or where"
        yield warning("no-log", view.name, what, "log = job.log")
    where, line = view.at("max_retries")
    avoids = re.search("MachineAttr|HeadwayAvoid", view.value("requirements"))
    if line and view.value("max_retries") != "0" and not avoids:
        what = "a retry may go straight back to the site where the job has just failed"
        yield hint("retry-same-site", where, what, "`headway wrap` adds a requirement", line)


def _checkpoints(view: _View) -> Iterator[Finding]:
    code, files = "checkpoint_exit_code", "transfer_checkpoint_files"
    if view.has(code) and not view.has(files):
        where, line = view.at(code)
        what = "every checkpoint transfers the whole scratch folder, inputs included"
        yield warning("checkpoint-files", where, what, f"{files} = the checkpoint alone", line)
    if view.has(files) and not view.has(code):
        where, line = view.at(files)
        what = "is ignored without checkpoint_exit_code: nothing is saved, the job begins anew"
        yield error("checkpoint-code", where, what, f"{code} = 85, and exit with it", line)


def _requests(view: _View) -> Iterator[Finding]:
    for key, unit, small in (("request_memory", "MiB", 100), ("request_disk", "KiB", 1_000_000)):
        where, line = view.at(key)
        value = view.value(key)
        if not value:
            what = "is not set: the pool's default is small, and the job is held when it is passed"
            yield warning("no-request", f"{where}: {key}", what, f"{key} = 4 GB", line)
        elif re.fullmatch(r"\d+", value):
            make = warning if int(value) < small else hint
            what = f"{value} without a unit means {value} {unit}"
            yield make("no-unit", where, what, f"write the unit: {key} = 4 GB", line)


def _habits(view: _View) -> Iterator[Finding]:
    if view.ospool and not view.has("JobDurationCategory"):
        what = "no +JobDurationCategory: the OSPool takes it for Medium and holds it after 20 h"
        remedy = '+JobDurationCategory = "Medium" or "Long"'
        yield hint("duration", view.name, what, remedy)
    if view.value("notification", "never").lower() != "never":
        where, line = view.at("notification")
        what = "one mail for each job, and on many access points no mail at all"
        yield hint("notification", where, what, "notification = never", line)
    if view.is_true("getenv"):
        where, line = view.at("getenv")
        what = "the environment of the access point goes with the job: paths and libraries that the"
        what += " node has not"
        yield warning("getenv", where, what, "name what is needed: environment = …", line)


def _syntax(view: _View) -> Iterator[Finding]:
    lines = view.file.lines
    for statement in view.file.statements:
        if statement.kind is Kind.NOTHING:
            continue
        for number in range(statement.first + 1, statement.last + 1):
            text = lines[number - 1].strip()
            before = lines[number - 2].rstrip()
            if text.startswith("#") and before.endswith("\\") and not text.endswith("\\"):
                what = (
                    "a comment within a continued line ends it, and may become a part of the value"
                )
                where = f"{view.name}:{number}"
                yield warning("submit-comment", where, what, "move it above the statement", text)
    for statement in view.file.statements:
        if statement.key == UNCLOSED:
            what = "is never closed: condor_submit refuses the file"
            where = f"{view.name}:{statement.first}"
            remedy = "end it with a line that has @ and the same word"
            yield error("unclosed", where, what, remedy, statement.value)
    queue = view.file.first_queue
    after = [s for s in view.file.statements if queue and s.first > queue.last]
    extra = next((s for s in after if s.kind is not Kind.NOTHING), None)
    if extra is not None:
        what = "stands after the first queue statement: recent HTCondor (25) refuses the file"
        where = f"{view.name}:{extra.first}"
        remedy = "one queue statement, with a table: queue a, b from (…)"
        yield warning("after-queue", where, what, remedy, lines[extra.first - 1].strip())
    if queue is None:
        what = "there is no queue statement: nothing is submitted"
        yield hint("no-queue", view.name, what, "queue, unless you give it on the command line")


def _scripts(view: _View) -> Iterator[Finding]:
    executable = view.executable()
    where, line = view.at("executable")
    if executable is not None and not os.path.exists(executable):
        what = f"the executable {view.value('executable')} does not exist"
        yield error("executable-missing", where, what, "correct the name", line)
    cpus, gpus = view.value("request_cpus", "1"), view.value("request_gpus", "0")
    context = Context(
        checkpointed=view.has("checkpoint_exit_code"),
        cpus=int(cpus) if cpus.isdigit() else None,
        gpus=int(gpus) if gpus.isdigit() else None,
        provided=frozenset(item.rstrip("/").rsplit("/", 1)[-1] for item in view.inputs()),
        arguments=tuple(_words(view)),
    )
    program = Context(**{**vars(context), "program": True})
    scripts = [(executable, program)] if executable is not None else []
    scripts += [(path, context) for _, path in view.local_inputs() if path != executable]
    options: set[str] = set()
    for path, how in scripts:
        text = read_script(path)
        if text is not None and (how.program or path.suffix in (".py", ".sh")):
            yield from script_traps(text, path.name, how)
            options |= worker_options(text)
    where, line = view.at("arguments")
    yield from asked_workers(_words(view), context.cpus, where, line, options)


def _words(view: _View) -> list[str]:
    """The words of the arguments, as far as they can be read."""
    try:
        return split_arguments(view.value("arguments"))
    except ValueError:
        return []
