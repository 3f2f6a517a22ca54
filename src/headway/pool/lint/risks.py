"""Risks in a submit description, reported before they cost an attempt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from headway.pool.lint.evaluate import at_each_queue
from headway.pool.lint.queue_view import BATCH, CLOUDS, QueueView, submit_folder
from headway.pool.lint.script_traps import asked_workers, read_script, script_traps, worker_options
from headway.pool.lint.submit_file import (
    GPU_KEYS,
    UNCLOSED,
    Statement,
    SubmitFile,
    is_command,
    meant,
    read,
    read_text,
    split_arguments,
    split_environment,
)
from headway.pool.lint.submit_paths import file_findings
from headway.pool.lint.traps import (
    Context,
    LintFinding,
    Severity,
    base_name,
    error,
    hint,
    in_submit_file,
    warning,
    worst_first,
)
from headway.spec.errors import first_few

_BOUNDS = re.compile(r"num(?:system)?holds|numshadowstarts|jobruncount|numjobmatches", re.I)
_BEFORE_START = {"6", "7", "8", "13", "14"}  # hold codes of jobs that may never have started
_UNIVERSES = (
    *("vanilla", "docker", "container", "java", "parallel", "grid", "vm", "local", "scheduler"),
)
_GONE = ("standard", "mpi", "globus", "pvm", "pipe", "linda")  # universes of older versions
_GRIDS = ("condor", "batch", "arc", "ec2", "gce", "azure", "blah", "pbs", "lsf", "sge")
_STRINGS = (
    *("ProjectName", "JobFlavour", "SingularityImage", "AccountingGroup", "JobBatchName"),
    *("JobDurationCategory", "GPUJobLength", "DESIRED_Sites", "UNDESIRED_Sites", "Project"),
    *("ProjectDescription", "Group"),
)
_MACRO = re.compile(r"\$\w*\(\s*([A-Za-z_][\w.]*)")
_HOSTS = re.compile(r'\bMachine\s*(?:==|=\?=)\s*"([^"]{1,200})"', re.I)
_ALWAYS = ("complete", "always")
# Findings that are listed up to three times for one file; others twice.
_EACH = ("no-unit", "folder-missing", "input-missing", "executable-missing", "typo", "same-file")
_MOST_SCRIPTS = 20  # of one queue
_SCRIPTS = (
    *(".py", ".sh", ".bash", ".csh", ".R", ".r", ".jl", ".pl", ".m", ".C", ".mac"),
    *(".yaml", ".yml", ".cfg", ".conf", ".ini", ".toml", ".json"),
)


def file_risks(path: Path, here: Path | None = None) -> list[LintFinding]:
    """The risks of a submit description on disk, and of the scripts that it names.

    Args:
        path: The submit file.
        here: The folder in which condor_submit would be called; None: the current folder.

    Returns:
        The findings, worst first.

    Raises:
        HeadwayError: The file cannot be read, or is not a submit description.
    """
    return text_risks(read_text(path), path, here)


def text_risks(text: str, path: Path, here: Path | None = None) -> list[LintFinding]:
    """The same as `file_risks` for a submit file whose text has been read already."""
    here = here or Path()
    folder = submit_folder(read(text), path.parent, here)
    found = risks(text, folder, path.name)
    if folder.absolute() != here.absolute():
        what = f"its files are not in {here.absolute()}: they were looked for in"
        what += f" {folder.absolute()}"
        remedy = f"condor_submit takes paths from where it is called: cd {folder} first"
        found = worst_first([warning("other-folder", what, remedy, path.name), *found])
    return found


def risks(text: str, here: Path, name: str = "job.sub") -> list[LintFinding]:
    """The risks of a submit description.

    Args:
        text: The submit file's text.
        here: The folder in which condor_submit is called.
        name: The file's name, for the findings.

    Returns:
        The findings of all its `queue` statements, worst first, each once.
    """
    file = read(text)
    found = list(_syntax(file, name))
    if not any(finding.id == "not-submit" for finding in found):
        for description in at_each_queue(text, here.absolute()):
            view = QueueView(file, description, here, name)
            found += [finding for check in _CHECKS for finding in check(view)]
    return worst_first(_grouped(found))


def _grouped(findings: list[LintFinding]) -> Iterator[LintFinding]:
    """The same trap on many lines of one file becomes one finding that lists the other lines."""
    groups: dict[tuple[str, str, bool], list[LintFinding]] = {}
    for finding in dict.fromkeys(findings):
        place, _, line = finding.where.rpartition(":")
        numbered = line.isdecimal()
        key = (finding.id, place if numbered else finding.where, numbered)
        groups.setdefault(key, []).append(finding)
    for (id, _, numbered), same in groups.items():
        if not numbered:  # about the file as a whole: later queues add nothing
            yield same[0]
        elif len(same) < (4 if id in _EACH else 3):
            yield from same
        else:
            first = worst_first(same)[0]
            others = [each.where.rpartition(":")[2] for each in same if each is not first]
            lines = list(dict.fromkeys(others))
            places = f"line{'s' if len(others) > 1 else ''} {first_few(lines)}"
            yield replace(first, what=f"{first.what}. Also {places}")


# -- requests and policy


def _gpus(view: QueueView) -> Iterator[LintFinding]:
    if view.asks_for_gpus or view.perhaps("request_gpus"):
        return
    remedy = "request_gpus = 1"
    for key in filter(view.has_line, GPU_KEYS):
        what = f"HTCondor ignores {key} without request_gpus: the job may run where no GPU is"
        yield error("gpu-keys", what, remedy, *view.at(key))
    asked = re.search(r"\b(?:CUDA\w+|TotalGPUs|GPUs_\w+)\b", view.value("requirements"))
    if asked:
        what = f"{asked[0]} finds a machine with GPUs, but without request_gpus the job gets none"
        yield warning("gpu-keys", what, remedy, *view.at("requirements"))


def _releases(view: QueueView) -> Iterator[LintFinding]:
    value = view.value("periodic_release")
    if not value or value.lower() in ("false", "0") or _BOUNDS.search(value):
        return
    slot = "GPU" if view.asks_for_gpus else "slot"
    what = (
        f"there is no limit on releases: a job that cannot succeed takes a {slot} again and again"
    )
    if re.search("numjobstarts", value, re.I):
        codes = re.findall(r"holdreasoncode\s{0,9}=\??=\s{0,9}(\d{1,9})", value, re.I)
        if codes and not set(codes) & _BEFORE_START:
            return
        what = "NumJobStarts stays 0 when input transfers fail, so the releases never end"
    remedy = "limit it: NumHolds <= 5 && NumShadowStarts <= 30, or leave it to `headway wrap`"
    yield warning("release-unbounded", what, remedy, *view.at("periodic_release"))


def _universe(view: QueueView) -> Iterator[LintFinding]:
    universe, at = view.universe, view.at("universe")
    if "$(" in universe:
        return
    if universe in _GONE:
        what = f"HTCondor no longer has the {universe} universe: condor_submit refuses the file"
        remedy = "universe = parallel" if universe in ("mpi", "pvm") else "universe = vanilla"
        yield error("universe", what, remedy, *at)
    elif universe not in _UNIVERSES:
        what = f"condor_submit knows no universe {universe}"
        yield error("universe", what, "universe = vanilla, or leave it out", *at)
    needs = {"parallel": "machine_count", "grid": "grid_resource", "vm": "vm_type"}.get(universe)
    if universe == "parallel" and view.has("node_count"):
        needs = None
    if needs and not view.has(needs):
        yield _lacks(view, needs)
    if view.grid_type and view.grid_type not in _GRIDS and "$" not in view.grid_type:
        what = f"HTCondor knows no grid type {view.grid_type}: condor_submit refuses the file"
        remedy = "grid_resource = condor, batch, arc, ec2, gce or azure …"
        if view.grid_type == "slurm":
            remedy = f"grid_resource = batch {view.value('grid_resource')}"
        yield error("universe", what, remedy, *view.at("grid_resource"))
    images = [key for key in ("docker_image", "container_image") if view.has_line(key)]
    if universe == "docker" and "docker_image" not in images and not view.perhaps("docker_image"):
        yield _lacks(view, "docker_image")
    elif universe == "container" and not images and not view.perhaps("container_image"):
        yield _lacks(view, "container_image")
    elif len(images) == 2:
        what = "docker_image and container_image together: condor_submit refuses the file"
        yield error("two-images", what, "keep one of them", *view.at("docker_image"))
    needless = view.contained or view.universe == "vm" or view.has("shell") or view.grid_type
    if not view.has("executable") and not needless:
        what = "there is no executable: condor_submit refuses the file"
        yield error("executable-missing", what, "executable = the program", view.name)


def _lacks(view: QueueView, key: str) -> LintFinding:
    what = f"the {view.universe} universe needs {key}: condor_submit refuses the file"
    return error("universe", what, f"{key} = …", *view.at("universe"))


def _transfers(view: QueueView) -> Iterator[LintFinding]:
    when = view.value("when_to_transfer_output").upper()
    given = view.value("should_transfer_files")
    refused = f"with should_transfer_files = {given}: condor_submit refuses it"
    if view.transfers == "no" and not view.runs_here:
        make, remedy = hint, "fine on a cluster with a shared file system; otherwise use YES"
        what = "HTCondor transfers no files: the job runs only where this file system is mounted"
        if view.ospool:
            make, remedy = error, "should_transfer_files = YES"
            what = "the OSPool shares no file system with you: the job never matches"
        yield make("no-transfer", what, remedy, *view.at("should_transfer_files"))
        listed = [k for k in ("transfer_input_files", "transfer_output_files") if view.value(k)]
        if listed and view.universe != "grid":
            what = f"{listed[0]} {refused}"
            yield error("transfer-conflict", what, "remove one of the two", *view.at(listed[0]))
        if when not in ("", "NEVER") and "$" not in when:
            at = view.at("when_to_transfer_output")
            yield error("transfer-conflict", f"{when} {refused}", "remove this line", *at)
    elif when == "ON_EXIT_OR_EVICT" and given.upper() == "IF_NEEDED":
        at = view.at("when_to_transfer_output")
        yield error("transfer-conflict", f"{when} {refused}", "should_transfer_files = YES", *at)


def _containers(view: QueueView) -> Iterator[LintFinding]:
    at = view.at("SingularityImage")
    if view.has_line("SingularityImage") and view.has_line("container_image"):
        what = "+SingularityImage and container_image: which one is used depends on the site"
        yield warning("two-images", what, "keep only container_image", *at)
    elif view.has_line("SingularityImage"):
        what = "+SingularityImage is the older way: HTCondor does not transfer or check the image"
        remedy = "container_image = …, with universe = container or none"
        yield hint("singularity-image", what, remedy, *at)


def _records(view: QueueView) -> Iterator[LintFinding]:
    if not view.has("log"):
        what = "there is no event log: nobody can tell what happened to the job, or where"
        yield warning("no-log", what, "log = job.log", view.name)
    prints = view.universe != "vm" and view.grid_type not in CLOUDS
    if prints and not view.has("output") and not view.has("error"):
        what = "there is no output and no error: what the program prints is lost"
        number = "" if view.jobs == 1 else ".$(Process)"
        remedy = f"output = job{number}.out, and error = job{number}.err"
        yield hint("no-output", what, remedy, view.name)
    avoids = re.search("MachineAttr|HeadwayAvoid", view.value("requirements"))
    if view.value("max_retries", "0") != "0" and not avoids and view.on_slots:
        what = "a retry may go straight back to the site where the job has just failed"
        remedy = "`headway wrap` adds a requirement"
        yield hint("retry-same-site", what, remedy, *view.at("max_retries"))


def _checkpoints(view: QueueView) -> Iterator[LintFinding]:
    code, files = "checkpoint_exit_code", "transfer_checkpoint_files"
    if view.has_line(code) and not view.has(files):
        what = "every checkpoint transfers the whole scratch folder, inputs included"
        yield warning("checkpoint-files", what, f"{files} = only the checkpoint", *view.at(code))
    if view.has_line(files) and not view.has(code):
        what = "HTCondor ignores it without checkpoint_exit_code: the job always starts over"
        yield error("checkpoint-code", what, f"{code} = 85, and exit with it", *view.at(files))


def _requests(view: QueueView) -> Iterator[LintFinding]:
    if not view.on_slots:
        return
    missing = []
    for key, unit, small in (("request_memory", "MiB", 100), ("request_disk", "KiB", 1_000_000)):
        value = view.value(key)
        if not view.has(key):
            missing.append(key)
        elif re.fullmatch(r"\d+", value):
            make = warning if int(value) < small else hint
            what = f"{value} without a unit means {value} {unit}"
            remedy = "4 GB" if int(value) < small else f"{value} {unit[0]}B"
            yield make("no-unit", what, f"write the unit: {key} = {remedy}", *view.at(key))
        elif re.fullmatch(r"[\d.]+\s*[A-Za-z]+", value) and not re.fullmatch(
            r"[\d.]+\s*[KMGTP]?i?B?", value, re.I
        ):
            what = f"condor_submit cannot read {value}"
            yield error("no-unit", what, f"{key} = 4 GB", *view.at(key))
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        what = f"{' and '.join(missing)} {verb} not set: the pool's default is small, and it holds"
        remedy = ", ".join(f"{key} = 4 GB" for key in missing)
        yield warning("no-request", f"{what} a job that uses more", remedy, view.name)


def _habits(view: QueueView) -> Iterator[LintFinding]:
    if view.ospool and not view.has("JobDurationCategory"):
        what = "no +JobDurationCategory: the OSPool assumes Medium and holds the job after 20 h"
        remedy = '+JobDurationCategory = "Medium" or "Long"'
        yield hint("duration", what, remedy, view.name)
    mails = view.value("notification", "never").lower()
    if mails in (*_ALWAYS, "error", "start"):
        fails = " that fails" if mails == "error" else ""
        what = f"one mail for each job{fails}, and on many access points no mail at all"
        if mails in _ALWAYS or view.jobs != 1:
            yield hint("notification", what, "notification = never", *view.at("notification"))
    elif mails != "never" and "$" not in mails:
        what = f"condor_submit refuses {mails}"
        yield error("notification", what, "notification = never", *view.at("notification"))
    if view.is_true("getenv") and not view.runs_here:
        what = "all variables of the access point go with the job, with paths and libraries that"
        what += " the node may not have"
        make = hint if view.transfers == "no" else warning
        yield make("getenv", what, "name what is needed: environment = …", *view.at("getenv"))
    hosts = list(dict.fromkeys(_HOSTS.findall(view.value("requirements"))))
    if hosts and view.on_slots:
        what = f"the job waits for {first_few(hosts, 2)}, even while other machines are free"
        remedy = "ask for what the machine has: request_memory, gpus_minimum_memory, …"
        yield hint("pinned", what, remedy, *view.at("requirements"))


def _windows(view: QueueView) -> Iterator[LintFinding]:
    program = view.value("executable")
    asks = re.search(r"\bOpSys|iswindows", view.value("requirements"), re.I)
    if view.runs_here or not program.lower().endswith(BATCH) or asks:
        return
    if view.universe == "vanilla" and not view.perhaps("requirements"):
        what = "it runs only on Windows, and on a Linux access point HTCondor requires Linux"
        remedy = 'requirements = (OpSys == "WINDOWS")'
        yield warning("windows", what, remedy, *view.at("executable"))


# -- values


def _quoting(view: QueueView) -> Iterator[LintFinding]:
    """Values that condor_submit refuses, or splits in another way than they look."""
    for key, split in (("arguments", split_arguments), ("environment", split_environment)):
        for value in dict.fromkeys(value for (value,) in view.each(key)):
            try:
                list(split(value))
            except ValueError as problem:
                remedy = 'begin and end it with one ", and write each " inside as ""'
                if key == "arguments" and not value.startswith('"'):
                    remedy = "put all of it in \"…\", and each group of words in '…'"
                elif key == "environment":
                    remedy = 'environment = "A=1 B=2"'
                yield error(key, f"condor_submit refuses it: {problem}", remedy, *view.at(key))
                break
    value, at = view.value("environment"), view.at("environment")
    names = r"[A-Za-z_]\w*="
    if value.startswith('"') and re.search(rf";\s*{names}", value) and not re.search(r"\s", value):
        what = "inside quotes, spaces separate the variables: the ; becomes part of the first value"
        yield warning("environment", what, f"environment = {value.replace(';', ' ')}", *at)
    elif not value.startswith('"') and ";" not in value and re.search(rf"=\S*\s+{names}", value):
        what = (
            "without quotes, ; separates the variables: all of this becomes the first one's value"
        )
        yield warning("environment", what, f'environment = "{value}"', *at)


def _strings(view: QueueView) -> Iterator[LintFinding]:
    """Text attributes without quotes, which ClassAds take for the names of other attributes."""
    for key in _STRINGS:
        given = view.description.assignment(key)
        if given is None or not given.key.lower().startswith(("+", "my.")):
            continue
        value = view.value(key)
        constant = value.lower() in ("true", "false", "undefined")
        if not constant and re.fullmatch(r"[A-Za-z_][\w./:-]*(?: [\w./:-]+)*", value):
            what = f"without quotes, {value} is the name of another attribute, which is not set"
            yield warning("quotes", what, f'{given.key} = "{value}"', *view.at(key))
    for key in ("log", "output", "error", "initialdir", "container_image"):
        value = view.value(key)
        if len(value) > 2 and value[0] == '"' == value[-1]:
            what = "condor_submit takes the quotes as part of the name"
            yield error("quotes", what, f"{key} = {value[1:-1]}", *view.at(key))


def _macros(view: QueueView) -> Iterator[LintFinding]:
    """Macros that a submit command uses and nothing sets."""
    description = view.description
    for name, given in description.assignments.items():
        if is_command(given.key):
            description.text(name)  # this notes the macros that are not set
    for name in sorted(description.unset):
        what = f"{name} is not set in this shell: condor_submit would write UNDEFINED"
        remedy = f"export {name}=…, or $ENV({name}:default)"
        yield warning("env-unset", what, remedy, *_mention(view, f"$ENV({name}"))
    names = sorted(description.undefined, key=str.lower)
    if names:
        shown = first_few([f"$({name})" for name in names])
        verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
        what = f"nothing in the file sets {shown}, which {verb} empty unless the command line sets"
        remedy = f"condor_submit {names[0]}=… {view.name}, or VARS in a DAG"
        yield hint("macro-unset", f"{what} {them}", remedy, *_mention(view, f"$({names[0]}"))


def _mention(view: QueueView, text: str) -> tuple[str, str]:
    for number, line in enumerate(view.file.lines, 1):
        if text.lower() in line.lower() and not line.lstrip().startswith("#"):
            return f"{view.name}:{number}", line.strip()
    return view.name, ""


def _rows(view: QueueView) -> Iterator[LintFinding]:
    queue, odd = view.description.queue, view.description.odd_rows
    at = (f"{view.name}:{queue.first}", queue.text) if queue else (view.name, "")
    if odd and queue:
        shown = first_few([str(number) for number, _ in odd])
        kinds = {"empty lines": any(not t for _, t in odd), "comments": any(t for _, t in odd)}
        these = " and ".join(kind for kind, there in kinds.items() if there)
        what = f"its file of rows has {these} (line {shown}), and HTCondor makes a job of each"
        yield warning("rows", what, "delete these lines", *at)
    if view.description.trouble is None:
        return
    reason = str(view.description.trouble).partition("\n")[0]
    reason = re.sub(r"\Aline \d+: ", "", reason).removeprefix(f"{at[1]}: " if queue else "")
    if "there is no file" in reason or "number of jobs" in reason or "names of variables" in reason:
        what = f"{reason}: condor_submit refuses the file"
        yield error("queue", what, "correct the queue line", *at)
    elif "matches" in reason:
        what = f"{reason} in {view.here}: it queues no job"
        yield error("queue", what, "correct the pattern, or change the folder", *at)
    elif "queues no job" in reason:
        yield warning("queue", "it queues no job", "queue 1, or more", *at)


# -- syntax


def _syntax(file: SubmitFile, name: str) -> Iterator[LintFinding]:
    strange = list(_strange_lines(file, name))
    yield from strange
    if any(finding.id == "not-submit" for finding in strange):
        return
    for statement in file.statements:
        at = _line(name, statement)
        if statement.kind != "nothing":
            yield from _comments(statement, name)
        if statement.key == UNCLOSED:
            what = "it is never closed: condor_submit refuses the file"
            yield error("unclosed", what, "end it with a line that has @ and the same word", *at)
        elif statement.kind == "branch" and statement.key in ("if", "elif"):
            text = statement.value.strip().lstrip("!").strip()
            plain = re.match(r"version\b|defined\b", text, re.I)
            if not plain and re.search(r"[=<>]=|[<>]|&&|\|\|", text):
                what = "condor_submit's `if` knows `defined NAME`, `version >= …`, true and false,"
                what += " and refuses comparisons"
                remedy = "set a macro that is true or false: if $(big)"
                yield error("if-condition", what, remedy, *at)
    yield from _typos(file, name)
    queue = file.first_queue
    if queue is None:
        what = "there is no queue statement: condor_submit submits nothing"
        yield hint("no-queue", what, "queue, unless you give it on the command line", name)
        return
    after = [s for s in file.statements if s.first > queue.last and s.kind != "nothing"]
    if any(s.kind == "queue" for s in after):
        what = "it stands after the first queue statement: recent HTCondor (25) refuses the file"
        remedy = "one queue statement, with a table: queue a, b from (…)"
        yield warning("after-queue", what, remedy, *_line(name, after[0]))
    elif after:
        what = "it stands after the last queue statement: no job has it"
        yield warning("after-queue", what, "move it up", *_line(name, after[0]))


def _line(name: str, statement: Statement) -> tuple[str, str]:
    return f"{name}:{statement.first}", statement.lines[0].strip()


def _strange_lines(file: SubmitFile, name: str) -> Iterator[LintFinding]:
    """Lines that condor_submit cannot read; a file full of them is something else."""
    strange = [s for s in file.statements if s.kind == "other" and not s.key]
    if not strange:
        return
    known = [s for s in file.statements if s.kind in ("assign", "queue")]
    writes = re.compile(r"<<-?\s*['\"]?\w|(?:echo|print|printf|cat)\b")
    script = next((s for s in strange if writes.search(s.value)), None)
    where, line = _line(name, script or strange[0])
    if script is not None:
        what = "this is a program that writes a submit file, not a submit file"
        yield error("not-submit", what, "run it, and check the file that it writes", where, line)
    elif len(strange) > 2 * len(known):
        what = "this is not a submit file: condor_submit cannot read most of its lines"
        yield error("not-submit", what, "name the file that you give to condor_submit", where, line)
    else:
        more = f", nor {len(strange) - 1} others" if len(strange) > 1 else ""
        what = f"condor_submit cannot read this line{more}, and refuses the file"
        remedy = "lines are NAME = VALUE; a comment begins with #"
        if re.search(r"\{\{|\{%|\$\{|^\$\w|^@\w+@|^<\w", line):
            remedy = "if another program fills it in, check the file that it writes"
        yield error("strange-line", what, remedy, where, line)


def _comments(statement: Statement, name: str) -> Iterator[LintFinding]:
    """Comments where HTCondor knows none: inside a continued line, and after a value."""
    for number, (before, line) in enumerate(pairwise(statement.lines), statement.first + 1):
        text = line.strip()
        if text.startswith("#") and before.rstrip().endswith("\\") and not text.endswith("\\"):
            what = "a comment inside a continued line ends it, and may become part of the value"
            remedy = "move it above the statement"
            yield warning("submit-comment", what, remedy, f"{name}:{number}", text)
    plain = statement.kind in ("assign", "queue") and statement.first == statement.last
    words = statement.name in ("arguments", "environment")
    match = re.search(r"\s#\s" if words else r"\s#", statement.value) if plain else None
    if match and statement.value[: match.start()].count('"') % 2 == 0:
        what = "a comment cannot follow a value: the # and everything after it are part of it"
        sure = not words and (is_command(statement.key) or statement.kind == "queue")
        remedy, at = "give the comment a line of its own", _line(name, statement)
        yield (error if sure else warning)("inline-comment", what, remedy, *at)


def _typos(file: SubmitFile, name: str) -> Iterator[LintFinding]:
    """Keys that are almost a command and that no `$(…)` uses: condor_submit ignores them."""
    texts = " ".join(s.value for s in file.statements if s.kind != "nothing")
    used = {match.lower() for match in _MACRO.findall(texts)}
    for statement in file.statements:
        key = statement.key
        if statement.kind != "assign" or not re.fullmatch(r"[A-Za-z]\w*", key):
            continue
        wanted = meant(key) if key.lower() not in used else ""
        if wanted:
            what = f"condor_submit knows no {key} and ignores the line"
            yield warning("typo", what, f"did you mean {wanted}?", *_line(name, statement))


# -- scripts


def _scripts(view: QueueView) -> Iterator[LintFinding]:
    cpus, gpus = view.value("request_cpus", "1"), view.value("request_gpus", "0")
    context = Context(
        checkpointed=view.has_line("checkpoint_exit_code"),
        cpus=int(cpus) if cpus.isdecimal() and len(cpus) < 9 else None,
        gpus=int(gpus) if gpus.isdecimal() and len(gpus) < 9 else None,
        provided=frozenset(base_name(item.rstrip("/")) for item in view.inputs()),
        arguments=tuple(view.words),
        contained=view.contained,
    )
    programs = [path for _, path in view.executables()]
    inputs = [path for _, path in view.local_inputs() if path not in programs]
    scripts = [(path, replace(context, program=True)) for path in programs[:_MOST_SCRIPTS]]
    scripts += [(path, context) for path in inputs[:_MOST_SCRIPTS]]
    options: set[str] = set()
    ignored = set()
    if view.transfers == "no" or view.runs_here:
        ignored = {"absolute-path", "home-file"}
    if view.runs_here:
        ignored.add("scratch-path")
    for path, how in scripts:
        text = read_script(path) if how.program or path.suffix in _SCRIPTS else None
        if text is None:
            continue
        for finding in script_traps(text, path.name, how):
            if finding.id in ("absolute-path", "home-file") and view.transfers != "yes":
                finding = replace(finding, severity=Severity.HINT)  # it may be shared
            if finding.id not in ignored:
                yield in_submit_file(finding)
        options |= worker_options(text)
    yield from asked_workers(view.words, context.cpus, *view.at("arguments"), options)


_CHECKS: tuple[Callable[[QueueView], Iterator[LintFinding]], ...] = (
    *(_gpus, _releases, _universe, _transfers, file_findings, _containers, _records),
    *(_checkpoints, _requests, _habits, _windows, _quoting, _strings, _macros, _rows, _scripts),
)
