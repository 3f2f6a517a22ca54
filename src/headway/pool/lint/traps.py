"""What a check says, and the table of traps: what works on a laptop and fails on a node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from headway.errors import PreflightError, Problem


class Severity(str, Enum):
    """How sure it is that this costs an attempt."""

    ERROR = "error"  # will fail
    WARNING = "warning"  # often fails
    HINT = "hint"  # costs time, or fails in a case that may not be yours

    def __str__(self) -> str:
        return self.value


_ORDER = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True)
class LintFinding:
    """One thing seen: `what` happens on the pool, and the `remedy`; `line` is the text at fault."""

    severity: Severity
    where: str
    what: str
    remedy: str
    id: str
    line: str = ""

    @property
    def problem(self) -> Problem:
        """The same, as the error tree words it."""
        what = f"{self.what}\n    {self.line.strip()}" if self.line.strip() else self.what
        return Problem(self.where, what, self.remedy)

    def __str__(self) -> str:
        return f"{self.severity}: {self.problem}"


@dataclass(frozen=True)
class Context:
    """What a script's traps depend on: how it is started, and what the job gives it."""

    program: bool = False  # started by itself, by its #! line and its exec bit
    interpreter: str = ""  # what runs it, where its #! line does not say
    checkpointed: bool = False  # the job checkpoints: the script starts again where it stopped
    cpus: int | None = None
    gpus: int | None = None
    provided: frozenset[str] = frozenset()  # names of the job's files and inputs
    arguments: tuple[str, ...] = ()  # the words of the command that starts it
    contained: bool = False  # it runs in a container, which has folders of its own

    @property
    def waits(self) -> str:
        """What a pause costs: a GPU that waits only where there is one."""
        return "the GPU waits" if self.gpus else "nothing is computed"


def error(id: str, where: str, what: str, remedy: str, line: str = "") -> LintFinding:
    return LintFinding(Severity.ERROR, where, what, remedy, id, line)


def warning(id: str, where: str, what: str, remedy: str, line: str = "") -> LintFinding:
    return LintFinding(Severity.WARNING, where, what, remedy, id, line)


def hint(id: str, where: str, what: str, remedy: str, line: str = "") -> LintFinding:
    return LintFinding(Severity.HINT, where, what, remedy, id, line)


def worst_first(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Errors, then warnings, then hints; each thing once, otherwise in the order found."""
    return sorted(dict.fromkeys(findings), key=lambda finding: _ORDER[finding.severity])


def errors_of(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Those that will make the job fail."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def raise_errors(findings: Iterable[LintFinding]) -> None:
    """Refuse what will fail: PreflightError if there is any error."""
    fatal = errors_of(findings)
    if fatal:
        raise PreflightError([finding.problem for finding in fatal], remedy="nothing was submitted")


# Commands that fetch or install something while the job runs.


@dataclass(frozen=True)
class Fetch:
    """One kind of such a command; `names` and `needs` are regular expressions."""

    id: str  # of the trap
    names: str  # of the program
    needs: str = ""  # what its arguments must hold

    def shown(self, words: list[str]) -> str:
        """The part of the command that names it: `wget`, `pip install`."""
        if self.id == "fetch":
            return words[0].rsplit("/", 1)[-1]
        verbs = ("install", "create", "update", "add", "clone", "pull", "fetch")
        verb = next((word for word in words if word in verbs), "")
        return f"{words[0].rsplit('/', 1)[-1]} {verb}".strip()


_FETCHES = (
    Fetch("fetch", "wget|curl|aria2c|axel|gdown|stashcp|xrdcp|scp|rsync|rclone"),
    Fetch("fetch", "pelican|osdf", r"object (?:get|copy)|^cp "),
    Fetch("fetch", "kaggle|huggingface-cli|hf", "download"),
    Fetch("fetch", "aws|gsutil|gcloud|s3cmd|mc|az", r"\b(?:cp|sync|get|mirror|download)\b"),
    Fetch("install", r"pip[\d.]*|uv|conda|mamba|micromamba", r"\b(?:install|create|update)\b"),
    Fetch("install", r"python[\d.]*", r"-m pip install"),
    Fetch("install", "apt-get|apt|yum|dnf|microdnf|apk", r"\b(?:install|update|add)\b"),
    Fetch("clone", "git", r"^(?:-[cC] \S+ )*(?:clone|pull|fetch|submodule update)\b"),
)
_WRAPPERS = {"sudo", "time", "nice", "nohup", "exec", "command", "env", "timeout", "stdbuf", "srun"}
_NO_DOWNLOAD = re.compile(
    r"(?:^|\s)(?:-T|--upload-file|-F|--form|-d|--data\S*|--post-\w+|--version|-V|--help)\b"
    r"|(?:-X|--request)[ =]?(?:PUT|POST|DELETE)"
)


def fetch_of(words: list[str]) -> Fetch | None:
    """The kind that a command is of, or None if it fetches nothing."""
    words = unwrapped(words)
    if not words:
        return None
    program, rest = words[0].rsplit("/", 1)[-1], " ".join(words[1:])
    if program in ("curl", "wget") and (not rest or _NO_DOWNLOAD.search(rest)):
        return None
    if {"--no-index", "--dry-run", "--offline"} & set(words):
        return None
    for row in _FETCHES:
        if re.fullmatch(row.names, program) and re.search(row.needs, rest):
            return row
    return None


def unwrapped(words: list[str]) -> list[str]:
    """A command without `time`, `timeout 2h`, `env A=b` and the like before it."""
    words = list(words)
    while len(words) > 1 and words[0].rsplit("/", 1)[-1] in _WRAPPERS:
        wrapper = words.pop(0).rsplit("/", 1)[-1]
        while len(words) > 1 and (words[0].startswith("-") or re.match(r"\w+=", words[0])):
            words.pop(0)
        if wrapper == "timeout" and len(words) > 1:
            words.pop(0)
    return words


# Absolute paths that a job names on the node, where most of them are not.
#
# Two kinds. Folders of people and of shared file systems (`/home`, `/nfs`, `/data`): a node has
# them only if it mounts them. Scratch folders (`/tmp`, `/scratch`): a node may have them, but they
# are not the job's own. Paths that nodes do have, such as `/usr` and `/cvmfs`, are neither.

_BEFORE = r"(?:^|(?<=[=:,'\"]))"  # a word, or what stands in it after `=`
# What no container image has; the rest may be the image's own.
_PEOPLE = (
    r"home\d*|homes|nethome|Users|afs|eos|nfs\w*|lustre\w*|gpfs\w*|beegfs\w*|ceph\w*|pnfs|staging"
    r"|ospool|stash"
)
_STORAGE = (
    r"data\w*|work\d*|projects?|storage\d*|shares?|shared|users?|export|mnt|hdfs|hadoop|vol\d*"
    r"|raid\d*|groups?|cluster|nas\w*|u|panfs|sphenix"
)
_CHILD = r"/[\w.$-]"
_LONGEST = 90  # characters of a path that is shown
# A bracket that is opened within it, as in $ENV(USER), belongs to it.
_PATH = re.compile(r"(?:\$\w{0,20}\([^()\s]{0,80}\)|[^\s'\"`;,)]){0,200}")

FAR_PATH = re.compile(rf"{_BEFORE}(?:~|/(?:{_PEOPLE})){_CHILD}")
STORAGE_PATH = re.compile(rf"{_BEFORE}(?:~|/(?:{_PEOPLE}|{_STORAGE})){_CHILD}")
SCRATCH_PATH = re.compile(
    rf"{_BEFORE}/(?:(?:var/)?tmp{_CHILD}|(?:local[_-]?|net)?scratch[\w-]*(?:/|\Z)"
    rf"|(?:local(?:disk|data)?|ssd\d*|nvme\d*){_CHILD})"
)
TEMPORARY = re.compile(rf"{_BEFORE}/(?:var/)?tmp/")  # every node has it
HOME = re.compile(rf"{_BEFORE}(?:~|\$HOME|\$\{{HOME\}}|/home/[\w.-]+|/Users/[\w.-]+)/[\w.]")
HOME_FILE = re.compile(HOME.pattern.replace(r"[\w.]", r"\.\w"))  # ~/.bashrc, $HOME/.netrc


def far_path(word: str, contained: bool) -> bool:
    """Whether a word names a folder of people or of shared storage.

    Args:
        word: a word of a command, or a value.
        contained: the job runs in a container, which may have a `/data` of its own.
    """
    if "://" in word:
        return False
    return (FAR_PATH if contained else STORAGE_PATH).search(word) is not None


def path_in(word: str) -> str:
    """The path that made a word suspicious, without what stands around it."""
    match = STORAGE_PATH.search(word) or SCRATCH_PATH.search(word)
    rest = word[match.start() :] if match else word
    found = _PATH.match(rest)
    path = found[0] if found else ""
    return path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"


def scratch_path(word: str) -> bool:
    """Whether a word names a scratch folder by a fixed path."""
    return "://" not in word and SCRATCH_PATH.search(word) is not None


# The known traps of scripts, one row each: how bad it is, what happens on the pool, what to do.


@dataclass(frozen=True)
class Trap:
    """A row of the table; `{…}` in its sentences is filled in where the trap is found."""

    severity: Severity
    what: str
    remedy: str


def found(
    id: str, where: str, line: str, severity: Severity | None = None, **words: object
) -> LintFinding:
    """The finding for a trap of the table, in words that fit the place."""
    row = TRAPS[id]
    return LintFinding(
        severity or row.severity,
        where,
        row.what.format(**words),
        row.remedy.format(**words),
        id,
        line,
    )


# The same remedies in the words of a submit file.
_IN_SUBMIT_FILES = {
    "fetch": "name it in transfer_input_files: it is there before the job starts",
    "weights": "name the weights in transfer_input_files, and load them from their path",
    "dataset": "name the data in transfer_input_files, and read it from its path",
    "install": "build it into an image, and name that in container_image",
    "clone": "name the code in transfer_input_files, or build it into the image",
    "unzip": "repack it as .tar, which Python and tar read everywhere",
    "extract": "read the tar as it is (tarfile, webdataset), if your code can",
    "absolute-path": "bring it with transfer_input_files, or send it back with"
    " transfer_output_files",
    "scratch-path": "use the job's own folder: $_CONDOR_SCRATCH_DIR, or a relative path",
    "home-file": "take it out: set it up in the image, and variables with `environment`",
    "pipe": "put `set -o pipefail` before it; `output` and `error` keep what is printed anyway",
    "mv": "test first: [ ! -e NAME ] || mv NAME …",
    "shebang-far": "name an interpreter that the node has (#!/usr/bin/env …), or use an image",
}


def in_submit_file(finding: LintFinding) -> LintFinding:
    """A trap of a script with the remedy that a submit file allows."""
    remedy = _IN_SUBMIT_FILES.get(finding.id)
    return replace(finding, remedy=remedy) if remedy else finding


_INPUT = "declare it as an input: it is fetched, resumed and verified before the command starts"
_IMAGE = "build it into the container image and name that in `container`"
_STRICT = "put `set -euo pipefail` on the line after #!"
_ERROR, _WARNING, _HINT = Severity

TRAPS: dict[str, Trap] = {
    # How a script is started
    "crlf": Trap(
        _ERROR,
        "Windows line ends: the shell takes the carriage return for a part of each word"
        " (`bad interpreter: /bin/bash^M`)",
        "convert it: sed -i 's/\\r$//' {name}",
    ),
    "shebang-missing": Trap(
        _ERROR,
        "there is no #! line, so it cannot be started by itself (exec format error)",
        "make `{shebang}` its first line",
    ),
    "shebang-late": Trap(
        _ERROR,
        "the #! is not the first two characters of the file, so it is only a comment",
        "make `{shebang}` its first line, with nothing before it and no byte-order mark",
    ),
    "shebang-relative": Trap(
        _ERROR,
        "the #! line names no absolute path of an interpreter",
        "make `{shebang}` its first line",
    ),
    "shebang-arguments": Trap(
        _ERROR,
        "env looks for a program called `{program}`, space included (exit code 127)",
        "write `#!/usr/bin/env {first}` and set the options on the next line (`set -e`)",
    ),
    "shebang-far": Trap(
        _ERROR,
        "the #! line names an interpreter of the access point; the node has none there",
        "write `{shebang}` and bring the environment as a container",
    ),
    "bashism": Trap(
        _WARNING,
        "`{word}` is bash's; sh is dash in Debian's and Ubuntu's containers and does not know it",
        "run it with bash: `#!/bin/bash`",
    ),
    # Continuations
    "continuation-space": Trap(
        _WARNING,
        "a space follows the backslash, so the command ends here; `{cut}` is run as a command of"
        " its own (exit code 127)",
        "delete what follows the backslash",
    ),
    "continuation-comment": Trap(
        _ERROR,
        "a comment inside the continued command ends it; `{cut}` is run as a command of its own"
        " (exit code 127)",
        "move the comment above the command",
    ),
    "continuation-blank": Trap(
        _ERROR,
        "an empty line inside the continued command ends it; `{cut}` is run as a command of its"
        " own (exit code 127)",
        "delete the empty line",
    ),
    "continuation-option": Trap(
        _ERROR,
        "an option stands at the beginning of a command and is run as a program (exit code 127)",
        "end the line before it with a backslash and nothing after that",
    ),
    "continuation-swallow": Trap(
        _ERROR,
        "the backslash makes `{cut}` an argument of this command, so it never runs",
        "delete the backslash",
    ),
    # The second start
    "mkdir": Trap(_HINT, "{when}, and mkdir fails on a folder that is there", "mkdir -p"),
    "rm": Trap(_HINT, "{when}, and rm fails on a file that is gone", "rm -f"),
    "mv": Trap(
        _HINT,
        "{when}, and mv fails on an input that was moved away the first time",
        "declare the input under the path where it is needed, or test first:"
        " [ ! -e {source} ] || mv {source} …",
    ),
    # Exit status
    "errexit": Trap(
        _WARNING,
        "no `set -e`: when one of the {steps} steps fails the others go on, and only the status of"
        " the last one counts",
        _STRICT,
    ),
    "status": Trap(
        _WARNING,
        "the script's status is that of this line, so a failure of `{work}` (line {at}) looks like"
        " success",
        _STRICT,
    ),
    "pipe": Trap(
        _WARNING,
        "a pipe's status is that of its last command, so a failure of `{work}` is lost",
        "put `set -o pipefail` before it; the agent keeps stdout and stderr anyway",
    ),
    # What is fetched at run time
    "fetch": Trap(
        _WARNING,
        "`{program}` fetches at run time: the tool or the network may be missing on the node, and"
        " what is cut off goes unnoticed",
        _INPUT,
    ),
    "install": Trap(
        _WARNING,
        "`{program}` installs at run time, for each attempt anew, if the node lets it",
        _IMAGE,
    ),
    "clone": Trap(
        _WARNING,
        "`{program}` needs the network, and takes whatever is there that day",
        "put the code into `files`, or into the container image",
    ),
    "weights": Trap(
        _WARNING,
        "`{call}` downloads weights at run time, for each attempt anew",
        "declare the weights as an input and load them from their path",
    ),
    "dataset": Trap(
        _WARNING,
        "`{call}` downloads data at run time, for each attempt anew",
        "declare the data as an input and read it from its path",
    ),
    # Archives and paths
    "unzip": Trap(
        _WARNING,
        "`{program}` is missing in many containers",
        "declare the archive as an input with unpack = true, or repack it as .tar, which Python and"
        " tar read everywhere",
    ),
    "zip": Trap(
        _HINT,
        "unpacks a zip archive; `unzip` is missing in many containers, and {waits} meanwhile",
        "repack it as .tar and read it as it is: nothing needs to be extracted",
    ),
    "extract": Trap(
        _HINT,
        "{waits} while this unpacks",
        "read the tar as it is (headway.torch, tarfile), or declare it as an input with"
        " unpack = true: it is then unpacked, and proven, before the command starts",
    ),
    "absolute-path": Trap(
        _WARNING,
        "`{path}` is not on the node, unless it mounts that file system",
        "put it into `files` or declare it as an input, and name it by its relative path",
    ),
    "scratch-path": Trap(
        _WARNING,
        "`{path}` lies outside the job's folder on the node: it may be missing or full, other jobs"
        " write there too, and nobody cleans up",
        "use the job's own folder: a relative path, or $TMPDIR",
    ),
    "home-file": Trap(
        _WARNING,
        "`{path}` is a file of your home, which few nodes have",
        "take it out: what it sets up belongs in the container image, a variable in `environment`",
    ),
    # Python
    "syntax": Trap(
        _WARNING,
        "Python {version} cannot read this file: {reason}",
        "mend it, or make sure that the node's Python can read it",
    ),
    "workers": Trap(
        _WARNING,
        "{workers} loader processes share {cpus} requested",
        "ask for as many cpus as there are workers, or take the number from the job",
    ),
    "cpu-count": Trap(
        _HINT,
        "os.cpu_count() counts the machine's cores, not the job's",
        "use len(os.sched_getaffinity(0)), or the environment variable OMP_NUM_THREADS",
    ),
    "gpu-index": Trap(
        _WARNING,
        "`{device}` does not exist for a job of {gpus}: its GPUs are numbered from 0",
        'use "cuda", or "cuda:0"',
    ),
    "visible-devices": Trap(
        _WARNING,
        "sets CUDA_VISIBLE_DEVICES, which HTCondor has set to the GPUs that are the job's",
        "take it out; someone else's GPU would be used",
    ),
    "makedirs": Trap(
        _WARNING,
        "after a checkpoint the script starts again in the same folder, and `{call}` fails on a"
        " folder that is there",
        "exist_ok=True",
    ),
}
