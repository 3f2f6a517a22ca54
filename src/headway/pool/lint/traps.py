"""What a check reports, and the table of traps: what works on a laptop and fails on a node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from headway.errors import PreflightError, Problem


class Severity(str, Enum):
    """How likely it is to cost an attempt."""

    ERROR = "error"  # will fail
    WARNING = "warning"  # often fails
    HINT = "hint"  # costs time, or fails in a case that may not be yours

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class LintFinding:
    """One thing to fix: `what` happens on the pool, the `remedy`, and the `line` that causes it."""

    severity: Severity
    id: str
    what: str
    remedy: str
    where: str
    line: str = ""

    @property
    def problem(self) -> Problem:
        """The same as an entry of a `PreflightError`."""
        what = f"{self.what}\n    {self.line.strip()}" if self.line.strip() else self.what
        return Problem(self.where, what, self.remedy)

    def __str__(self) -> str:
        return f"{self.severity}: {self.problem}"


# Each takes id, what, remedy and where, and perhaps the line.
error = partial(LintFinding, Severity.ERROR)
warning = partial(LintFinding, Severity.WARNING)
hint = partial(LintFinding, Severity.HINT)


@dataclass(frozen=True)
class Context:
    """What the traps of a script depend on: how it is started, and what the job gives it."""

    program: bool = False  # started directly, through its #! line and its exec bit
    interpreter: str = ""  # what runs it if it has no #! line
    checkpointed: bool = False  # the job checkpoints: the script starts again where it stopped
    cpus: int | None = None
    gpus: int | None = None
    provided: frozenset[str] = frozenset()  # names of the job's files and inputs
    arguments: tuple[str, ...] = ()  # the words of the command that starts it
    contained: bool = False  # it runs in a container, which has its own folders

    @property
    def waits(self) -> str:
        """What a pause costs."""
        return "the GPU waits" if self.gpus else "nothing is computed"


def worst_first(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Errors, then warnings, then hints; each finding once."""
    order = list(Severity)
    return sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.severity))


def errors_of(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """The findings that will make the job fail."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def raise_errors(findings: Iterable[LintFinding]) -> None:
    """Raise a PreflightError if any of the findings is an error."""
    fatal = errors_of(findings)
    if fatal:
        raise PreflightError([finding.problem for finding in fatal], remedy="nothing was submitted")


# Commands that download or install something while the job runs.


@dataclass(frozen=True)
class Fetch:
    """One kind of such a command; `names` and `needs` are regular expressions."""

    id: str  # of the trap
    names: str  # of the program
    needs: str = ""  # what its arguments must contain

    def shown(self, words: list[str]) -> str:
        """The part of the command that names it: `wget`, `pip install`."""
        program = base_name(words[0])
        verbs = ("install", "create", "update", "add", "clone", "pull", "fetch")
        verb = next((word for word in words if word in verbs), "")
        return program if self.id == "fetch" else f"{program} {verb}".strip()


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


def base_name(path: str) -> str:
    """The last part of a path: `bash` of `/bin/bash`."""
    return path.rsplit("/", 1)[-1]


def fetch_of(words: list[str]) -> Fetch | None:
    """The kind of download or install that a command is, or None."""
    words = unwrapped(words)
    if not words or {"--no-index", "--dry-run", "--offline"} & set(words):
        return None
    program, rest = base_name(words[0]), " ".join(words[1:])
    if program in ("curl", "wget") and (not rest or _NO_DOWNLOAD.search(rest)):
        return None
    kinds = (row for row in _FETCHES if re.fullmatch(row.names, program))
    return next((row for row in kinds if re.search(row.needs, rest)), None)


def unwrapped(words: list[str]) -> list[str]:
    """A command without `time`, `timeout 2h`, `env A=b` and the like before it."""
    words = list(words)
    while len(words) > 1 and base_name(words[0]) in _WRAPPERS:
        wrapper = base_name(words.pop(0))
        while len(words) > 1 and (words[0].startswith("-") or re.match(r"\w+=", words[0])):
            words.pop(0)
        if wrapper == "timeout" and len(words) > 1:
            words.pop(0)
    return words


# Absolute paths that a job uses on the node.
#
# Home and shared folders (`/home`, `/nfs`, `/data`) are there only if the node mounts them. Scratch
# folders (`/tmp`, `/scratch`) may be there, but do not belong to the job. Paths that all nodes
# have, such as `/usr` and `/cvmfs`, are neither.

_BEFORE = r"(?:^|(?<=[=:,'\"]))"  # the start of a word, or of the value after `=`
# No container image has these; it may have the others.
_PEOPLE = (
    r"home\d*|homes|nethome|Users|afs|eos|nfs\w*|lustre\w*|gpfs\w*|beegfs\w*|ceph\w*|pnfs|staging"
    r"|ospool|stash"
)
_STORAGE = (
    r"data\w*|work\d*|projects?|storage\d*|shares?|shared|users?|export|mnt|hdfs|hadoop|vol\d*"
    r"|raid\d*|groups?|cluster|nas\w*|u|panfs|sphenix"
)
_CHILD = r"/[\w.$-]"
_LONGEST = 90  # characters of a path that are shown
# The brackets of $ENV(USER) belong to the path.
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
    """Whether a word names a home folder or shared storage; a container may have a `/data`."""
    if "://" in word:
        return False
    return (FAR_PATH if contained else STORAGE_PATH).search(word) is not None


def path_in(word: str) -> str:
    """The path within a word that `far_path` or `scratch_path` matches."""
    match = STORAGE_PATH.search(word) or SCRATCH_PATH.search(word)
    rest = _PATH.match(word, match.start() if match else 0)
    path = rest[0] if rest else ""
    return path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"


def scratch_path(word: str) -> bool:
    """Whether a word names a scratch folder by a fixed path."""
    return "://" not in word and SCRATCH_PATH.search(word) is not None


# The known traps of scripts: how bad each is, what happens on the pool, and what to do.


@dataclass(frozen=True)
class Trap:
    """A row of the table; the `{…}` in its texts are filled in for each script."""

    severity: Severity
    what: str
    remedy: str


def trap_finding(
    id: str, where: str, line: str, severity: Severity | None = None, **words: object
) -> LintFinding:
    """The finding for a trap of the table."""
    row = TRAPS[id]
    what, remedy = row.what.format(**words), row.remedy.format(**words)
    return LintFinding(severity or row.severity, id, what, remedy, where, line)


# The remedies for users of submit files, where they differ.
_IN_SUBMIT_FILES = {
    "fetch": "name it in transfer_input_files: HTCondor brings it before the job starts",
    "weights": "name the weights in transfer_input_files, and load them from their path",
    "dataset": "name the data in transfer_input_files, and read it from its path",
    "install": "build it into an image, and name that in container_image",
    "clone": "name the code in transfer_input_files, or build it into the image",
    "unzip": "repack it as .tar, which Python and tar read everywhere",
    "extract": "read the tar file as it is (tarfile, webdataset), if your code can",
    "absolute-path": "bring it with transfer_input_files, or send it back with"
    " transfer_output_files",
    "scratch-path": "use the job's own folder: $_CONDOR_SCRATCH_DIR, or a relative path",
    "home-file": "remove it: set it up in the image, and set variables with `environment`",
    "pipe": "put `set -o pipefail` before it; `output` and `error` keep what is printed anyway",
    "mv": "test first: [ ! -e NAME ] || mv NAME …",
    "shebang-far": "name an interpreter that the node has (#!/usr/bin/env …), or use an image",
}


def in_submit_file(finding: LintFinding) -> LintFinding:
    """A finding about a script with the remedy for a submit file."""
    return replace(finding, remedy=_IN_SUBMIT_FILES.get(finding.id, finding.remedy))


_INPUT = "declare it as an input: it is downloaded, resumed and verified before the command starts"
_IMAGE = "build it into the container image and name that in `container`"
_CUT = "the command ends here and the shell runs `{cut}` as a separate command (exit code 127)"
_STRICT = "put `set -euo pipefail` on the line after #!"
_ERROR, _WARNING, _HINT = Severity

TRAPS: dict[str, Trap] = {
    # How a script is started
    "crlf": Trap(
        _ERROR,
        "the file has Windows line ends: the shell reads the carriage return as part of each word"
        " (`bad interpreter: /bin/bash^M`)",
        "convert it: sed -i 's/\\r$//' {name}",
    ),
    "shebang-missing": Trap(
        _ERROR,
        "there is no #! line, so the node cannot start it (exec format error)",
        "make `{shebang}` its first line",
    ),
    "shebang-late": Trap(
        _ERROR,
        "the #! is not the first two characters of the file, so it is only a comment",
        "make `{shebang}` its first line, with nothing before it and no byte-order mark",
    ),
    "shebang-relative": Trap(
        _ERROR,
        "the #! line does not name the absolute path of an interpreter",
        "make `{shebang}` its first line",
    ),
    "shebang-arguments": Trap(
        _ERROR,
        "env looks for a program called `{program}`, space included (exit code 127)",
        "write `#!/usr/bin/env {first}` and set the options on the next line (`set -e`)",
    ),
    "shebang-far": Trap(
        _ERROR,
        "the #! line names an interpreter of the access point, which the node does not have",
        "write `{shebang}` and bring the environment as a container",
    ),
    "bashism": Trap(
        _WARNING,
        "`{word}` works in bash only; in Debian's and Ubuntu's containers sh is dash",
        "run it with bash: `#!/bin/bash`",
    ),
    # Continuations
    "continuation-space": Trap(
        _WARNING, f"a space follows the backslash, so {_CUT}", "delete what follows the backslash"
    ),
    "continuation-comment": Trap(
        _ERROR, f"there is a comment here, so {_CUT}", "move the comment above the command"
    ),
    "continuation-blank": Trap(
        _ERROR, f"there is an empty line here, so {_CUT}", "delete the empty line"
    ),
    "continuation-option": Trap(
        _ERROR,
        "a command begins with an option, which the shell runs as a program (exit code 127)",
        "end the line before it with a backslash and nothing after that",
    ),
    "continuation-swallow": Trap(
        _ERROR,
        "the backslash makes `{cut}` an argument of this command, so it never runs",
        "delete the backslash",
    ),
    # The second start
    "mkdir": Trap(_HINT, "{when}, and mkdir fails if the folder exists", "mkdir -p"),
    "rm": Trap(_HINT, "{when}, and rm fails if the file is gone", "rm -f"),
    "mv": Trap(
        _HINT,
        "{when}, and mv fails on an input that it moved away the first time",
        "declare the input under the path where it is needed, or test first:"
        " [ ! -e {source} ] || mv {source} …",
    ),
    # Exit status
    "errexit": Trap(
        _WARNING,
        "there is no `set -e`: if one of the {steps} steps fails, the others still run and only the"
        " status of the last one counts",
        _STRICT,
    ),
    "status": Trap(
        _WARNING,
        "the script exits with the status of this line, so a failure of `{work}` (line {at}) looks"
        " like success",
        _STRICT,
    ),
    "pipe": Trap(
        _WARNING,
        "a pipe has the status of its last command, so a failure of `{work}` is lost",
        "put `set -o pipefail` before it; the agent keeps stdout and stderr anyway",
    ),
    # Downloads at run time
    "fetch": Trap(
        _WARNING,
        "`{program}` downloads at run time: the node may lack the tool or the network, and nobody"
        " notices an incomplete download",
        _INPUT,
    ),
    "install": Trap(
        _WARNING,
        "`{program}` installs at run time, again in every attempt, if the node allows it",
        _IMAGE,
    ),
    "clone": Trap(
        _WARNING,
        "`{program}` needs the network, and gets whatever version is there that day",
        "put the code into `files`, or into the container image",
    ),
    "weights": Trap(
        _WARNING,
        "`{call}` downloads weights at run time, again in every attempt",
        "declare the weights as an input and load them from their path",
    ),
    "dataset": Trap(
        _WARNING,
        "`{call}` downloads data at run time, again in every attempt",
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
        "this unpacks a zip archive; many containers lack `unzip`, and {waits} meanwhile",
        "repack it as .tar and read it as it is: there is no need to extract it",
    ),
    "extract": Trap(
        _HINT,
        "{waits} while this unpacks",
        "read the tar file as it is (headway.torch, tarfile), or declare it as an input with"
        " unpack = true: the agent then unpacks and verifies it before the command starts",
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
        "`{path}` is in your home folder, which few nodes have",
        "remove it: put what it sets up into the container image, and variables into `environment`",
    ),
    # Python
    "syntax": Trap(
        _WARNING,
        "Python {version} cannot read this file: {reason}",
        "fix it, or make sure that the node's Python can read it",
    ),
    "workers": Trap(
        _WARNING,
        "{workers} loader processes share {cpus} requested",
        "request as many cpus as there are workers, or take the number from the job",
    ),
    "cpu-count": Trap(
        _HINT,
        "os.cpu_count() counts the machine's cores, not the job's",
        "use len(os.sched_getaffinity(0)), or the environment variable OMP_NUM_THREADS",
    ),
    "gpu-index": Trap(
        _WARNING,
        "`{device}` does not exist for a job with {gpus}: its GPUs are numbered from 0",
        'use "cuda", or "cuda:0"',
    ),
    "visible-devices": Trap(
        _WARNING,
        "sets CUDA_VISIBLE_DEVICES, which HTCondor has set to the job's own GPUs",
        "remove it: the job would use someone else's GPU",
    ),
    "makedirs": Trap(
        _WARNING,
        "after a checkpoint the script starts again in the same folder, and `{call}` fails if the"
        " folder exists",
        "exist_ok=True",
    ),
}
