"""What is risky in a submit description, said before it costs an attempt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from headway.pool.lint.evaluate import at_each_queue
from headway.pool.lint.queue_view import BATCH, QueueView, submit_folder
from headway.pool.lint.script_traps import read_script, script_traps, worker_options
from headway.pool.lint.shell_traps import asked_workers
from headway.pool.lint.submit_file import (
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
    error,
    hint,
    in_submit_file,
    warning,
    worst_first,
)
from headway.spec.errors import first_few

_GPU_KEYS = (
    "gpus_minimum_memory",
    "gpus_minimum_capability",
    "gpus_maximum_capability",
    "gpus_minimum_runtime",
    "require_gpus",
)
_BOUNDS = re.compile(r"num(?:system)?holds|numshadowstarts|jobruncount|numjobmatches", re.I)
_BEFORE_START = {"6", "7", "8", "13", "14"}  # hold codes of jobs that may never have started
_UNIVERSES = (
    *("vanilla", "docker", "container", "java", "parallel", "grid", "vm", "local", "scheduler"),
)
_GRIDS = ("condor", "batch", "arc", "ec2", "gce", "azure", "blah", "pbs", "lsf", "sge")
_STRINGS = (
    *("ProjectName", "JobFlavour", "SingularityImage", "AccountingGroup", "JobBatchName"),
    *("JobDurationCategory", "GPUJobLength", "DESIRED_Sites", "UNDESIRED_Sites", "Project"),
    *("ProjectDescription", "Group"),
)
_MACRO = re.compile(r"\$\w*\(\s*([A-Za-z_][\w.]*)")
_HOSTS = re.compile(r'\bMachine\s*(?:==|=\?=)\s*"([^"]{1,200})"', re.I)
_ALWAYS = ("complete", "always")


def file_risks(path: Path, here: Path | None = None) -> list[LintFinding]:
    """The risks of a submit description on disk, and of the scripts that it names.

    Args:
        path: the submit file.
        here: the folder in which condor_submit would be called; None: the one that we are in.

    Returns:
        The findings, worst first.

    Raises:
        HeadwayError: the file cannot be read, or is no submit description.
    """
    return text_risks(read_text(path), path, here)


def text_risks(text: str, path: Path, here: Path | None = None) -> list[LintFinding]:
    """The same for the text of a submit file that has been read already."""
    here = here or Path()
    folder = submit_folder(read(text), path.parent, here)
    found = risks(text, folder, path.name)
    if folder.absolute() != here.absolute():
        what = f"its files are not in {here.absolute()}: they were looked for in"
        what += f" {folder.absolute()}"
        remedy = f"condor_submit takes paths from where it is called: cd {folder} first"
        found = worst_first([warning("other-folder", path.name, what, remedy), *found])
    return found


def risks(text: str, here: Path, name: str = "job.sub") -> list[LintFinding]:
    """The risks of a submit description.

    Args:
        text: the submit file's text.
        here: the folder in which condor_submit is called.
        name: the file's name, for the findings.

    Returns:
        The findings of all its `queue` statements, worst first, each once.
    """
    file = read(text)
    found = list(_syntax(file, name))
    if not any(finding.id == "not-submit" for finding in found):
        for said in at_each_queue(text, here.absolute()):
            view = QueueView(file, said, here, name)
            found += [finding for check in _CHECKS for finding in check(view)]
    return worst_first(_once_a_file(found))


def _once_a_file(findings: list[LintFinding]) -> Iterator[LintFinding]:
    """The same trap on many lines of one script is said once, with the other lines."""

    def kind(finding: LintFinding) -> tuple[str, str]:
        place, _, line = finding.where.rpartition(":")
        return (finding.id, place) if line.isdecimal() else (finding.id, finding.where)

    once = list(dict.fromkeys(findings))
    order = {key: number for number, key in reversed(list(enumerate(map(kind, once))))}
    for (id, where), group in groupby(sorted(once, key=lambda f: order[kind(f)]), key=kind):
        same = list(group)
        if same[0].where == where:  # of the file as a whole: later queues add nothing
            yield same[0]
            continue
        lines = [f.where.rpartition(":")[2] for f in same[1:]]
        few = 4 if id in _EACH else 3
        if len(same) < few or not all(line.isdecimal() for line in lines):
            yield from same
            continue
        first = worst_first(same)[0]
        others = [f.where.rpartition(":")[2] for f in same if f is not first]
        places = f"line{'s' if len(others) > 1 else ''} {first_few(list(dict.fromkeys(others)))}"
        yield replace(first, what=f"{first.what}. Also {places}")


_EACH = ("no-unit", "folder-missing", "input-missing", "executable-missing", "typo", "same-file")


# -- requests and policy


def _gpus(view: QueueView) -> Iterator[LintFinding]:
    if view.asks_for_gpus or view.perhaps("request_gpus"):
        return
    for key in _GPU_KEYS:
        if view.has_line(key):
            where, line = view.at(key)
            yield error(
                "gpu-keys",
                where,
                f"{key} is silently ignored without request_gpus: the job runs where no GPU is",
                "request_gpus = 1",
                line,
            )
    asked = re.search(r"\b(?:CUDA\w+|TotalGPUs|GPUs_\w+)\b", view.value("requirements"))
    if asked:
        where, line = view.at("requirements")
        what = f"{asked[0]} finds a machine with GPUs; without request_gpus none is the job's own"
        yield warning("gpu-keys", where, what, "request_gpus = 1", line)


def _releases(view: QueueView) -> Iterator[LintFinding]:
    value = view.value("periodic_release")
    if not value or value.lower() in ("false", "0") or _BOUNDS.search(value):
        return
    where, line = view.at("periodic_release")
    slot = "GPU" if view.asks_for_gpus else "slot"
    what = f"releases for ever: a job that cannot succeed takes a {slot} again and again"
    if re.search("numjobstarts", value, re.I):
        codes = re.findall(r"holdreasoncode\s{0,9}=\??=\s{0,9}(\d{1,9})", value, re.I)
        if codes and not set(codes) & _BEFORE_START:
            return
        what = "NumJobStarts stays 0 when input transfers fail: the job is released for ever"
    remedy = "bound it: NumHolds <= 5 && NumShadowStarts <= 30, or leave it to `headway wrap`"
    yield warning("release-unbounded", where, what, remedy, line)


def _universe(view: QueueView) -> Iterator[LintFinding]:
    where, line = view.at("universe")
    universe = view.universe
    if "$(" in universe:
        return
    if universe in ("standard", "mpi", "globus", "pvm", "pipe", "linda"):
        what = f"HTCondor has no {universe} universe any more: condor_submit refuses the file"
        remedy = "universe = parallel" if universe in ("mpi", "pvm") else "universe = vanilla"
        yield error("universe", where, what, remedy, line)
    elif universe not in _UNIVERSES:
        what = f"condor_submit knows no universe {universe}"
        yield error("universe", where, what, "universe = vanilla, or leave it out", line)
    needs = {"parallel": "machine_count", "grid": "grid_resource", "vm": "vm_type"}.get(universe)
    if needs and not view.has(needs) and not (needs == "machine_count" and view.has("node_count")):
        what = f"the {universe} universe needs {needs}: condor_submit refuses the file"
        yield error("universe", where, what, f"{needs} = …", line)
    if view.grid_type and view.grid_type not in _GRIDS and "$" not in view.grid_type:
        where, line = view.at("grid_resource")
        what = f"HTCondor knows no grid type {view.grid_type}: condor_submit refuses the file"
        remedy = "grid_resource = condor, batch, arc, ec2, gce or azure …"
        if view.grid_type == "slurm":
            remedy = f"grid_resource = batch {view.value('grid_resource')}"
        yield error("universe", where, what, remedy, line)
    images = [key for key in ("docker_image", "container_image") if view.has_line(key)]
    if universe == "docker" and "docker_image" not in images and not view.perhaps("docker_image"):
        what = "the docker universe needs docker_image: condor_submit refuses the file"
        yield error("universe", where, what, "docker_image = …", line)
    elif universe == "container" and not images and not view.perhaps("container_image"):
        what = "the container universe needs container_image: condor_submit refuses the file"
        yield error("universe", where, what, "container_image = …", line)
    elif len(images) == 2:
        where, line = view.at("docker_image")
        what = "docker_image and container_image together: condor_submit refuses the file"
        yield error("two-images", where, what, "keep one of them", line)
    needless = view.contained or view.universe == "vm" or view.has("shell") or view.grid_type
    if not view.has("executable") and not needless:
        what = "there is no executable: condor_submit refuses the file"
        yield error("executable-missing", view.name, what, "executable = the program")


def _transfers(view: QueueView) -> Iterator[LintFinding]:
    where, line = view.at("should_transfer_files")
    when = view.value("when_to_transfer_output").upper()
    given = view.value("should_transfer_files")
    if view.transfers == "no" and not view.runs_here:
        what = "HTCondor moves no files: the job runs only where this file system is mounted"
        if view.ospool:
            what = "the OSPool shares no file system with you: the job never matches"
            yield error("no-transfer", where, what, "should_transfer_files = YES", line)
        else:
            remedy = (
                "right on a cluster with a shared file system; else should_transfer_files = YES"
            )
            yield hint("no-transfer", where, what, remedy, line)
        listed = [k for k in ("transfer_input_files", "transfer_output_files") if view.value(k)]
        if listed and view.universe not in ("grid",):
            where, line = view.at(listed[0])
            what = f"{listed[0]} with should_transfer_files = {given}: condor_submit refuses it"
            yield error("transfer-conflict", where, what, "take one of the two out", line)
        if when not in ("", "NEVER") and "$" not in when:
            where, line = view.at("when_to_transfer_output")
            what = f"{when} with should_transfer_files = {given}: condor_submit refuses it"
            yield error("transfer-conflict", where, what, "take this line out", line)
    elif when == "ON_EXIT_OR_EVICT" and given.upper() == "IF_NEEDED":
        where, line = view.at("when_to_transfer_output")
        what = "ON_EXIT_OR_EVICT with should_transfer_files = IF_NEEDED: condor_submit refuses it"
        yield error("transfer-conflict", where, what, "should_transfer_files = YES", line)


def _containers(view: QueueView) -> Iterator[LintFinding]:
    if not view.has_line("SingularityImage"):
        return
    where, line = view.at("SingularityImage")
    remedy = "container_image = …, with universe = container or none"
    if view.has_line("container_image"):
        what = "+SingularityImage and container_image: which one holds depends on the site"
        yield warning("two-images", where, what, "keep container_image alone", line)
    else:
        what = "+SingularityImage is the older way: HTCondor does not transfer or check the image"
        yield hint("singularity-image", where, what, remedy, line)


def _records(view: QueueView) -> Iterator[LintFinding]:
    if not view.has("log"):
        what = "there is no event log: nobody can tell what became of the job, or where"
        yield warning("no-log", view.name, what, "log = job.log")
    prints = view.universe != "vm" and view.grid_type not in ("ec2", "gce", "azure")
    if prints and not view.has("output") and not view.has("error"):
        what = "there is no output and no error: what the program prints is lost"
        number = "" if view.jobs == 1 else ".$(Process)"
        remedy = f"output = job{number}.out, and error = job{number}.err"
        yield hint("no-output", view.name, what, remedy)

    where, line = view.at("max_retries")
    avoids = re.search("MachineAttr|HeadwayAvoid", view.value("requirements"))
    if line and view.value("max_retries") != "0" and not avoids and view.on_slots:
        what = "a retry may go straight back to the site where the job has just failed"
        yield hint("retry-same-site", where, what, "`headway wrap` adds a requirement", line)


def _checkpoints(view: QueueView) -> Iterator[LintFinding]:
    code, files = "checkpoint_exit_code", "transfer_checkpoint_files"
    if view.has_line(code) and not view.has(files):
        where, line = view.at(code)
        what = "every checkpoint transfers the whole scratch folder, inputs included"
        yield warning("checkpoint-files", where, what, f"{files} = the checkpoint alone", line)
    if view.has_line(files) and not view.has(code):
        where, line = view.at(files)
        what = "is ignored without checkpoint_exit_code: nothing is saved, the job begins anew"
        yield error("checkpoint-code", where, what, f"{code} = 85, and exit with it", line)


def _requests(view: QueueView) -> Iterator[LintFinding]:
    if not view.on_slots:
        return
    missing = []
    for key, unit, small in (("request_memory", "MiB", 100), ("request_disk", "KiB", 1_000_000)):
        where, line = view.at(key)
        value = view.value(key)
        if not view.has(key):
            missing.append(key)
        elif re.fullmatch(r"\d+", value):
            make = warning if int(value) < small else hint
            what = f"{value} without a unit means {value} {unit}"
            meant = "4 GB" if int(value) < small else f"{value} {unit[0]}B"
            yield make("no-unit", where, what, f"write the unit: {key} = {meant}", line)
        elif re.fullmatch(r"[\d.]+\s*[A-Za-z]+", value) and not re.fullmatch(
            r"[\d.]+\s*[KMGTP]?i?B?", value, re.I
        ):
            what = f"condor_submit cannot read {value}"
            yield error("no-unit", where, what, f"{key} = 4 GB", line)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        what = f"{' and '.join(missing)} {verb} not set: the pool's default is small, and a job"
        remedy = ", ".join(f"{key} = 4 GB" for key in missing)
        yield warning("no-request", view.name, f"{what} that uses more is held", remedy)


def _habits(view: QueueView) -> Iterator[LintFinding]:
    if view.ospool and not view.has("JobDurationCategory"):
        what = "no +JobDurationCategory: the OSPool takes it for Medium and holds it after 20 h"
        remedy = '+JobDurationCategory = "Medium" or "Long"'
        yield hint("duration", view.name, what, remedy)
    mails = view.value("notification", "never").lower()
    where, line = view.at("notification")
    if mails in (*_ALWAYS, "error", "start"):
        fails = " that fails" if mails == "error" else ""
        what = f"one mail for each job{fails}, and on many access points no mail at all"
        if mails in _ALWAYS or view.jobs != 1:
            yield hint("notification", where, what, "notification = never", line)
    elif mails != "never" and "$" not in mails:
        what = f"condor_submit refuses {mails}"
        yield error("notification", where, what, "notification = never", line)
    if view.is_true("getenv") and not view.runs_here:
        where, line = view.at("getenv")
        what = "all variables of the access point go with the job, with paths and libraries that"
        what += " the node may not have"
        make = hint if view.transfers == "no" else warning
        yield make("getenv", where, what, "name what is needed: environment = …", line)
    hosts = list(dict.fromkeys(_HOSTS.findall(view.value("requirements"))))
    if hosts and view.on_slots:
        where, line = view.at("requirements")
        what = f"the job waits for {first_few(hosts, 2)} alone, even while others are free"
        remedy = "ask for what the machine has: request_memory, gpus_minimum_memory, …"
        yield hint("pinned", where, what, remedy, line)


def _windows(view: QueueView) -> Iterator[LintFinding]:
    program = view.value("executable")
    asks = re.search(r"\bOpSys|iswindows", view.value("requirements"), re.I)
    if view.runs_here or not program.lower().endswith(BATCH) or asks:
        return
    if view.universe == "vanilla" and not view.perhaps("requirements"):
        where, line = view.at("executable")
        what = "runs on Windows alone, and from a Linux access point HTCondor asks for Linux"
        yield warning("windows", where, what, 'requirements = (OpSys == "WINDOWS")', line)


# -- values


def _quoting(view: QueueView) -> Iterator[LintFinding]:
    """What condor_submit refuses, or splits otherwise than it looks."""
    for key, split in (("arguments", split_arguments), ("environment", split_environment)):
        where, line = view.at(key)
        for value in dict.fromkeys(value for (value,) in view.each(key)):
            try:
                list(split(value))
            except ValueError as problem:
                what = f"condor_submit refuses it: {problem}"
                remedy = 'begin and end it with one ", and write each " inside as ""'
                if key == "arguments" and not value.startswith('"'):
                    remedy = "put all of it in \"…\", and each group of words in '…'"
                elif key == "environment":
                    remedy = 'environment = "A=1 B=2"'
                yield error(key, where, what, remedy, line)
                break
    value = view.value("environment")
    names = r"[A-Za-z_]\w*="
    if value.startswith('"') and re.search(rf";\s*{names}", value) and not re.search(r"\s", value):
        where, line = view.at("environment")
        what = "within quotes, blanks part the variables: the ; becomes a part of the first value"
        remedy = f"environment = {value.replace(';', ' ')}"
        yield warning("environment", where, what, remedy, line)
    elif not value.startswith('"') and ";" not in value and re.search(rf"=\S*\s+{names}", value):
        where, line = view.at("environment")
        what = "without quotes, ; parts the variables: all of this becomes the first one's value"
        yield warning("environment", where, what, f'environment = "{value}"', line)


def _strings(view: QueueView) -> Iterator[LintFinding]:
    """Attributes that are text and stand without quotes: ClassAds look for another attribute."""
    for key in _STRINGS:
        setting = view.said.setting(key)
        if setting is None or not setting.key.lower().startswith(("+", "my.")):
            continue
        value = view.value(key)
        if re.fullmatch(r"[A-Za-z_][\w./:-]*(?: [\w./:-]+)*", value) and value.lower() not in (
            *("true", "false", "undefined"),
        ):
            where, line = view.at(key)
            what = f"without quotes, {value} is the name of another attribute, which is not set"
            yield warning("quotes", where, what, f'{setting.key} = "{value}"', line)
    for key in ("log", "output", "error", "initialdir", "container_image"):
        value = view.value(key)
        if len(value) > 2 and value[0] == '"' == value[-1]:
            where, line = view.at(key)
            what = "condor_submit takes the quotes for a part of the name"
            yield error("quotes", where, what, f"{key} = {value[1:-1]}", line)


def _macros(view: QueueView) -> Iterator[LintFinding]:
    """Macros that nothing sets, as far as the values that count ask for them."""
    said = view.said
    keys = [name for name, setting in said.settings.items() if is_command(setting.key)]
    for name in keys:
        said.text(name)  # what it asks for is noted
    for name in sorted(said.unset):
        where, line = _mention(view, f"$ENV({name}")
        what = f"{name} is not set in this shell: condor_submit would write UNDEFINED"
        yield warning("env-unset", where, what, f"export {name}=…, or $ENV({name}:default)", line)
    names = sorted(said.undefined, key=str.lower)
    if names:
        where, line = _mention(view, f"$({names[0]}")
        shown = first_few([f"$({name})" for name in names])
        verb = "is" if len(names) == 1 else "are"
        what = f"{shown} {verb} set nowhere in the file, and empty unless the command line sets"
        what += " it" if len(names) == 1 else " them"
        remedy = f"condor_submit {names[0]}=… {view.name}, or VARS in a DAG"
        yield hint("macro-unset", where, what, remedy, line)


def _mention(view: QueueView, text: str) -> tuple[str, str]:
    for number, line in enumerate(view.file.lines, 1):
        if text.lower() in line.lower() and not line.lstrip().startswith("#"):
            return f"{view.name}:{number}", line.strip()
    return view.name, ""


def _rows(view: QueueView) -> Iterator[LintFinding]:
    odd = view.said.odd_rows
    if odd and view.said.queue:
        where, line = f"{view.name}:{view.said.queue.line}", view.said.queue.text
        shown = first_few([str(number) for number, _ in odd])
        kinds = {"empty lines": any(not t for _, t in odd), "comments": any(t for _, t in odd)}
        these = " and ".join(kind for kind, there in kinds.items() if there)
        what = f"its file of rows has {these} (line {shown}), and HTCondor makes a job of each"
        yield warning("rows", where, what, "delete these lines", line)
    trouble = view.said.trouble
    if trouble is None:
        return
    queue = view.said.queue
    where = f"{view.name}:{queue.line}" if queue else view.name
    reason = str(trouble).partition("\n")[0]
    reason = re.sub(r"\Aline \d+: ", "", reason).removeprefix(f"{queue.text}: " if queue else "")
    line = queue.text if queue else ""
    if "there is no file" in reason or "number of jobs" in reason or "names of variables" in reason:
        what = f"{reason}: condor_submit refuses the file"
        yield error("queue", where, what, "correct the queue line", line)
    elif "matches" in reason:
        what = f"{reason} in {view.here}: no job is queued"
        yield error("queue", where, what, "correct the pattern, or change the folder", line)
    elif "queues no job" in reason:
        yield warning("queue", where, "it queues no job", "queue 1, or more", line)


# -- syntax


def _syntax(file: SubmitFile, name: str) -> Iterator[LintFinding]:
    strange = list(_strange_lines(file, name))
    yield from strange
    if any(finding.id == "not-submit" for finding in strange):
        return
    yield from _comments(file, name)
    yield from _conditions(file, name)
    yield from _typos(file, name)
    for statement in file.statements:
        if statement.key == UNCLOSED:
            what = "is never closed: condor_submit refuses the file"
            where = f"{name}:{statement.first}"
            remedy = "end it with a line that has @ and the same word"
            yield error("unclosed", where, what, remedy, statement.value)
    queue = file.first_queue
    after = [s for s in file.statements if queue and s.first > queue.last]
    extra = next((s for s in after if s.kind != "nothing"), None)
    if extra is not None:
        another = any(s.kind == "queue" for s in after)
        what = "stands after the first queue statement: recent HTCondor (25) refuses the file"
        if not another:
            what = "stands after the last queue statement: no job has it"
        where = f"{name}:{extra.first}"
        remedy = (
            "one queue statement, with a table: queue a, b from (…)" if another else "move it up"
        )
        yield warning("after-queue", where, what, remedy, file.lines[extra.first - 1].strip())
    if queue is None:
        what = "there is no queue statement: nothing is submitted"
        yield hint("no-queue", name, what, "queue, unless you give it on the command line")


def _strange_lines(file: SubmitFile, name: str) -> Iterator[LintFinding]:
    """Lines that condor_submit cannot read; a file that is full of them is something else."""
    strange = [s for s in file.statements if s.kind == "other" and not s.key]
    if not strange:
        return
    said = [s for s in file.statements if s.kind in ("assign", "queue")]
    first = strange[0]
    where, line = f"{name}:{first.first}", file.lines[first.first - 1].strip()
    writes = re.compile(r"<<-?\s*['\"]?\w|(?:echo|print|printf|cat)\b")
    script = next((s for s in strange if writes.search(s.value)), None)

    if script is not None:
        where, line = f"{name}:{script.first}", file.lines[script.first - 1].strip()
        what = "this is a program that writes a submit file, not a submit file"
        remedy = "run it, and check the file that it writes"
        yield error("not-submit", where, what, remedy, line)
    elif len(strange) > 2 * len(said):
        what = "this is not a submit file: condor_submit cannot read most of its lines"
        remedy = "name the file that you give to condor_submit"
        yield error("not-submit", where, what, remedy, line)
    else:
        more = f", nor {len(strange) - 1} others" if len(strange) > 1 else ""
        what = f"condor_submit cannot read this line{more}, and refuses the file"
        remedy = "lines are NAME = VALUE; a comment begins with #"
        if re.search(r"\{\{|\{%|\$\{|^\$\w|^@\w+@|^<\w", line):
            remedy = "if another program fills it in, check the file that it writes"
        yield error("strange-line", where, what, remedy, line)


def _comments(file: SubmitFile, name: str) -> Iterator[LintFinding]:
    """Comments where none may stand: after a value, and within a continued line."""
    for statement in file.statements:
        if statement.kind == "nothing":
            continue
        yield from _within(file, statement, name)
        plain = statement.kind in ("assign", "queue") and statement.first == statement.last
        words = statement.name in ("arguments", "environment")
        match = re.search(r"\s#\s" if words else r"\s#", statement.value) if plain else None
        if match is None or statement.value[: match.start()].count('"') % 2:
            continue
        where, line = f"{name}:{statement.first}", file.lines[statement.first - 1].strip()
        what = "a comment cannot follow a value: the # and all after it are a part of it"
        make = error
        if words or not (is_command(statement.key) or statement.kind == "queue"):
            make = warning
        yield make("inline-comment", where, what, "give the comment a line of its own", line)


def _within(file: SubmitFile, statement: Statement, name: str) -> Iterator[LintFinding]:
    for number in range(statement.first + 1, statement.last + 1):
        text = file.lines[number - 1].strip()
        before = file.lines[number - 2].rstrip()
        if text.startswith("#") and before.endswith("\\") and not text.endswith("\\"):
            what = "a comment within a continued line ends it, and may become a part of the value"
            where = f"{name}:{number}"
            yield warning("submit-comment", where, what, "move it above the statement", text)


def _conditions(file: SubmitFile, name: str) -> Iterator[LintFinding]:
    for statement in file.statements:
        if statement.kind != "branch" or statement.key not in ("if", "elif"):
            continue
        text = statement.value.strip().lstrip("!").strip()
        plain = re.match(r"version\b|defined\b", text, re.I)
        if not plain and re.search(r"[=<>]=|[<>]|&&|\|\|", text):
            where, line = f"{name}:{statement.first}", file.lines[statement.first - 1].strip()
            what = "condor_submit's `if` knows `defined NAME`, `version >= …`, true and false, and"
            what += " refuses comparisons"
            remedy = "set a macro that is true or false: if $(big)"
            yield error("if-condition", where, what, remedy, line)


def _typos(file: SubmitFile, name: str) -> Iterator[LintFinding]:
    """Keys that are almost a command and that nothing asks for: condor_submit ignores them."""
    texts = " ".join(s.value for s in file.statements if s.kind != "nothing")
    asked = {match.lower() for match in _MACRO.findall(texts)}
    for statement in file.statements:
        key = statement.key
        if statement.kind != "assign" or not re.fullmatch(r"[A-Za-z]\w*", key):
            continue
        wanted = meant(key) if key.lower() not in asked else ""
        if wanted:
            where, line = f"{name}:{statement.first}", file.lines[statement.first - 1].strip()
            what = f"condor_submit knows no {key} and ignores the line"
            yield warning("typo", where, what, f"did you mean {wanted}?", line)


# -- scripts


def _scripts(view: QueueView) -> Iterator[LintFinding]:
    cpus, gpus = view.value("request_cpus", "1"), view.value("request_gpus", "0")
    context = Context(
        checkpointed=view.has_line("checkpoint_exit_code"),
        cpus=int(cpus) if cpus.isdecimal() and len(cpus) < 9 else None,
        gpus=int(gpus) if gpus.isdecimal() and len(gpus) < 9 else None,
        provided=frozenset(item.rstrip("/").rsplit("/", 1)[-1] for item in view.inputs()),
        arguments=tuple(view.words),
        contained=view.contained,
    )
    program = replace(context, program=True)
    programs = [path for _, path in view.executables()]
    scripts = [(path, program) for path in programs[:_MOST_SCRIPTS]]
    inputs = [path for _, path in view.local_inputs() if path not in programs]
    scripts += [(path, context) for path in inputs[:_MOST_SCRIPTS]]
    options: set[str] = set()
    shared = view.transfers == "no" or view.runs_here
    unsaid = {"absolute-path", "home-file"} if shared else set()
    unsaid |= {"scratch-path"} if view.runs_here else set()
    for path, how in scripts:
        text = read_script(path) if how.program or path.suffix in _SCRIPTS else None
        if text is None:
            continue
        for finding in script_traps(text, path.name, how):
            if finding.id in ("absolute-path", "home-file") and view.transfers != "yes":
                finding = replace(finding, severity=Severity.HINT)  # it may be shared
            if finding.id not in unsaid:
                yield in_submit_file(finding)
        options |= worker_options(text)
    where, line = view.at("arguments")
    yield from asked_workers(view.words, context.cpus, where, line, options)


_MOST_SCRIPTS = 20  # of one queue
_SCRIPTS = (
    *(".py", ".sh", ".bash", ".csh", ".R", ".r", ".jl", ".pl", ".m", ".C", ".mac"),
    *(".yaml", ".yml", ".cfg", ".conf", ".ini", ".toml", ".json"),
)
_CHECKS: tuple[Callable[[QueueView], Iterator[LintFinding]], ...] = (
    _gpus,
    _releases,
    _universe,
    _transfers,
    file_findings,
    _containers,
    _records,
    _checkpoints,
    _requests,
    _habits,
    _windows,
    _quoting,
    _strings,
    _macros,
    _rows,
    _scripts,
)
