"""Checks of the files and paths in a submit description, on the access point and on the node."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path

from headway.pool.lint.evaluate import is_known, plain
from headway.pool.lint.queue_view import MOST_JOBS, QueueView
from headway.pool.lint.script_traps import read_script
from headway.pool.lint.submit_file import split_files
from headway.pool.lint.traps import (
    TEMPORARY,
    LintFinding,
    base_name,
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
# Keys whose values are paths of the access point, in which no shell expands anything.
_PATH_KEYS = ("executable", "initialdir", "log", "output", "error", "input", "transfer_input_files")
_SHELL = re.compile(r"(?:^|[/=,\s\"'])(~(?=/)|\$\{?[A-Za-z_]\w*\}?)")


def file_findings(view: QueueView) -> Iterator[LintFinding]:
    """What is missing on the access point, then what the job would miss on the node."""
    missing = list(_missing(view))
    far = [each for each in missing if _of_another_machine(each[2])]
    if view.contained:  # a missing executable may be in the image
        far = [each for each in far if each[0] != "executable" or far_path(each[1], contained=True)]
    yield from _elsewhere(view, far)
    missing = [each for each in missing if each not in far]
    wrong_folder = _wrong_folder(view, missing)
    if wrong_folder is not None:
        yield wrong_folder
    else:
        yield from _executable(view, [(n, p) for key, n, p in missing if key == "executable"])
        for key in ("transfer_input_files", "input", "container_image"):
            yield from _inputs(view, key, [(n, p) for k, n, p in missing if k == key])
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


def _missing(view: QueueView) -> Iterator[tuple[str, str, Path]]:
    """Each missing file: the key that names it, its name, and where it was looked for."""
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
    """Whether this machine lacks even the home folder, or the file system, of a path."""
    return not os.path.isdir(Path("/", *path.parts[1:3][: len(path.parts) - 2]))


def _elsewhere(view: QueueView, missing: list[tuple[str, str, Path]]) -> Iterator[LintFinding]:
    """One finding for a file that was written for another machine."""
    far = [(key, path) for key, _, path in missing]
    gone = [path for path in view.folders() if not os.path.isdir(path)]
    far += [("initialdir", path) for path in gone if _of_another_machine(path)]
    if not far:
        return
    shown = first_few([str(path) for _, path in far], 2)
    verb = "is" if len(far) == 1 else "are"
    refused = any(key in ("executable", "initialdir") for key, _ in far)
    end = "condor_submit refuses the file here" if refused else "a job from here is held"
    what = f"{shown} {verb} not on this machine: {end}"
    yield warning("other-machine", what, "check the file where you submit it", *view.at(far[0][0]))


def _wrong_folder(view: QueueView, missing: list[tuple[str, str, Path]]) -> LintFinding | None:
    """One finding instead of many if none of the files is here."""
    relative = {(name, path) for _, name, path in missing if not name.startswith("/")}
    named = [*view.executables(), *view.local_inputs()]
    wanted = {(name, path) for name, path in named if not name.startswith("/")}
    if len(wanted) < 2 or not wanted <= relative:
        return None
    names = first_few(sorted({name for name, _ in wanted}), _SHOWN)
    what = f"none of the {len(wanted):,} files that it names is in {view.here}: {names}"
    remedy = "call this in the folder in which you call condor_submit: paths are relative to it"
    return error("not-here", what, remedy, view.name)


def _executable(view: QueueView, missing: list[tuple[str, Path]]) -> Iterator[LintFinding]:
    at = view.at("executable")
    for name, path in missing[:_SHOWN]:
        first, _, rest = name.partition(" ")
        what = f"there is no {path}: condor_submit refuses the file"
        remedy = "correct the name"
        if not name.startswith("/"):
            remedy += ", or call condor_submit in the folder that it is relative to"
        make = error
        if name[:1] in "\"'":
            what, remedy = "condor_submit takes the quotes as part of the name", "remove the quotes"
        elif rest and (os.path.exists(view.here / first) or _INTERPRETER.fullmatch(first)):
            what = f"condor_submit takes all of `{name}` as the name of one file"
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
        yield make("executable-missing", what, remedy, *at)
    for name, path in view.executables():
        if os.path.isfile(path) and not path.stat().st_size:
            what = f"{name} is empty: condor_submit refuses the file"
            yield error("executable-missing", what, "name the right file", *at)


def _like(path: Path) -> str | None:
    """A file in the folder of a missing one that has almost its name."""
    try:
        names = [entry.name for entry in os.scandir(path.parent)][:1000]
    except OSError:
        return None
    alike = [name for name in names if Path(name).suffix == path.suffix]
    return closest(path.name, alike, cutoff=0.85)


def _inputs(view: QueueView, key: str, missing: list[tuple[str, Path]]) -> Iterator[LintFinding]:
    if not missing:
        return
    name, path = missing[0]
    parts = name.split()
    if len(parts) > 1 and any(os.path.exists(path.parent / part) for part in parts):
        what = f"HTCondor takes `{name}` as one file: commas separate names, spaces do not"
        yield error("input-missing", what, f"{key} = {', '.join(parts)}", *view.at(key))
        return
    what = f"there is no {path}"
    if len(missing) > 1:
        shown = first_few([str(each) for _, each in missing], _SHOWN)
        more = " or more" if view.jobs > MOST_JOBS else ""
        what = f"{len(missing):,}{more} of the inputs do not exist: {shown}"
    near = _like(path)
    remedy = f"did you mean {near}?" if near else "correct the name, or remove it"
    if key == "container_image" and not name.endswith(".sif") and name[0] not in "./":
        remedy = f"for an image of a registry: container_image = docker://{name}"
    yield error("input-missing", f"{what}. The job is held (code 13)", remedy, *view.at(key))


def _copied_program(view: QueueView) -> Iterator[LintFinding]:
    """An interpreter of this machine that goes with the job without what it needs."""
    if view.transfers == "no" or view.runs_here or view.universe in ("java", "grid"):
        return
    remedy = f"transfer_executable = false, if the {'image' if view.contained else 'node'} has it;"
    remedy += " or a script that starts it"
    for name, path in view.executables():
        if name.startswith("/cvmfs/"):
            continue
        if _ENVIRONMENT.search(name) and not _SYSTEM.fullmatch(name):
            what = f"HTCondor copies only the file {path.name} to the node, without the packages"
            what += f" around it in {path.parent.parent}"
            make = warning if view.transfers == "yes" else hint
        elif _SYSTEM.fullmatch(name) and os.path.isfile(path):
            what = f"HTCondor copies this machine's {name} to the node, without its libraries"
            make = hint
        else:
            continue
        yield make("program-copied", what, remedy, *view.at("executable"))


def _sizes(view: QueueView) -> Iterator[LintFinding]:
    at = view.at("transfer_input_files")
    yield from _too_large(view, at)
    for item in view.inputs():
        scheme = item.split("://", 1)[0].lower().rpartition("+")[2]
        if "://" in item and scheme in FEDERATION_SCHEMES:
            what = (
                f"{item}: HTCondor stops a transfer after an hour even while data arrives, and"
                " starts over from nothing (140 GB need 40 MB/s)"
            )
            remedy = "`headway wrap` lets the agent download it inside the job"
            yield hint("hour-cut", what, remedy, *at)
        if item.lower().split("?")[0].endswith(".zip"):
            what = f"{item}: `unzip` is missing in many containers"
            yield hint("zip", what, "repack it as .tar", *at)


def _too_large(view: QueueView, at: tuple[str, str]) -> Iterator[LintFinding]:
    """What goes through HTCondor's own transfer to a single job."""
    if view.transfers == "no":
        return
    first = view.each("initialdir", "transfer_input_files")[0]
    items = set(split_files(first[1]))  # of one job: others have other files
    sizes: dict[str, int] = {}
    for item, path in view.local_inputs():
        if item in items and item not in sizes:  # a later job may mean another file by it
            sizes[item] = _size(path)
    total = sum(sizes.values())
    if total <= TRANSFER_LIMIT:
        return
    biggest = max(sizes, key=lambda item: sizes[item])
    make, remedy = warning, "put it behind a URL; many pools hold such jobs (code 32)"
    what = f"{format_size(total)} of input go from here to each job"
    if view.ospool:
        make, remedy = error, "put it on OSDF and name its osdf:// URL"
        what = f"{format_size(total)} of input; the OSPool holds jobs with over 5,000 MB (code 32)"
    what += f". The biggest is {biggest}, {format_size(sizes[biggest])}"
    yield make("input-size", what, remedy, *at)


def _size(path: Path) -> int:
    """The bytes of a file, or of a folder's files as far as they can be counted quickly."""
    try:
        if path.is_file():
            return path.stat().st_size
        files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        return sum(os.lstat(file).st_size for file in islice(files, _MOST_SIZED))
    except OSError:
        return 0


def _initial_folders(view: QueueView) -> Iterator[LintFinding]:
    if not view.has_line("initialdir") or view.for_windows:
        return
    missing = [each for each in view.folders() if not os.path.isdir(each)]
    missing = [each for each in missing if not _of_another_machine(each)]
    missing = [each for each in missing if not view.is_template(str(each))]
    if missing:
        what = f"there is no folder {_few(missing)}: condor_submit refuses the file"
        yield error("folder-missing", what, _mkdir(missing, view.here), *view.at("initialdir"))


def _std_folders(view: QueueView) -> Iterator[LintFinding]:
    """Missing folders of log, output and error.

    Recent HTCondor creates them for the event log and for what it transfers. It does not if it
    opens the program's output in place: without transfer, streamed, or in the local universe.
    """
    reported = {folder for folder in view.folders() if not os.path.isdir(folder)}
    created: dict[Path, str] = {}  # by recent HTCondor: folder -> the key that names it
    for key in ("output", "error", "log"):
        in_place = view.transfers == "no" or view.runs_here or view.is_true(f"stream_{key}")
        missing: dict[Path, None] = {}
        for name, path in view.std_files(key):
            if not is_known(name.rpartition("/")[0]) or view.is_template(plain(name)):
                continue
            lost = not os.path.isdir(path.parent) and not _of_another_machine(path)
            if lost and path.parent not in reported and not view.for_windows:
                missing[path.parent] = None
        if missing and in_place and key != "log":
            what = f"there is no folder {_few(missing)}, and HTCondor does not create it: the job"
            remedy = _mkdir(missing, view.here)
            yield error("folder-missing", f"{what} is held", remedy, *view.at(key))
            reported |= set(missing)
        else:
            for folder in missing:
                created.setdefault(folder, key)
    created = {folder: key for folder, key in created.items() if folder not in reported}
    if created:
        shown, remedy = _few(created), _mkdir(created, view.here)
        what = f"there is no folder {shown}: recent HTCondor creates it, older ones hold the job"
        key = next(iter(created.values()))
        yield hint("folder-missing", what, remedy, *view.at(key))


def _few(folders: Iterable[Path]) -> str:
    return first_few([str(folder) for folder in folders], _SHOWN)


def _mkdir(folders: Collection[Path], here: Path) -> str:
    if len(folders) > 1:
        return "create them first: mkdir -p …"
    (folder,) = folders
    inside = folder.is_relative_to(here)
    return f"mkdir -p {shlex.quote(str(folder.relative_to(here) if inside else folder))}"


def _shell_words(view: QueueView) -> Iterator[LintFinding]:
    """`~` and `$HOME`, which a shell would expand and condor_submit does not."""
    for key in (*_PATH_KEYS, "arguments", "environment"):
        match = _SHELL.search(re.sub(r"\$\$?\w*\([^()]*\)", "", view.raw(key)))
        if match is None:
            continue
        word = match[1]
        name = word.strip("${}")
        if key in _PATH_KEYS:
            what = f"condor_submit does not fill in `{word}`: it becomes part of the name"
            remedy = f"write $ENV({'HOME' if word == '~' else name}), or the path itself"
            yield error("shell-word", what, remedy, *view.at(key))
        elif "-c" not in view.words[:2] and not view.has_line("shell"):  # which would expand it
            what = f"the program gets `{word}` as it is: no shell expands it"
            remedy = "leave it to a script that the job starts"
            if name.startswith("_CONDOR") or name in ("TMPDIR", "HOME", "USER", "PWD"):
                remedy = f"read {name} in the program, or in a script that the job starts"
            yield hint("shell-word", what, remedy, *view.at(key))


# -- on the node


def _node_paths(view: QueueView) -> Iterator[LintFinding]:
    """Absolute paths that the program gets and the node may not have."""
    mounted = re.search(
        r"has\w{0,40}staging|filesystemdomain|has_?cvmfs", view.value("requirements"), re.I
    )
    program = [] if view.sends_executable else [view.value("executable")]
    words = [("arguments", word) for word in view.all_words]
    words += [("environment", value) for _, value in view.variables]
    words += [("executable", word) for word in program]
    scratch = [each for each in words if scratch_path(each[1])]
    far = [each for each in words if each not in scratch and far_path(each[1], view.contained)]
    far = [each for each in far if not (mounted and "/staging/" in each[1])]
    at = view.at(next((each[0] for each in words if each in far or each in scratch), "arguments"))
    if far and view.transfers != "no":
        what = f"the node has no {_two_paths(far)}, unless it mounts that file system"
        remedy = "name it in transfer_input_files, and use only its file name: the job starts there"
        make = warning if view.transfers == "yes" else hint
        yield make("absolute-path", what, remedy, *at)
    if scratch:
        what = f"{_two_paths(scratch)} lies outside the job's folder on the node: it may be missing"
        what += " or full, other jobs write there too, and nobody cleans up"
        remedy = "use the job's own folder: a relative path, or $_CONDOR_SCRATCH_DIR in a script"
        make = hint if all(TEMPORARY.search(word) for _, word in scratch) else warning
        yield make("scratch-path", what, remedy, *at)


def _two_paths(words: Iterable[tuple[str, str]]) -> str:
    return first_few(list(dict.fromkeys(path_in(word) for _, word in words)), 2)


def _not_brought(view: QueueView) -> Iterator[LintFinding]:
    """Files of this folder that the arguments name and that stay behind, or arrive elsewhere."""
    files = "transfer_input_files"
    if view.transfers == "no" or view.universe in ("grid", "vm") or view.perhaps(files):
        return
    inputs = {posixpath.normpath(item): item for item in view.inputs()}
    names = {posixpath.basename(item) for item in inputs}
    emptied = {item for item, given in inputs.items() if given.endswith("/")}  # only their contents
    folders = view.folders() or [view.here]
    at = view.at("arguments")
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
            what = f"{name} arrives as {last}: HTCondor puts all inputs into one folder"
            remedy = f"name it {last} in the arguments, or preserve_relative_paths = true"
            yield make("flattened", what, remedy, *at)
        elif not (last in names or name.partition("/")[0] in names or {".", folder} & emptied):
            what = f"{name} is here, but does not go with the job"
            remedy = f"{files} = {', '.join([*view.inputs()[:_SHOWN], name])}"
            yield make("not-brought", what, remedy, *at)


def _outputs(view: QueueView) -> Iterator[LintFinding]:
    at = view.at("transfer_output_files")
    items = [item for item in split_files(view.value("transfer_output_files")) if "$" not in item]
    for name in items:
        if name.startswith("/"):
            what = f"{name} is an absolute path of the node, not a file of the job"
            remedy = "name what the job writes; transfer_output_remaps says where it goes"
            yield warning("output-path", what, remedy, *at)
    names = [name for name in items if not name.startswith("/") and not view.is_template(name)]
    if not names:
        return
    paths = [path for _, path in (*view.executables(), *view.local_inputs())]
    scripts = [script for script in map(read_script, paths) if script]
    text = "\n".join((view.value("arguments"), *scripts))
    doubtful = [name for name in names if scripts and base_name(name.rstrip("/")) not in text]
    what = f"if {first_few(doubtful or names, _SHOWN)} is missing, the job is held (code 12), also"
    what += " when the program failed"
    remedy = "name one folder that always exists: mkdir -p it at the start"
    if doubtful:
        what += f"; no script of this job mentions {'it' if len(doubtful) == 1 else 'them'}"
    yield (warning if doubtful else hint)("output-missing", what, remedy, *at)


def _overwritten(view: QueueView) -> Iterator[LintFinding]:
    """Files of the access point that several jobs, or the job and HTCondor, write."""
    text = view.description.text
    log = text("log")
    for key in ("output", "error"):
        if log and posixpath.normpath(text(key) or ".") == posixpath.normpath(log):
            what = f"{key} and log are one file: the job writes over HTCondor's event log"
            stem = plain(log).rpartition(".")[0] or plain(log)
            yield warning("same-file", what, f"{key} = {stem}.{key[:3]}", *view.at(key))
            break
    if view.jobs < 2:
        return
    folders = text("initialdir")
    for key in ("output", "error"):
        value = text(key)
        chance = re.search(r"\x01\?\$(?:RANDOM|\(JobId)", value, re.I)
        # what HTCondor fills in (its number, the date) is the same for all jobs of a queue
        same = is_known(re.sub(r"\x01\?[^\x02]*\x02", "", value + folders)) and not chance
        if value and value != "/dev/null" and same:
            what = f"its {view.jobs:,} jobs overwrite one file: {plain(value)}"
            yield warning("same-file", what, f"{key} = {_numbered(plain(value))}", *view.at(key))
            break
    value = text("transfer_output_files")
    moved = view.has_line("transfer_output_remaps") or view.has_line("output_destination")
    if split_files(value) and is_known(value + folders) and not moved and view.transfers != "no":
        name = posixpath.basename(split_files(value)[0].rstrip("/"))
        what = (
            f"the {name} of {view.jobs:,} jobs come back to one folder, each overwriting the last"
        )
        remedy = f'transfer_output_remaps = "{name}={_numbered(name)}", or one initialdir per job'
        make = warning if "." in name else hint  # a folder may hold other names for each job
        yield make("same-file", what, remedy, *view.at("transfer_output_files"))


def _numbered(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.rpartition(".")
    if not stem:
        stem, dot, ending = last, "", ""
    return f"{folder}{slash}{stem}.$(Process){dot}{ending}"
