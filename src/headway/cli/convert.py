"""A job.toml for a submit file: the lines that job.toml can express, and why not the others.

The description becomes the document that `spec` reads, key by key. What `spec` refuses is removed
again and becomes a comment, so that the written file always loads. Without a command there is
nothing to write.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.cli.draft import guess, name_of, program_words
from headway.errors import ConversionError, PreflightError, Problem, SpecError
from headway.node.transfer.urls import shown as shown_url
from headway.pool.folder import RunFolder
from headway.pool.htcondor.submit import submit_description
from headway.pool.lint.evaluate import Description, SkippedLine, evaluate, marks, plain, template
from headway.pool.lint.submit_file import (
    GPU_KEYS,
    Statement,
    Unknown,
    arithmetic,
    canonical,
    read,
    read_text,
    split_arguments,
    split_environment,
    split_files,
)
from headway.spec import build_job
from headway.spec.job import shell_name
from headway.spec.places import INPUT_SCHEMES

_SUFFIXES = (".sub", ".submit", ".condor", ".jdl", ".jds", ".htc", ".htcondor", ".submitfile")
_TRUE = ("true", "yes", "1", "t")
_FALSE = ("false", "no", "0", "f", "never")
_NEVER = ("no", "false", "never")
_ON_THE_NODE = ("/bin/", "/usr/", "/sbin/", "/opt/", "/cvmfs/")
_MOST_FILES = 2000
_MOST_REFUSALS = 500
_OUTSIDE = (
    "it lies outside the folder of job.toml: copy it here, or put it behind a URL and declare"
)
_OUTSIDE += " it as an input"
_LINKS = 'while [ "$1" != -- ]; do ln -sf "$1" . || exit 1; shift; done; shift; exec "$@"'
_STDIN = 'in=$1; shift; exec "$@" < "$in"'
_SIZE = re.compile(r"(?P<number>.*?[\d.)])\s*(?P<unit>[KMGTP])?(?:i?B)?\Z", re.I)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}

# Submit commands for what Headway does itself, and where to find it.
_OWN = {
    "log": "the run's events.log; `headway status` reads it",
    "output error": "`headway logs` shows what the command printed",
    "stream_output stream_error": "`headway logs -f` follows a running job",
    "notification notify_user": "`headway run` waits for the jobs, and `headway status` shows them",
    "periodic_release": "Headway releases transient holds itself: see [retries]",
    "max_materialize max_idle": "Headway submits large runs bit by bit",
    "skip_filechecks copy_to_spool": "Headway packs the files at submit",
    "job_lease_duration": "Headway leaves it to the pool",
}
# Submit commands that job.toml cannot express, and what to do.
_NO_WORDS = {
    "on_exit_hold on_exit_remove retry_until": "Headway decides when a job is over: see [retries]",
    "success_exit_code": "a job succeeds if its command exits with 0 and leaves its outputs",
    "periodic_hold periodic_remove periodic_vacate": "use `time_limit` for jobs that run too long",
    "transfer_input_remaps": "give the input a `path` of its own",
    "hold": "Headway submits jobs that may start",
    "leave_in_queue": "the run folder records what happened",
    "kill_sig": "the command gets SIGTERM, and `grace` says how long it has",
    "noop_job": "Headway submits jobs that run",
    "transfer_plugins": "Headway fetches http, https, osdf, stash and pelican itself",
}
# Further submit commands, which [submit] passes on unchanged.
_PASSED = (
    "accounting_group accounting_group_user priority job_prio nice_user rank preferences "
    "concurrency_limits concurrency_limits_expr x509userproxy use_x509userproxy "
    "delegate_job_gsi use_oauth_services use_scitokens scitokens_file gpus_maximum_capability "
    "run_as_owner docker_network_type docker_override_entrypoint docker_pull_policy "
    "container_service_names container_target_dir transfer_container mount_under_scratch "
    "want_graceful_removal remote_initialdir encrypt_execute_directory encrypt_input_files "
    "encrypt_output_files deferral_time deferral_window deferral_prep_time email_attributes "
    "description job_machine_attrs job_machine_attrs_history_length job_ad_information_attrs "
    "ulog_execute_attrs allow_startup_script keep_claim_idle max_transfer_input_mb "
    "max_transfer_output_mb cuda_version request_ioslots starter_debug starter_log "
    "project_name"
)


@dataclass
class Converted:
    """A document that loads, and the lines of the submit file that are not in it."""

    name: str  # of the submit file
    document: dict[str, Any]
    rows: list[dict[str, str]]
    skipped: list[SkippedLine] = field(default_factory=list)
    own: list[SkippedLine] = field(default_factory=list)  # Headway does it by itself
    notes: list[str] = field(default_factory=list)
    guessed: dict[str, int] = field(default_factory=dict)  # outputs that a script seems to write


def is_submit_file(path: Path) -> bool:
    """Whether a file is a submit description and not a script, by its name or its contents."""
    if path.suffix.lower() in _SUFFIXES:
        return True
    if path.suffix.lower() in (".py", ".sh", ".bash", ".r", ".jl", ".pl") or not path.is_file():
        return False
    if path.stat().st_size > 2_000_000:
        return False
    text = path.read_bytes().decode("utf-8", errors="replace")
    if text.startswith("#!") or "\0" in text:
        return False
    file = read(text)
    return file.first_queue is not None and bool(file.assignments("executable"))


def folder_of(path: Path, here: Path) -> Path:
    """The folder that the file's paths are relative to, and that job.toml is written to.

    For HTCondor it is the folder in which condor_submit is called. That is the current folder if
    the executable is here, and otherwise the file's own.
    """
    file = read(read_text(path))
    program = file.value("executable")
    if program and not program.startswith("/") and os.path.isfile(here / program):
        return here
    return path.parent


def convert(path: Path, base: Path) -> Converted:
    """The job that a submit file describes, as far as job.toml can express it.

    Args:
        path: The submit file.
        base: The folder of the new job.toml, which the file's paths are relative to.

    Returns:
        What to write; its document has been loaded once.

    Raises:
        ConversionError: There is no command, or the jobs are not known.
    """
    text = read_text(path)
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        raise ConversionError(f"{path} is not UTF-8", remedy="convert it: iconv -t UTF-8")
    description = evaluate(text, base)
    made = _Conversion(description, base, path).run()
    _until_it_loads(made, description, base)
    made.skipped.sort(key=lambda each: each.line)
    made.own.sort(key=lambda each: each.line)
    return made


class _Conversion:
    """Goes through the description once, key by key."""

    def __init__(self, description: Description, base: Path, path: Path) -> None:
        self.description = description
        self._each = description.each
        self.base = base.absolute()
        self.stem = path.name.removesuffix(path.suffix)
        self.taken: set[str] = set()  # keys that are done
        self.files: dict[str, None] = {}
        self.links: dict[str, None] = {}  # files that HTCondor would put next to the command
        self.document: dict[str, Any] = {}
        self.made = Converted(path.name, self.document, description.rows)
        self.made.skipped += description.skipped

    def run(self) -> Converted:
        self._universe()
        name = self._same("batch_name") or self._same("JobBatchName")
        self.document["name"] = name_of(name.strip('"') or self.stem)
        program = self._program()
        words = [*program, *self._arguments()]
        self._inputs()
        self._command(words)
        self._environment()
        self._container()
        self._resources()
        self._outputs(program)
        self._checkpoint()
        self._rest()
        self.document["files"] = list(self.files)
        return self.made

    def _take(self, key: str) -> Statement | None:
        """The assignment of a key, which is then done."""
        self.taken.add(canonical(key))
        return self.description.assignment(key)

    def _text(self, key: str, *, needed: bool = False) -> str:
        """The value of a key, with marks; empty, and the line skipped, if it is not known."""
        given = self._take(key)
        try:
            return self.description.text(key)
        except Unknown as why:
            if not needed or given is None:
                self._skip(key, str(why))
                return ""
            raise ConversionError(
                f"line {given.first}: {given.text}\n  {why}",
                remedy="write the value into the file, and try again",
            ) from None

    def _same(self, key: str) -> str:
        """The same for a key that must have one value for all jobs."""
        text = self._text(key)
        if not marks(text):
            return text
        self._skip(key, "job.toml has one value for all jobs, and here each has its own")
        return ""

    def _skip(self, key: str, reason: str, item: str = "") -> None:
        """Report the line of a key, or one item in it, that is not in job.toml."""
        given = self._take(key)
        line = SkippedLine(0, item, reason)
        if given:
            words = f"{plain(item)}: {reason}" if item else reason
            line = SkippedLine(given.first, given.text, words)
        if line not in self.made.skipped:
            self.made.skipped.append(line)

    def _universe(self) -> None:
        universe = self._same("universe").lower()
        if universe not in ("", "vanilla", "container", "docker", "5"):
            raise ConversionError(
                f"Headway does not run jobs in universe {universe}",
                remedy="use `headway wrap`, which leaves the file as it is",
            )
        reasons = dict.fromkeys(
            (*_NEVER, "if_needed"),
            "Headway brings files itself, with or without a shared file system",
        )
        reasons["on_exit_or_evict"] = "Headway keeps a [checkpoint] when a job is evicted"
        for key in ("should_transfer_files", "when_to_transfer_output"):
            if why := reasons.get(self._same(key).lower()):
                self._skip(key, why)

    def _program(self) -> list[str]:
        program = self._text("executable", needed=True)
        if not program:
            raise ConversionError(
                "there is no `executable`",
                remedy="name the program: job.toml cannot use an image's entry point",
            )
        moved = self._same("transfer_executable").lower() not in _FALSE
        shared = self._same("should_transfer_files").lower() in _NEVER
        names: list[str] = []
        for each in dict.fromkeys(self._each(program)):
            name = self._within(each)
            if name is not None and os.path.isfile(self.base / name):
                names.append(name)
                self.files[name] = None
            elif each.startswith(_ON_THE_NODE) or (each.startswith("/") and (not moved or shared)):
                names.append(each)
                if moved and not shared:
                    note = f"HTCondor would copy this machine's {each}; here the node's own starts"
                    self.made.notes.append(note)
            elif (not moved and "/" not in each) or (self._image() and each.startswith("/")):
                names.append(each)  # a program of the node, or of the image
            else:
                self._no_program(each, name)
        first = program_words(self.base / names[0], names[0])
        if len(names) == 1:
            return first
        inside = self._relative_template(program)
        if len(first) > 1:
            return [first[0], inside]
        return [inside if inside.startswith("/") else f"./{inside}"]

    def _no_program(self, each: str, name: str | None) -> None:
        given = self.description.assignment("executable")
        line = f"line {given.first}: " if given else ""
        if name is None:
            raise ConversionError(
                f"{line}the executable {each} lies outside {self.base.name}/, where job.toml would"
                " be, and `files` cannot name it",
                remedy=f"copy it there and name the copy: cp {shlex.quote(each)} .",
            )
        raise ConversionError(
            f"{line}there is no file {each} in {self.base}",
            remedy="correct `executable`, or call `headway init` where you call condor_submit",
        )

    def _within(self, path: str) -> str | None:
        """A path relative to the folder of job.toml; None if it lies outside."""
        inside = os.path.relpath(os.path.normpath(self.base / path), self.base)
        return None if inside == ".." or inside.startswith("../") else inside

    def _relative_template(self, text: str) -> str:
        """A path with marks, relative to the folder of job.toml."""
        return text.removeprefix(f"{self.base}/").removeprefix("./")

    def _arguments(self) -> list[str]:
        text = self._text("arguments", needed=True)
        given = self._take("arguments")
        if given is None or not text:
            return []
        values = self._each(text)
        try:
            words = split_arguments(text)
            each = [split_arguments(value) for value in values]
        except ValueError as wrong:
            raise ConversionError(f"line {given.first}: {given.text}\n  {wrong}") from None
        filled = self.description.filled
        if not marks(text) or all(
            [filled(word, job) for word in words] == argv for job, argv in enumerate(each)
        ):
            return words
        if len({len(argv) for argv in each}) == 1:  # a row's value is several words
            columns = enumerate(zip(*each, strict=True), 1)
            return [self.description.column(f"arg{at}", values) for at, values in columns]
        # The number of words differs from row to row: a shell splits them.
        line = self.description.column("words", [shlex.join(argv) for argv in each])
        return ["\x03", line]

    def _command(self, words: list[str]) -> None:
        if "\x03" in words:
            at = words.index("\x03")
            words = ["sh", "-c", f'exec "$@" {words[at + 1]}', "sh", *words[:at]]
        stdin = self._stdin()
        if stdin:
            words = ["sh", "-c", _STDIN, "sh", stdin, *words]
        if self.links:
            words = ["sh", "-c", _LINKS, "sh", *self.links, "--", *words]
            self.made.notes.append(
                "HTCondor puts all inputs into one folder, wherever they come from; so do the links"
            )
        self.document["command"] = [template(word) for word in words]

    def _stdin(self) -> str:
        text = self._text("input")
        if text in ("", "/dev/null") or not self._take_file("input", text):
            return ""
        return self._relative_template(self._from_initialdir(text))

    def _inputs(self) -> None:
        key = "transfer_input_files"
        keep = self._same("preserve_relative_paths").lower() in _TRUE
        inputs: list[dict[str, str]] = []
        image = self._image()
        for item in split_files(self._text(key)):
            values = self._each(item)
            if any("," in value for value in values):
                self._skip(key, "its rows name several files each", item)
            elif any("://" in value for value in values):
                inputs += self._url(key, item, values)
            elif image and os.path.basename(image) == os.path.basename(item):
                continue  # `container` brings the image
            elif self._take_file(key, item) and not keep:
                self._link(item)
        self.document["inputs"] = inputs

    def _url(self, key: str, item: str, values: Sequence[str]) -> list[dict[str, str]]:
        schemes = {value.partition("://")[0].lower().rpartition("+")[2] for value in values}
        odd = sorted(schemes - set(INPUT_SCHEMES))
        if odd:
            self._skip(key, f"Headway does not fetch from {odd[0]}://", shown_url(item))
            return []
        paths = [value.partition("?")[0] for value in values]
        if any(path.endswith("/") for path in paths) or any("recursive" in v for v in values):
            self._skip(key, "Headway fetches single objects: pack the folder", item)
            return []
        names = [path.rpartition("/")[2] for path in paths]
        name = item.partition("?")[0].rpartition("/")[2]
        if self._each(name) != names:  # the row has the whole URL
            name = self.description.column("file", names)
        return [{"url": template(item), "path": template(name)}]

    def _from_initialdir(self, item: str) -> str:
        folder = self._text("initialdir")
        return posixpath.join(folder, item) if folder else item

    def _take_file(self, key: str, item: str) -> bool:
        """Put the files that an item of a key stands for into `files`; False if that fails."""
        found: dict[str, None] = {}
        why, culprit = "", item
        for value in dict.fromkeys(self._each(self._from_initialdir(item))):
            name = self._within(value)
            if name is None:
                why, culprit = _OUTSIDE, value
            elif name == ".":
                why = "the whole folder: name in `files` what is needed"
            elif not os.path.exists(self.base / name):
                why, culprit = "there is no such file here", value
            else:
                found[name] = None
                continue
            break
        if not why and len(found) > _MOST_FILES:
            why = f"{len(found):,} files: put them behind URLs and declare those as inputs"
        if why:
            self._skip(key, why, culprit)
            return False
        if len(found) > 1:
            note = f"every job gets all {len(found)} files that {plain(item)} stands for"
            self.made.notes.append(note)
        self.files |= found
        return True

    def _link(self, item: str) -> None:
        """Link a file of a folder to where HTCondor would put it, next to the command."""
        path = self._relative_template(self._from_initialdir(item))
        if item.endswith("/") and not marks(path):
            names = sorted(os.listdir(self.base / path))
            folder = posixpath.normpath(path)
            self.links |= {f"{folder}/{name}": None for name in names if name[0] != "."}
            return
        path = path.rstrip("/") if marks(path) else posixpath.normpath(path)
        if any("/" in value for value in self._each(path)):
            self.links[path] = None

    def _environment(self) -> None:
        given = self._take("environment")
        environment: dict[str, str] = {}
        if given is not None:
            try:
                text = given.value
                if re.fullmatch(r'"?\s*\$\(\w+\)\s*"?', text):  # a single macro
                    text = self.description.expand(text)
                for name, value in split_environment(text):
                    self._variable(environment, name, value)
            except (ValueError, Unknown) as wrong:
                self._skip("environment", str(wrong))
        wanted = self._same("getenv")
        if wanted.lower() in _TRUE:
            why = "variables of this machine mean nothing on a node; name those that are needed"
            self._skip("getenv", why)
        elif wanted.lower() not in ("", *_FALSE):
            for name in re.split(r"[,\s]+", wanted):
                if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
                    environment.setdefault(name, f"${name}")
                else:
                    self._skip("getenv", "name the variables one by one", name)
        self.document["environment"] = environment

    def _variable(self, environment: dict[str, str], name: str, value: str) -> None:
        """One variable; `$ENV(KEY)` alone comes from the shell at submit in job.toml too."""
        from_shell = re.fullmatch(r"\$ENV\(([A-Za-z_]\w*)\)", value.strip(), re.ASCII)
        if from_shell:
            environment[name] = f"${from_shell[1]}"
            return
        try:
            text = template(self.description.expand(value))
        except Unknown as why:
            self._skip("environment", str(why), name)
            return
        environment[name] = f"${text}" if shell_name(text) else text  # `$NAME` is text there

    def _image(self) -> str:
        image = self._same("container_image") or self._same("docker_image")
        return (image or self._same("SingularityImage")).strip('"')

    def _container(self) -> None:
        image = self._image()
        if not image:
            return
        has = self.description.assignment
        if has("docker_image") and not has("container_image"):
            image = image if "://" in image else f"docker://{image}"
        if "://" not in image:
            name = self._within(image)
            image = name if name is not None and not image.startswith("/cvmfs/") else image
        self.document["container"] = image

    def _resources(self) -> None:
        cpus = self._number("request_cpus")
        resources = {
            "cpus": None if cpus is None else max(1, math.ceil(cpus)),
            "memory": self._size("request_memory", "M"),
            "disk": self._size("request_disk", "K"),
            "gpus": self._gpus() or None,
        }
        self.document["resources"] = _given(resources)

    def _largest(self, key: str, read: Callable[[str], float | None], what: str) -> float | None:
        text = self._text(key)
        if not text:
            return None
        values = [read(value) for value in dict.fromkeys(self._each(text))]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            self._skip(key, f"it is not {what}; job.toml has a default")
            return None
        if len(known) > 1:
            self.made.notes.append(f"{key} differs from job to job: the largest is used")
        return max(known)

    def _number(self, key: str) -> float | None:
        return self._largest(key, arithmetic, "a plain number")

    def _size(self, key: str, unit: str) -> str | None:
        """A size as HTCondor means it: `4GB` are 4 · 2³⁰ bytes, and a bare number has `unit`."""
        size = self._largest(key, lambda text: _bytes(text, unit), "a plain size")
        if size is None or size <= 0:
            return None
        for name in ("T", "G", "M"):
            if size >= _UNITS[name] and size % _UNITS[name] == 0:
                return f"{int(size) // _UNITS[name]} {name}iB"
        return f"{max(1, math.ceil(size / 2**20))} MiB"

    def _gpus(self) -> dict[str, Any]:
        count = self._number("request_gpus")
        if not count:
            for key in GPU_KEYS:
                if self._take(key):
                    self._skip(key, "without request_gpus HTCondor ignores it")
            return {}
        runtime = self._same("gpus_minimum_runtime")
        if re.fullmatch(r"\d{4,5}", runtime):  # 12010 is CUDA 12.1
            runtime = f"{int(runtime) // 1000}.{int(runtime) % 1000 // 10}"
        gpus = {
            "count": math.ceil(count),
            "memory": self._size("gpus_minimum_memory", "M"),
            "capability": self._number("gpus_minimum_capability"),
            "runtime": runtime or None,
        }
        return self._require_gpus(_given(gpus))

    def _require_gpus(self, gpus: dict[str, Any]) -> dict[str, Any]:
        """Add what `require_gpus` says."""
        text = self._same("require_gpus")
        for term in text.split("&&") if text else ():
            bare = term.strip().strip("()").strip()
            match = re.fullmatch(r"(?:TARGET\.)?(\w+)\s*(>=|>)\s*([\d.]+)", bare)
            name = match[1].lower() if match else ""
            if match and name == "capability" and match[2] == ">=":
                gpus.setdefault("capability", float(match[3]))
            elif match and name == "globalmemorymb":
                gpus.setdefault("memory", f"{math.ceil(float(match[3]))} MiB")
            else:
                why = f"of a GPU job.toml knows memory, capability and runtime, not {bare}"
                self._skip("require_gpus", why)
        return gpus

    def _outputs(self, program: Sequence[str]) -> None:
        key = "transfer_output_files"
        given = self._take(key)
        remaps = self._remaps()
        outputs: list[dict[str, Any]] = []
        items = split_files(self._text("transfer_output_files"))
        for item in items:
            if any(value.startswith("/") or "://" in value for value in self._each(item)):
                self._skip(key, "an output lies within the job's own folder", item)
                continue
            path = item.rstrip("/")
            to = remaps.pop(path, None) or remaps.pop(posixpath.basename(path), None)
            outputs.append({"path": template(path), **self._to(path, to)})
        if given is None or items:
            for path, to in remaps.items():  # HTCondor transfers it if it exists
                outputs.append({"path": template(path), **self._to(path, to), "required": False})
        self.document["outputs"] = outputs
        if given is None and not outputs:
            self._guess_outputs(program)

    def _guess_outputs(self, program: Sequence[str]) -> None:
        """HTCondor would return every new file, so look for what the scripts write."""
        known = [word for word in program if os.path.isfile(self.base / word.removeprefix("./"))]
        scripts = [*known, *(name for name in self.files if name.endswith((".py", ".sh")))]
        for name in dict.fromkeys(posixpath.normpath(word) for word in scripts):
            for path, line in guess(self.base / name).outputs.items():
                self.made.guessed.setdefault(path, line)
        self.document["outputs"] = [{"path": template(path)} for path in self.made.guessed]

    def _remaps(self) -> dict[str, str]:
        text = self._text("transfer_output_remaps").strip('"')
        found: dict[str, str] = {}
        for pair in re.split(r"(?<!\\);", text):
            name, equals, to = (part.strip() for part in pair.partition("="))
            if equals and name and to:
                found[name.replace("\\=", "=")] = to.replace("\\;", ";")
            elif pair.strip():
                self._skip("transfer_output_remaps", "it is not name = place", pair)
        return found

    def _to(self, path: str, to: str | None) -> dict[str, str]:
        """Where an output goes; the run folder if the file does not say."""
        destination = self._same("output_destination")
        if to is None and destination:
            to = f"{destination.rstrip('/')}/{posixpath.basename(path)}"
        if to is None and self._text("initialdir"):
            to = posixpath.basename(path)
        if to is None:
            return {}
        if "://" not in to and not to.startswith("/"):
            to = posixpath.normpath(self._from_initialdir(to))
        return {"to": template(to)}

    def _checkpoint(self) -> None:
        code, files = "checkpoint_exit_code", "transfer_checkpoint_files"
        number, names = self._number(code), split_files(self._same(files))
        if self._take(code) and not names:
            why = "name in [checkpoint] what makes up the checkpoint: HTCondor takes everything"
            self._skip(code, why)
        elif self._take(files) and number is None:
            self._skip(files, "without checkpoint_exit_code HTCondor ignores it")
        elif names and number is not None:
            checkpoint = {"paths": [name.rstrip("/") for name in names], "exit_code": int(number)}
            self.document["checkpoint"] = checkpoint
        for key, name in (
            ("job_max_vacate_time", "grace"),
            ("allowed_execute_duration", "time_limit"),
            ("allowed_job_duration", "time_limit"),
        ):
            seconds = self._number(key)
            if seconds:
                self.document.setdefault(name, f"{seconds:g} s")
        retries = self._number("max_retries")
        if retries is not None:
            self.document["retries"] = {"command": int(retries)}
        duration = self._same("JobDurationCategory").strip('"')
        if duration in ("Medium", "Long"):
            self.document["duration"] = duration
        self.document["requirements"] = self._same("requirements")

    def _rest(self) -> None:
        """Every other line: it goes to [submit], or is reported with the reason."""
        self.taken |= {canonical(key) for key in ("initialdir", "executable")}
        own, no_words = (
            {canonical(key): words for keys, words in table.items() for key in keys.split()}
            for table in (_OWN, _NO_WORDS)
        )
        passed = {canonical(key) for key in _PASSED.split()}
        submit: dict[str, str] = {}
        for name, given in self.description.assignments.items():
            if name in self.taken:
                continue
            attribute = given.key.startswith("+") or given.key.lower().startswith("my.")
            if name in own and not attribute:
                self.made.own.append(SkippedLine(given.first, given.text, own[name]))
            elif name in no_words:
                self._skip(given.key, no_words[name])
            elif attribute or name in passed or name.endswith("oauthpermissions"):
                self._pass_on(given, submit)
        self.document["submit"] = submit

    def _pass_on(self, given: Statement, submit: dict[str, str]) -> None:
        try:
            text = self.description.expand(given.value).strip()
        except Unknown as why:
            self._skip(given.key, str(why))
            return
        if set(marks(text)) - {"job"}:
            self._skip(given.key, "job.toml passes on only what is the same for all jobs")
        elif text:
            submit[given.key] = plain(text)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _bytes(text: str, unit: str) -> float | None:
    match = _SIZE.fullmatch(text.strip())
    value = arithmetic(match["number"]) if match else None
    if match is None or value is None:
        return None
    return value * _UNITS[(match["unit"] or unit).upper()]


def _until_it_loads(made: Converted, description: Description, base: Path) -> None:
    """Remove what `spec` refuses, with its reason, until it accepts the document."""
    for _ in range(_MOST_REFUSALS):
        for key in [key for key, value in made.document.items() if value in ({}, [], "")]:
            del made.document[key]
        table = {"table": made.rows} if description.columns else {}
        count = {"count": len(made.rows)} if len(made.rows) > 1 and not table else {}
        try:
            job = build_job({**made.document, **table, **count}, folder=base, source="")
            folder = RunFolder(base.absolute() / ".headway/runs/init-1")
            submit_description(job, folder, "none", base)
            return
        except (SpecError, PreflightError) as refusal:
            problems = refusal.problems
        # `any` takes out one at a time, since the numbers of the others shift.
        if not any(_take_out(made, problem) for problem in problems):
            listed = "\n".join(f"  {problem}" for problem in problems)
            raise ConversionError(
                f"{made.name} cannot be written as a job.toml:\n{listed}",
                remedy="correct these in the submit file, and try again",
            )
    raise ConversionError(f"{made.name} cannot be written as a job.toml")


def _take_out(made: Converted, problem: Problem) -> bool:
    """Remove the key that a problem names; False if the job cannot do without it."""
    path = problem.where.removeprefix(": ").strip()
    match = re.match(r"(\w+)(?:\[(\d+)\])?(?:\.(\"[^\"]*\"|[\w+.]+))?", path)
    if match is None or match[1] in ("name", "command", "table", "count"):
        return False
    key, number, inner = match[1], int(match[2] or -1), (match[3] or "").strip('"')
    holder: Any = made.document.get(key)
    if holder is None:
        return False
    if match[2] is not None and number < len(holder):
        item = holder[number]
        if isinstance(item, dict) and inner in ("to", "required") and inner in item:
            text = f"{inner} of the output {item['path']}: {item.pop(inner)}"
        else:
            shown = item if isinstance(item, str) else item.get("url") or item.get("path")
            text = f"{key}: {shown}"
            del holder[number]
    elif isinstance(holder, dict) and inner:
        first = next((name for name in (inner, inner.partition(".")[0]) if name in holder), None)
        if first is None:
            return False
        text = f"{first} = {holder.pop(first)}"
    else:
        text = f"{key} = {made.document.pop(key)}"
    reason = problem.what + (f"; {problem.remedy}" if problem.remedy else "")
    made.skipped.append(SkippedLine(0, text, reason))
    return True
