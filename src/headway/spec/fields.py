"""The types of the values in a job description, and what is wrong with values and unknown keys."""

from __future__ import annotations

import math
import re
import shlex
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo

from headway.spec.errors import Loc, Wrong, key_path, listed, show, text_of
from headway.spec.places import (
    check_template,
    folder_path,
    input_url,
    output_to,
    refuse_placeholders,
    template_path,
)
from headway.spec.units import MAX_DURATION, MAX_SIZE, format_size, parse_duration, parse_size
from headway.text import closest

# Words from HTCondor submit files, Slurm and Kubernetes, by the job.toml key that is meant.
_MEANS = {
    "name": "batch_name jobname job_name job_batch_name title id",
    "command": "executable exec arguments args argument cmd run script entrypoint program argv",
    "shell": "use_shell bash sh",
    "files": "file transfer_input_files code sources src payload transfer_executable upload",
    "environment": "env environ envs variables environment_variables getenv",
    "container": "image container_image docker_image docker singularity apptainer "
    "singularityimage sif",
    "count": "queue jobs replicas copies njobs num_jobs array",
    "table": "rows row csv matrix parameters params sweep columns",
    "resources.cpus": "cpu cores core ncpus num_cpus request_cpus requestcpus "
    "cpus_per_task threads ntasks",
    "resources.memory": "mem ram request_memory requestmemory memory_mb mem_gb mem_mb",
    "resources.disk": "storage scratch request_disk requestdisk disk_space diskspace",
    "resources.gpus": "gpu ngpus num_gpus request_gpus requestgpus gres accelerators gpu_count "
    "require_gpus",
    "resources.gpus.count": "number num",
    "resources.gpus.memory": "vram gpu_memory gpu_mem gpus_minimum_memory minimum_memory",
    "resources.gpus.capability": "compute_capability cc gpus_minimum_capability cuda_capability",
    "resources.gpus.runtime": "cuda cuda_version gpus_minimum_runtime",
    "inputs": "input data datasets dataset downloads",
    "inputs.url": "urls uri href source mirrors from",
    "inputs.path": "dest destination target filename",
    "inputs.checksum": "sha256 md5 digest hash sum adler32 crc32c",
    "inputs.size": "bytes length",
    "inputs.manifest": "pin index",
    "inputs.patience": "stall stall_timeout",
    "inputs.via": "through transfer",
    "inputs.mode": "how streaming stream",
    "inputs.unpack": "extract untar unzip decompress gunzip expand",
    "inputs.keep": "cache store retain",
    "inputs.window": "cache_limit cache_size buffer",
    "outputs": "results artifacts artefacts transfer_output_files transfer_output_remaps "
    "output_destination",
    "outputs.to": "upload_to remap",
    "outputs.min_size": "minimum_size minsize",
    "checkpoint": "checkpoints checkpointing transfer_checkpoint_files",
    "checkpoint.paths": "files files_to_keep",
    "checkpoint.exit_code": "checkpoint_exit_code exitcode",
    "checkpoint.interval": "every period",
    "grace": "grace_period kill_timeout job_max_vacate_time stop_timeout",
    "duration": "jobdurationcategory job_duration_category",
    "time_limit": "walltime wall_time timelimit timeout max_runtime time allowed_execute_duration "
    "allowed_job_duration maxwalltime",
    "retries": "retry max_retries attempts on_exit_remove on_exit_hold periodic_release "
    "periodic_remove retry_until success_exit_code",
    "requirements": "requirement constraint constraints",
    "sites": "site desired_sites undesired_sites",
    "sites.avoid": "exclude undesired blacklist blocklist",
    "sites.only": "require whitelist allowlist",
    "submit": "htcondor condor extra submit_options",
}
SYNONYMS = {word: key for key, words in _MEANS.items() for word in words.split()}

# What Headway writes into the submit description itself, with the job.toml key to use instead.
SUBMIT_OWN = {
    word: f"use `{key}`"
    for word, key in SYNONYMS.items()
    if word.startswith(
        ("request", "transfer_", "gpus_minimum", "periodic_", "on_exit", "container_")
    )
    or word
    in (
        "executable", "arguments", "queue", "env", "getenv", "max_retries", "retry_until",
        "success_exit_code", "checkpoint_exit_code", "docker_image", "singularityimage",
        "jobdurationcategory", "job_max_vacate_time", "batch_name", "job_batch_name",
        "allowed_execute_duration", "allowed_job_duration", "output_destination", "require_gpus",
    )
}  # fmt: skip
SUBMIT_OWN |= {key: f"use `{key}`" for key in ("environment", "requirements", "files", "count")}
SUBMIT_OWN |= {
    "log": "the event log is events.log in the run folder",
    "input": "let the command read a file from `files` or `inputs`",
    "kill_sig": "use `grace`",
}
SUBMIT_OWN |= dict.fromkeys(
    ("output", "error", "transfer_output", "transfer_error"),
    "what the command prints comes home to the run folder",
)
SUBMIT_OWN |= dict.fromkeys(
    (
        "universe", "cmd", "args", "in", "out", "err", "initialdir", "initial_dir", "iwd",
        "userlog", "should_transfer_files", "when_to_transfer_output", "stream_output",
        "stream_error", "preserve_relative_paths", "periodic_hold", "leave_in_queue", "hold",
        "job_lease_duration", "requiregpus", "jobuniverse", "maxretries", "max_idle",
        "max_materialize", "periodic_vacate", "periodic_hold_reason", "noop_job",
    ),
    "Headway needs it for its own work",
)  # fmt: skip
SUBMIT_OWN |= dict.fromkeys(
    ("if", "elif", "else", "endif", "include", "use"), "only `key = value` lines can be added"
)
_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1", "2>", "&>", "<<<"})
_SHELL_REMEDY = "add `shell = true` to run it with /bin/sh -c"
_NO_PROGRAM = "the first word, the program, is empty", "begin with the program to run"
_NO_COMMAND = "is empty", 'say what to run, such as command = "python3 train.py"'
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SUBMIT_KEY = re.compile(r"(?:\+|MY\.)?[A-Za-z_][A-Za-z0-9_.]*", re.IGNORECASE)
_HEX_DIGITS = {"sha256": 64, "md5": 32, "crc32c": 8, "adler32": 8}


def unknown_key(loc: Loc, known: dict[tuple[str, ...], list[str]]) -> tuple[str, str]:
    """The problem of a key that does not exist, and which key is probably meant."""
    level = tuple(part for part in loc[:-1] if isinstance(part, str))
    word = str(loc[-1])
    here = known.get(level, [])
    meant = _meant(word, level, here, known)
    if meant is None:
        remedy = f"the keys here are {listed(here, most=30)}"
    elif level and meant in known.get((), []) and meant not in here:
        remedy = f"`{meant}` stands at the top of job.toml, before the first section"
    else:
        remedy = f"did you mean `{meant}`?"
    return f"there is no key `{key_path((word,))}`", remedy


def _meant(
    word: str, level: tuple[str, ...], here: list[str], known: dict[tuple[str, ...], list[str]]
) -> str | None:
    lower = word.lower().lstrip("+").removeprefix("my.").replace("-", "_")
    for key in here:
        if lower == key or lower.rstrip("s") == key.rstrip("s"):
            return key
    synonym = SYNONYMS.get(lower)
    if synonym and synonym.split(".")[:-1] == [*level]:
        return synonym.rpartition(".")[2]
    for other, keys in known.items():  # a key that exists, in another table
        if lower in keys:
            return ".".join((*other, lower))
    near = closest(word, here)
    if near or synonym:
        return near or synonym
    every = {key: ".".join((*other, key)) for other, keys in known.items() for key in keys}
    far = closest(word, every)
    return every[far] if far else None


def arguments(value: object, *, shell: bool | None, by_people: bool) -> object:
    """The argv of a `command` that is text or a list; `shell` is None if it is not known."""
    if isinstance(value, str):
        if not value.strip():
            raise Wrong(*_NO_COMMAND)
        return _split(value) if shell is False else (value,)
    if isinstance(value, (list, tuple)):
        if not value:
            raise Wrong(*_NO_COMMAND)
        if shell and (by_people or len(value) != 1):
            what = "with `shell = true` the command is one text, not a list"
            raise Wrong(what, "write it as text, or remove `shell`")
        if isinstance(value[0], str) and not value[0].strip():
            raise Wrong(*_NO_PROGRAM)
        return value
    raise Wrong(f"should be text or a list, not {show(value)}", 'write it like "python3 train.py"')


def _split(text: str) -> tuple[str, ...]:
    joined = text.replace("\\\n", " ").strip()
    try:
        words = _words(joined, " \t\r\n")
        lines = _words(joined, " \t\r")
    except ValueError as error:
        unclosed = "quotation" in str(error)
        what = "a quotation mark has no partner" if unclosed else str(error).lower()
        raise Wrong(what, "close it, or write the command as a list") from None
    if words != lines:
        raise Wrong("has several lines", f"{_SHELL_REMEDY}, or write one line")
    odd = next((word for word in words if word in _SHELL_WORDS), None)
    if odd:
        raise Wrong(f"`{odd}` has a meaning only in a shell", _SHELL_REMEDY)
    if not words or not words[0].strip():
        raise Wrong(*_NO_PROGRAM)
    return tuple(words)


def _words(text: str, whitespace: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = whitespace, True, ""
    return list(lexer)


@dataclass(frozen=True)
class Reading:
    """The validation context of what a person wrote, in job.toml or in Python."""

    columns: Collection[str] | None  # that placeholders may name; None: the table cannot be read
    units: bool = True  # whether numbers need units, as in job.toml; else bytes and seconds


def by_people(info: ValidationInfo) -> bool:
    """Whether the value was written into a job.toml rather than in Python or by Headway."""
    return isinstance(info.context, Reading) and info.context.units


def _size(value: object, info: ValidationInfo) -> int:
    if by_people(info) or isinstance(value, (str, bool)) or not isinstance(value, int):
        return parse_size(value)
    if not 0 <= value <= MAX_SIZE:
        raise Wrong(f"{show(value)} is not a number of bytes")
    return value


def _exact_size(value: object, info: ValidationInfo) -> int:
    if isinstance(value, str):
        return parse_size(value)
    if type(value) is not int:
        raise Wrong(f"should be a number of bytes, not {show(value)}", "write the exact size")
    if not 0 <= value <= MAX_SIZE:
        raise Wrong(f"{show(value)} is not a number of bytes", "write the exact size")
    return value


def _at_least_a_megabyte(size: int) -> int:
    if size < 10**6:
        raise Wrong(f"{format_size(size)} is too little for any job", "check the unit")
    return size


def _duration(value: object, info: ValidationInfo) -> float:
    if by_people(info) or isinstance(value, (str, bool)) or not isinstance(value, (int, float)):
        return parse_duration(value)
    if not (math.isfinite(value) and 0 <= value <= MAX_DURATION):
        raise Wrong(f"{show(value)} is not a number of seconds")
    return float(value)


def _longer_than_nothing(seconds: float) -> float:
    if seconds <= 0:
        raise Wrong("must be longer than 0 s", "leave it out, or give it a length")
    return seconds


def _name(text: str) -> str:
    name = unicodedata.normalize("NFC", text)
    odd = [c for c in name if not (c.isalnum() or c in " ._-" or unicodedata.category(c)[0] == "M")]
    if not name.strip():
        raise Wrong("is empty", 'give the job a name, such as "cifar10"')
    if odd:
        remedy = "a name is made of letters, digits, spaces, `.`, `_` and `-`"
        raise Wrong(f"{show(name)} contains {show(odd[0])}", remedy)
    if name[0] in ".- " or name[-1] == " ":
        what = f"{show(name)} begins with `.`, `-` or a space, or ends with a space"
        raise Wrong(what, "begin with a letter or digit")
    if len(name) > 100 or len(name.encode()) > 200:
        raise Wrong("is longer than 100 characters (or 200 bytes)", "choose a shorter name")
    return name


def _template(text: str, info: ValidationInfo) -> str:
    return check_template(text, info.context.columns if isinstance(info.context, Reading) else None)


def _environment_name(name: str) -> str:
    if not _ENVIRONMENT_NAME.fullmatch(name):
        raise Wrong("is not a name for a variable", "use letters, digits and `_`")
    if name.lower().startswith("_condor_") or name.upper().startswith("HEADWAY_"):
        raise Wrong("is set by HTCondor or Headway", "choose another name")
    return name


def checked_checksum(text: str) -> str:
    """A checksum as "name:hex", in lower case."""
    refuse_placeholders(text)
    kind, colon, digits = text.strip().lower().partition(":")
    if not colon:
        fits = [name for name, length in _HEX_DIGITS.items() if length == len(kind)]
        first = fits[0] if fits else "sha256"
        raise Wrong("does not say its kind", f'write "{first}:…" before the digits')
    if kind not in _HEX_DIGITS:
        raise Wrong(f"{show(kind)} is not a known checksum", f"use {', '.join(_HEX_DIGITS)}")
    length, remedy = _HEX_DIGITS[kind], "copy the whole checksum"
    if not re.fullmatch(r"[0-9a-f]*", digits):
        raise Wrong(f"{show(digits)} is not hexadecimal", remedy)
    if len(digits) != length:
        what = f"a {kind} checksum has {length} hexadecimal digits, this has {len(digits)}"
        raise Wrong(what, remedy)
    return f"{kind}:{digits}"


def _pin(text: str) -> str:
    pin = checked_checksum(text)
    if not pin.startswith("sha256:"):
        raise Wrong("is not a sha256", "copy what `headway publish` printed")
    return pin


def _one_line(text: str) -> str:
    if not text.strip():
        raise Wrong("is empty", "leave it out")
    if any(char in text for char in "\n\r\0"):
        raise Wrong("contains a line break", "write it on one line")
    return text.strip()


def _container(text: str) -> str:
    image = refuse_placeholders(_one_line(text))
    if re.search(r"\s", image):
        raise Wrong(f"{show(image)} contains a space", "name one image")
    if re.match(r"[^/]+://[^/@:]*:[^/@]*@[^/]+/", image):
        raise Wrong("contains a user name or password", "remove everything up to `@`")
    return image


def _submit_key(key: str) -> str:
    if not _SUBMIT_KEY.fullmatch(key):
        raise Wrong(f"{show(key)} is not a submit command", 'write e.g. "+ProjectName"')
    remedy = SUBMIT_OWN.get(key.lower().removeprefix("+").removeprefix("my."))
    if remedy:
        raise Wrong("is written by Headway itself", remedy)
    return key


def _submit_value(value: object) -> str:
    text = text_of(value)
    if any(char in text for char in "\n\r\0"):
        raise Wrong("contains a line break", "write it on one line")
    if text.rstrip().endswith("\\"):
        raise Wrong("ends with a backslash, which would join the next line", "remove it")
    return text.strip()


def _flat(value: object) -> object:
    """Join the keys of `MY.Attribute = …`, which TOML reads as a table `MY`."""
    if not isinstance(value, dict):
        return value
    flat: dict[Any, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and str(key).lower() == "my":
            flat |= {f"{key}.{attribute}": text for attribute, text in inner.items()}
        else:
            flat[key] = inner
    return flat


def _runtime(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Wrong("a version is text: 12.10 and 12.1 differ", f'write "{show(value)}" in quotes')
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", value):
        raise Wrong(f"{show(value)} is not a CUDA version", 'write it like "12.1"')
    return value


def _checkpoint_path(text: str) -> str:
    path = folder_path(text)
    if "," in path:
        raise Wrong(
            f"{show(path)} contains a comma, which HTCondor reads as a separator", "rename it"
        )
    return path


def _site(text: str) -> str:
    if '"' in text or "\\" in text:
        raise Wrong(f"{show(text)} is not the name of a site", "remove quotes and backslashes")
    return _one_line(text)


Size = Annotated[int, BeforeValidator(_size)]  # bytes
Memory = Annotated[Size, AfterValidator(_at_least_a_megabyte)]
ExactSize = Annotated[int, BeforeValidator(_exact_size)]
Duration = Annotated[float, BeforeValidator(_duration)]  # seconds
Period = Annotated[Duration, AfterValidator(_longer_than_nothing)]
Whole = Annotated[int, Strict()]
Retry = Annotated[int, Strict(), Field(ge=0, le=1000)]
Flag = Annotated[bool, Strict()]
Name = Annotated[str, AfterValidator(_name)]
Template = Annotated[str, AfterValidator(_template)]
EnvironmentName = Annotated[str, AfterValidator(_environment_name)]
EnvironmentValue = Annotated[str, BeforeValidator(text_of), AfterValidator(_template)]
FolderPath = Annotated[str, AfterValidator(folder_path)]
CheckpointPath = Annotated[str, AfterValidator(_checkpoint_path)]
TemplatePath = Annotated[str, AfterValidator(_template), AfterValidator(template_path)]
InputUrl = Annotated[str, AfterValidator(_template), AfterValidator(input_url)]
OutputTo = Annotated[str, AfterValidator(_template), AfterValidator(output_to)]
Checksum = Annotated[str, AfterValidator(checked_checksum)]
Pin = Annotated[str, AfterValidator(_pin)]
OneLine = Annotated[str, AfterValidator(_one_line)]
Container = Annotated[str, AfterValidator(_container)]
Runtime = Annotated[str, BeforeValidator(_runtime)]
Site = Annotated[str, AfterValidator(_site)]
SubmitLines = Annotated[
    dict[
        Annotated[str, AfterValidator(_submit_key)], Annotated[str, BeforeValidator(_submit_value)]
    ],
    BeforeValidator(_flat),
]
