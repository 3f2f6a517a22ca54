"""Files and paths of a submit description: are they where condor_submit, or the job, looks?"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from headway.pool.lint.evaluate import is_known, plain
from headway.pool.lint.queue_view import MOST_JOBS, QueueView
from headway.pool.lint.script_traps import read_script
from headway.pool.lint.submit_file import split_files
from headway.pool.lint.traps import (
    TEMPORARY,
    LintFinding,
    Severity,
    error,
    far_path,
    hint,
    path_in,
    scratch_path,
    warning,
)
from headway.spec import format_size
from headway.spec.errors import first_few
from headway.spec.places import FEDERATION_SCHEMES
from headway.text import closest

TRANSFER_LIMIT = 5000 * 2**20  # MAX_TRANSFER_INPUT_MB of the OSPool
_MOST_SIZED = 20_000  # files whose sizes are added up
_SHOWN = 3
_SYSTEM = re.compile(r"/(?:usr/(?:local/)?)?s?bin/[^/]+")
_ENVIRONMENT = re.compile(r"/(?:bin|Scripts)/(?:python[\d.]*|Rscript|R|julia|perl|ipython)\Z")
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|bash|sh|zsh|csh|Rscript|R|perl|julia|java|matlab")
# Keys whose values are paths of the access point: what a shell would fill in is not.
_PATH_KEYS = ("executable", "initialdir", "log", "output", "error", "input", "transfer_input_files")
_SHELL = re.compile(r"(?:^|[/=,\s\"'])(~(?=/)|\$\{?[A-Za-z_]\w*\}?)")


def file_findings(view: QueueView) -> Iterator[LintFinding]:
    """What is missing on the access point, then what the job would miss on the node."""
    lost = list(_lost(view))
    far = [each for each in lost if _of_another_machine(each[2]) and not _in_image(view, each)]
    yield from _elsewhere(view, far)
    lost = [each for each in lost if each not in far]
    folded = _not_here(view, lost)
    if folded is not None:
        yield folded
    else:
        yield from _executable(view, [(n, p) for key, n, p in lost if key == "executable"])
        for key in ("transfer_input_files", "input", "container_image"):
            yield from _inputs(view, key, [(n, p) for k, n, p in lost if k == key])
    yield from _copied_program(view)
    yield from _sizes(view)
    yield from _initial_folders(view)
    yield from _std_folders(view)
    yield from _shell_words(view)
    if not view.runs_here:
        yield from _node_paths(view)
        yield from _not_brought(view)
        yield from _outputs(view)
    yield from _overwritten(view)


# -- on the access point


def _lost(view: QueueView) -> Iterator[tuple[str, str, Path]]:
    """What is named and is not there: its key, its name, and where it was looked for."""
    for name, path in view.executables():
        if not os.path.isfile(path):
            yield "executable", name, path
    if view.transfers == "no":
        return
    for name, path in view.local_inputs():
        if not os.path.exists(path):
            yield "transfer_input_files", name, path
    for key in ("input", "container_image"):
        if key == "container_image" and view.value("transfer_container").lower().startswith("f"):
            continue
        for name, path in view.std_files(key):
            known = view.names_a_file(name) and not name.startswith(("/cvmfs/", '"'))
            if known and not os.path.exists(path):
                yield key, name, path


def _of_another_machine(path: Path) -> bool:
    """Whether not even the home, or the file system, of a path is here."""
    return not os.path.isdir(Path("/", *path.parts[1:3][: len(path.parts) - 2]))


def _in_image(view: QueueView, lost: tuple[str, str, Path]) -> bool:
    """Whether a missing executable may be one of the image."""
    key, name, _ = lost
    inside = name.startswith("/") and not far_path(name, contained=True)
    return view.contained and key == "executable" and inside


def _elsewhere(view: QueueView, lost: list[tuple[str, str, Path]]) -> Iterator[LintFinding]:
    """One sentence for a file that was written for another machine."""
    far = [(key, path) for key, _, path in lost]
    gone = [path for path in view.folders() if not os.path.isdir(path)]
    far += [("initialdir", path) for path in gone if _of_another_machine(path)]
    if not far:
        return
    where, line = view.at(far[0][0])
    shown = first_few([str(path) for _, path in far], 2)
    verb = "is" if len(far) == 1 else "are"
    refused = any(key in ("executable", "initialdir") for key, _ in far)
    end = "condor_submit refuses the file here" if refused else "a job from here is held"
    what = f"{shown} {verb} not on this machine: {end}"
    remedy = "check the file where you submit it"
    yield warning("other-machine", where, what, remedy, line)


def _not_here(view: QueueView, lost: list[tuple[str, str, Path]]) -> LintFinding | None:
    """One sentence instead of many where nothing is there: probably this is not the folder."""
    relative = {(name, path) for _, name, path in lost if not name.startswith("/")}
    named = [*view.executables(), *view.local_inputs()]
    wanted = {(name, path) for name, path in named if not name.startswith("/")}
    if len(wanted) < 2 or not wanted <= relative:
        return None
    names = first_few(sorted({name for name, _ in wanted}), _SHOWN)
    what = f"none of the {len(wanted):,} files that it names is in {view.here}: {names}"
    remedy = "call this in the folder in which you call condor_submit: paths are taken from there"
    return error("not-here", view.name, what, remedy)


def _executable(view: QueueView, lost: list[tuple[str, Path]]) -> Iterator[LintFinding]:
    where, line = view.at("executable")
    for name, path in lost[:_SHOWN]:
        first, _, rest = name.partition(" ")
        what = f"there is no {path}: condor_submit refuses the file"
        remedy = "correct the name"
        if not name.startswith("/"):
            remedy += ", or call condor_submit in the folder that it is relative to"
        make = error
        if name[:1] in "\"'":
            what = "condor_submit takes the quotes for a part of the name"
            remedy = "take the quotes out"
        elif rest and (os.path.exists(view.here / first) or _INTERPRETER.fullmatch(first)):
            what = f"condor_submit takes all of `{name}` for the name of one file"
            remedy = f"executable = {first}, and arguments = {rest}"
        elif view.contained and name.startswith("/"):
            what = f"there is no {name} on this machine; recent HTCondor refuses the file"
            remedy = "if it is in the image, write transfer_executable = false"
            make = warning
        elif _INTERPRETER.fullmatch(name):
            program = name if view.contained else f"/usr/bin/{name}"
            what = f"there is no {name} in {path.parent}: condor_submit does not search the PATH"
            remedy = f"executable = {program}, and transfer_executable = false"
        elif os.path.isdir(path):
            what, remedy = f"{path} is a folder", "name the program in it"
        else:
            near = _like(path)
            remedy = f"did you mean {near}?" if near else remedy
        yield make("executable-missing", where, what, remedy, line)
    for name, path in view.executables():
        if os.path.isfile(path) and not path.stat().st_size:
            what = f"{name} is empty: condor_submit refuses the file"
            yield error("executable-missing", where, what, "name the right file", line)


def _like(path: Path) -> str | None:
    """A file beside a missing one that has almost its name."""
    try:
        names = [entry.name for entry in os.scandir(path.parent)][:1000]
    except OSError:
        return None
    alike = [name for name in names if Path(name).suffix == path.suffix]
    return closest(path.name, alike, cutoff=0.85)


def _inputs(view: QueueView, key: str, lost: list[tuple[str, Path]]) -> Iterator[LintFinding]:
    if not lost:
        return
    where, line = view.at(key)
    name, path = lost[0]
    parts = name.split()
    if len(parts) > 1 and any(os.path.exists(path.parent / part) for part in parts):
        what = f"HTCondor takes `{name}` for one file: commas part the names, blanks do not"
        yield error("input-missing", where, what, f"{key} = {', '.join(parts)}", line)
        return
    what = f"there is no {path}"
    if len(lost) > 1:
        shown = first_few([str(each) for _, each in lost], _SHOWN)
        more = " or more" if view.jobs > MOST_JOBS else ""
        what = f"{len(lost):,}{more} of the inputs do not exist: {shown}"
    near = _like(path)
    remedy = f"did you mean {near}?" if near else "correct the name, or take it out"
    if key == "container_image" and not name.endswith(".sif") and name[0] not in "./":
        remedy = f"for an image of a registry: container_image = docker://{name}"
    yield error("input-missing", where, f"{what}. The job is held (code 13)", remedy, line)


def _copied_program(view: QueueView) -> Iterator[LintFinding]:
    """An interpreter of this machine that goes with the job without what it needs."""
    if view.transfers == "no" or view.runs_here or view.universe in ("java", "grid"):
        return
    where, line = view.at("executable")
    remedy = f"transfer_executable = false, if the {'image' if view.contained else 'node'} has it;"
    remedy += " or a script that starts it"
    for name, path in view.executables():
        if name.startswith("/cvmfs/"):
            continue
        if _ENVIRONMENT.search(name) and not _SYSTEM.fullmatch(name):
            what = f"HTCondor copies the file {path.name} alone to the node, without the packages"
            what += f" around it in {path.parent.parent}"
            make = warning if view.transfers == "yes" else hint
            yield make("program-copied", where, what, remedy, line)
        elif _SYSTEM.fullmatch(name) and os.path.isfile(path):
            what = f"HTCondor copies this machine's {name} to the node, without its libraries"
            yield hint("program-copied", where, what, remedy, line)


def _sizes(view: QueueView) -> Iterator[LintFinding]:
    where, line = view.at("transfer_input_files")
    yield from _too_large(view, where, line)
    for item in view.inputs():
        scheme = item.split("://", 1)[0].lower().rpartition("+")[2]
        if "://" in item and scheme in FEDERATION_SCHEMES:
            what = (
                f"{item}: HTCondor cuts a transfer off after an hour even while bytes flow, and"
                " begins again from nothing (140 GB need 40 MB/s)"
            )
            remedy = "`headway wrap` has the agent stage it in, from within the job"
            yield hint("hour-cut", where, what, remedy, line)
        if item.lower().split("?")[0].endswith(".zip"):
            what = f"{item}: `unzip` is missing in many containers"
            yield hint("zip", where, what, "repack it as .tar", line)


def _too_large(view: QueueView, where: str, line: str) -> Iterator[LintFinding]:
    """What goes through HTCondor's own transfer to a single job."""
    if view.transfers == "no":
        return
    sizes: dict[str, int] = {}
    first = view.each("initialdir", "transfer_input_files")[0]
    items = set(split_files(first[1]))  # of one job: others have other files
    for item, path in view.local_inputs():
        if item in items and item not in sizes:
            sizes[item] = _size(path)
    total = sum(sizes.values())
    if total <= TRANSFER_LIMIT:
        return
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


def _size(path: Path) -> int:
    """The bytes of a file, or of a folder's files as far as they can be counted quickly."""
    try:
        if path.is_file():
            return path.stat().st_size
        total = counted = 0
        for folder, _, files in os.walk(path):
            for name in files:
                counted += 1
                total += os.lstat(os.path.join(folder, name)).st_size
                if counted > _MOST_SIZED:
                    return total
        return total
    except OSError:
        return 0


def _initial_folders(view: QueueView) -> Iterator[LintFinding]:
    where, line = view.at("initialdir")
    if not line:
        return
    lost = [folder for folder in view.folders() if not os.path.isdir(folder)]
    lost = [folder for folder in lost if not view.is_template(str(folder))]
    lost = [folder for folder in lost if not _of_another_machine(folder)]
    if lost and not view.for_windows:
        shown = first_few([str(folder) for folder in lost], _SHOWN)
        what = f"there is no folder {shown}: condor_submit refuses the file"
        yield error("folder-missing", where, what, _make(lost, view.here), line)


def _std_folders(view: QueueView) -> Iterator[LintFinding]:
    """Folders of log, output and error: who makes those that are missing?

    Recent HTCondor does, for the event log and for what it transfers. It does not where the
    program's output is opened in place: without transfer, streamed, or in the local universe.
    """
    told = {folder for folder in view.folders() if not os.path.isdir(folder)}
    old: dict[Path, str] = {}  # folder -> the key that names it
    for key in ("output", "error", "log"):
        in_place = view.transfers == "no" or view.runs_here or view.is_true(f"stream_{key}")
        lost: dict[Path, None] = {}
        for name, path in view.std_files(key):
            if not is_known(name.rpartition("/")[0]) or view.is_template(plain(name)):
                continue
            missing = not os.path.isdir(path.parent) and not _of_another_machine(path)
            if missing and path.parent not in told and not view.for_windows:
                lost[path.parent] = None
        if lost and in_place and key != "log":
            where, line = view.at(key)
            shown = first_few([str(folder) for folder in lost], _SHOWN)
            what = f"there is no folder {shown}, and HTCondor makes none here: the job is held"
            yield error("folder-missing", where, what, _make(list(lost), view.here), line)
            told |= set(lost)
        else:
            old |= {folder: key for folder in lost if folder not in old}
    old = {folder: key for folder, key in old.items() if folder not in told}
    if old:
        where, line = view.at(next(iter(old.values())))
        shown = first_few([str(folder) for folder in old], _SHOWN)
        what = f"there is no folder {shown}: recent HTCondor makes it, older versions hold the job"
        yield hint("folder-missing", where, what, _make(list(old), view.here), line)


def _make(folders: list[Path], here: Path) -> str:
    if len(folders) > 1:
        return "make them first: mkdir -p …"
    inside = folders[0].is_relative_to(here)
    return f"mkdir -p {shlex.quote(str(folders[0].relative_to(here) if inside else folders[0]))}"


def _shell_words(view: QueueView) -> Iterator[LintFinding]:
    """`~` and `$HOME`, which a shell would fill in and condor_submit does not."""
    for key in (*_PATH_KEYS, "arguments", "environment"):
        raw = re.sub(r"\$\$?\w*\([^()]*\)", "", view.raw(key))
        match = _SHELL.search(raw)
        if match is None:
            continue
        where, line = view.at(key)
        word = match[1]
        name = word.strip("${}")
        remedy = f"write $ENV({'HOME' if word == '~' else name}), or the path itself"
        if key not in _PATH_KEYS:
            if _starts_a_shell(view):
                continue
            what = f"`{word}` reaches the program as it stands: no shell fills it in"
            remedy = "leave it to a script that the job starts"
            if name.startswith("_CONDOR") or name in ("TMPDIR", "HOME", "USER", "PWD"):
                remedy = f"read {name} in the program, or in a script that the job starts"
            yield hint("shell-word", where, what, remedy, line)
        else:
            what = f"condor_submit does not fill in `{word}`: it is taken for a part of the name"
            yield error("shell-word", where, what, remedy, line)


def _starts_a_shell(view: QueueView) -> bool:
    """`bash -c '…'` fills in what condor_submit leaves alone."""
    return view.words[:1] == ["-c"] or view.has_line("shell") or "-c" in view.words[:2]


# -- on the node


def _node_paths(view: QueueView) -> Iterator[LintFinding]:
    """Absolute paths that the program gets, which the node may not have."""
    far: list[str] = []
    scratch: list[str] = []
    near = re.search(
        r"has\w{0,40}staging|filesystemdomain|has_?cvmfs", view.value("requirements"), re.I
    )
    keys: dict[str, None] = {}
    for key, words in (
        ("arguments", view.all_words),
        ("environment", [value for _, value in view.variables]),
        ("executable", [] if view.sends_executable else [view.value("executable")]),
    ):
        for word in words:
            if scratch_path(word):
                scratch.append(word)
                keys[key] = None
            elif far_path(word, view.contained) and not (near and "/staging/" in word):
                far.append(word)
                keys[key] = None
    where, line = view.at(next(iter(keys), "arguments"))
    if far and view.transfers != "no":
        what = f"the node has no {first_few(_once(far), 2)}, unless it mounts that file system"
        remedy = "name it in transfer_input_files, and use its last name: the job starts beside it"
        make = warning if view.transfers == "yes" else hint
        yield make("absolute-path", where, what, remedy, line)
    if scratch:
        what = f"{first_few(_once(scratch), 2)} lies outside the job's folder on the node: it may"
        what += " be missing or full, other jobs write there too, and nobody cleans up"
        remedy = "use the job's own folder: a relative path, or $_CONDOR_SCRATCH_DIR in a script"
        make = hint if all(TEMPORARY.search(word) for word in scratch) else warning
        yield make("scratch-path", where, what, remedy, line)


def _once(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(path_in(word) for word in words))


def _not_brought(view: QueueView) -> Iterator[LintFinding]:
    """Files of this folder that the arguments name and that stay behind, or arrive elsewhere."""
    files = "transfer_input_files"
    if view.transfers == "no" or view.universe in ("grid", "vm") or view.perhaps(files):
        return
    inputs = {posixpath.normpath(item): item for item in view.inputs()}
    names = {posixpath.basename(item) for item in inputs}
    emptied = {item for item, given in inputs.items() if given.endswith("/")}  # what is in them
    folders = view.folders() or [view.here]
    where, line = view.at("arguments")
    make = warning if view.transfers == "yes" else hint
    for word in dict.fromkeys(view.words):
        value = word.partition("=")[2] if word.startswith("-") else word
        name = posixpath.normpath(value) if value else "."
        folder, last = posixpath.split(name)
        if name.startswith(("/", ".", "$", "~")) or "$(" in name or "://" in name:
            continue
        if "." not in last or not any(os.path.isfile(base / name) for base in folders):
            continue
        if name in inputs and folder and not view.is_true("preserve_relative_paths"):
            what = f"{name} arrives as {last}: HTCondor puts all inputs side by side"
            remedy = f"name it {last} in the arguments, or preserve_relative_paths = true"
            yield make("flattened", where, what, remedy, line)
        elif not (last in names or name.partition("/")[0] in names or {".", folder} & emptied):
            what = f"{name} is here, but does not go with the job"
            remedy = f"{files} = {', '.join([*view.inputs()[:_SHOWN], name])}"
            yield make("not-brought", where, what, remedy, line)


def _outputs(view: QueueView) -> Iterator[LintFinding]:
    where, line = view.at("transfer_output_files")
    items = split_files(view.value("transfer_output_files"))
    for name in items:
        if name.startswith("/") and "$" not in name:
            what = f"the node is asked for {name}, an absolute path, and not for a file of the job"
            remedy = "name what the job writes; where it goes is said by transfer_output_remaps"
            yield warning("output-path", where, what, remedy, line)
    names = [name for name in items if "$" not in name and not name.startswith("/")]
    names = [name for name in names if not view.is_template(name)]
    if not names:
        return
    paths = [path for _, path in (*view.executables(), *view.local_inputs())]
    scripts = [read_script(path) for path in paths]
    text = "\n".join((view.value("arguments"), *(script for script in scripts if script)))
    doubtful = [n for n in names if n.rstrip("/").rsplit("/", 1)[-1] not in text and any(scripts)]
    shown = first_few(doubtful or names, _SHOWN)
    what = f"if {shown} is missing the job is held (code 12), also when the program failed"
    remedy = "name one folder that always exists: mkdir -p it at the start"
    if doubtful:
        what += f"; no script of this job mentions {'it' if len(doubtful) == 1 else 'them'}"
    severity = Severity.WARNING if doubtful else Severity.HINT
    yield LintFinding(severity, where, what, remedy, "output-missing", line)


def _overwritten(view: QueueView) -> Iterator[LintFinding]:
    """Files of the access point that several jobs, or the job and HTCondor, write."""
    log = view.said.text("log")
    for key in ("output", "error"):
        if log and posixpath.normpath(view.said.text(key) or ".") == posixpath.normpath(log):
            where, line = view.at(key)
            what = f"{key} and log are one file: the job writes over HTCondor's event log"
            yield warning("same-file", where, what, f"{key} = {_stem(plain(log))}.{key[:3]}", line)
            break
    if view.jobs < 2:
        return
    folders = view.said.text("initialdir")
    for key in ("output", "error"):
        value = view.said.text(key)
        chance = re.search(r"\x01\?\$(?:RANDOM|\(JobId)", value, re.I)
        # what HTCondor fills in (its number, the date) is the same for all jobs of a queue
        same = is_known(re.sub(r"\x01\?[^\x02]*\x02", "", value + folders)) and not chance
        if value and value != "/dev/null" and same:
            where, line = view.at(key)
            what = f"its {view.jobs:,} jobs write one file, each over the last: {plain(value)}"
            yield warning("same-file", where, what, f"{key} = {_numbered(plain(value))}", line)
            break
    value = view.said.text("transfer_output_files")
    moved = view.has_line("transfer_output_remaps") or view.has_line("output_destination")
    if split_files(value) and is_known(value + folders) and not moved and view.transfers != "no":
        where, line = view.at("transfer_output_files")
        name = posixpath.basename(split_files(value)[0].rstrip("/"))
        what = f"the {name} of {view.jobs:,} jobs come back to one folder, each over the last"
        remedy = f'transfer_output_remaps = "{name}={_numbered(name)}", or one initialdir a job'
        make = warning if "." in name else hint  # a folder may hold other names for each job
        yield make("same-file", where, what, remedy, line)


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def _numbered(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.rpartition(".")
    if not stem:
        stem, dot, ending = last, "", ""
    return f"{folder}{slash}{stem}.$(Process){dot}{ending}"
