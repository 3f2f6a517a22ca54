"""The known traps of scripts, one row each: how bad it is, what happens on the pool, what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.pool.preflight.findings import Finding, Severity


@dataclass(frozen=True)
class Trap:
    """A row of the table; `{…}` in its sentences is filled in where the trap is found."""

    severity: Severity
    what: str
    remedy: str


def found(
    id: str, where: str, line: str, severity: Severity | None = None, **words: object
) -> Finding:
    """The finding for a trap of the table, in words that fit the place."""
    row = TRAPS[id]
    return Finding(
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


def in_submit_file(finding: Finding) -> Finding:
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
