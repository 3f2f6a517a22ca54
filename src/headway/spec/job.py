"""What a job.toml describes, once it has been read and validated."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from headway.errors import Problem, SpecError
from headway.node.plan import fill, placeholders
from headway.spec import fields as f
from headway.spec.collisions import Draft, find_collisions
from headway.spec.errors import Loc, Wrong, key_path, show
from headway.spec.fields import Reading, arguments, unknown_key
from headway.spec.files import Rows, check_container, expand_files, read_table, read_toml
from headway.spec.override import Setting, apply_options
from headway.spec.places import is_url, unpacked_name, url_basename
from headway.spec.units import parse_size
from headway.text import closest

_NOT_UNPACKED = (".7z", ".rar", ".z", ".lz4", ".lz", ".deb", ".rpm", ".iso", ".sif", ".h5", ".pt")
_FROM_SHELL = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
Signal = Literal["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"]
AnyModel = TypeVar("AnyModel", bound=BaseModel)


class Model(BaseModel):
    """Unknown keys are errors; a job does not change once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, /, **data: Any) -> None:
        """Make it in Python; raises SpecError with everything that is wrong, as for a job.toml."""
        try:
            self.__pydantic_validator__.validate_python(data, self_instance=self)
        except ValidationError as error:
            origins = KeyOrigins(type(self).__name__, data, data)
            raise SpecError(explain(error, origins, _LEVELS.get(type(self), ()))) from None

    # so that pydantic does not call this for what it validates itself
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        where = f"{type(self).__name__}: {name}"
        remedy = "make another one: .model_copy(update={…})"
        raise SpecError([Problem(where, "cannot be changed once it is made", remedy)])


class Gpus(Model):
    count: Annotated[f.Whole, Field(ge=1, le=1000)] = 1
    memory: f.Memory | None = None  # at least this much on each GPU
    # at least, e.g. 7.5
    capability: Annotated[float, Strict(), Field(gt=0, le=100, allow_inf_nan=False)] | None = None
    runtime: f.Runtime | None = None  # at least this CUDA runtime, e.g. "12.1"


def shell_name(value: str) -> str | None:
    """The variable of the shell that `$NAME` means; None: it is plain text."""
    match = _FROM_SHELL.fullmatch(value)
    return match[1] if match else None


def _gpus(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"count": value} if value else None
    if value is None or isinstance(value, (dict, Gpus)):
        return value
    raise Wrong(f"should be a number of GPUs or a table, not {show(value)}", "write gpus = 1")


class Resources(Model):
    cpus: Annotated[f.Whole, Field(ge=1, le=100_000)] = 1
    memory: f.Memory = parse_size("2 GB")
    disk: f.Memory = parse_size("4 GB")
    gpus: Annotated[Gpus | None, BeforeValidator(_gpus)] = None  # a number, or a table


class Input(Model):
    urls: tuple[f.InputUrl, ...] = Field(alias="url")  # mirrors of one object, best first
    path: f.TemplatePath  # where the command finds it; default: the first URL's file name
    checksum: f.Checksum | None = None  # "sha256:<hex>"
    size: f.ExactSize | None = None  # exact, in bytes
    manifest: f.Pin | None = None  # the digest of PATH.headway beside it, as `publish` prints it
    patience: f.Period | None = None  # without a byte from anywhere; default: the engine's
    via: Literal["agent", "plugin"] = "agent"  # who brings it: the agent, or HTCondor before it
    mode: Literal["file", "stream"] = "file"  # complete before the command starts, or as it runs
    unpack: f.Flag = False  # an archive becomes the folder `path`, a compressed file the file
    keep: f.Flag = True  # false: what was read is deleted, and downloaded again for another epoch
    store: f.Flag = True  # false: the node's store does not keep it for other jobs
    # how much disk a stream may use, with keep = false
    window: Annotated[f.Memory | None, Field(validate_default=True)] = None

    @field_validator("mode")
    @classmethod
    def _check_mode(cls, mode: str, info: ValidationInfo) -> str:
        if mode == "stream" and info.data.get("via") == "plugin":
            raise Wrong(
                "HTCondor brings the complete input before the command starts",
                "leave out `via`: the agent streams it",
            )
        return mode

    @field_validator("unpack")
    @classmethod
    def _check_unpack(cls, unpack: bool, info: ValidationInfo) -> bool:
        if not unpack:
            return unpack
        if info.data.get("mode") == "stream":
            raise Wrong(
                "a stream is read while it arrives, and so cannot be unpacked",
                'leave out mode = "stream", or read the members with headway.torch',
            )
        first = info.data.get("urls", ("",))[0].partition("?")[0].lower()
        if first.endswith(_NOT_UNPACKED):
            raise Wrong(
                f"Headway does not unpack {first.rpartition('.')[2]} files",
                "pack it as .tar, .tar.gz, .tar.zst or .zip",
            )
        return unpack

    @property
    def file(self) -> str:
        """Where it is downloaded to: its path or, if it is to be unpacked, another name there."""
        if not self.unpack:
            return self.path
        folder, _, name = self.path.rpartition("/")
        arrives = url_basename(self.urls[0]) or name
        arrives = f"{arrives}.packed" if arrives == name else arrives
        return f"{folder}/{arrives}" if folder else arrives

    @field_validator("keep")
    @classmethod
    def _check_keep(cls, keep: bool, info: ValidationInfo) -> bool:
        if keep or "mode" not in info.data or "manifest" not in info.data:
            return keep
        if info.data["mode"] != "stream":
            raise Wrong("works only for a stream", 'add mode = "stream"')
        if info.data["manifest"] is None:
            raise Wrong(
                "needs a manifest, to verify what is downloaded again",
                "add the `manifest` that `headway publish` prints",
            )
        return keep

    @field_validator("window")
    @classmethod
    def _check_window(cls, window: int | None, info: ValidationInfo) -> int | None:
        if window is not None and info.data.get("keep") is True:
            raise Wrong("limits what is kept, but now everything is kept", "add keep = false")
        if window is None and info.data.get("keep") is False:
            raise Wrong("is missing: with keep = false it limits the disk", 'window = "20 GB"')
        return window

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: object) -> object:
        if isinstance(value, str):
            value = {"url": value}
        if isinstance(value, dict) and "url" in value:
            url = value["url"]
            first = url[0] if isinstance(url, (list, tuple)) and url else url
            name = url_basename(first) if isinstance(first, str) else None
            if name and "path" not in value:
                return {**value, "path": unpacked_name(name) if value.get("unpack") else name}
        return value

    @field_validator("urls", mode="before")
    @classmethod
    def _one_url(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, (list, tuple)) and not value:
            raise Wrong("is empty", "name at least one URL")
        return value


class Output(Model):
    path: f.TemplatePath  # file or folder that the command leaves behind
    to: f.OutputTo | None = None  # access-point path or http(s)/file URL; default: the run folder
    required: f.Flag = True
    min_size: f.Size = 0
    overwrite: f.Flag = False  # may replace what already lies at `to`

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value

    @field_validator("to")
    @classmethod
    def _into_folder(cls, to: str | None, info: ValidationInfo) -> str | None:
        """`to = "results/"` means the output's own name within that folder."""
        path = str(info.data.get("path", ""))
        return to + path.rpartition("/")[2] if to and to.endswith("/") else to


class CheckpointSettings(Model):
    paths: tuple[f.CheckpointPath, ...]
    exit_code: Annotated[f.Whole, Field(ge=1, le=255)] = 85
    interval: f.Period | None = None  # told to the command as HEADWAY_CHECKPOINT_INTERVAL
    signal: Signal | None = None  # sent at the interval

    @field_validator("paths")
    @classmethod
    def _check_paths(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        if not paths:
            raise Wrong("is empty", "name what the command writes as its checkpoint")
        return tuple(dict.fromkeys(paths))

    @field_validator("signal")
    @classmethod
    def _check_signal(cls, signal: Signal | None, info: ValidationInfo) -> Signal | None:
        if signal and "interval" in info.data and info.data["interval"] is None:
            raise Wrong("needs an `interval`, at which it is sent", 'add interval = "1 h"')
        return signal


class Retries(Model):
    """How many more attempts a job gets, by what went wrong."""

    node: f.Retry = 3  # the node was not fit
    input: f.Retry = 10  # an input did not arrive: five hours of pauses
    output: f.Retry = 1  # a declared output was missing
    command: f.Retry = 0  # the command failed
    holds: f.Retry = 5  # releases after plainly transient holds
    backoff: f.Period = 60.0  # the pause before the first release; doubles with each hold
    avoid: f.Period = 1800.0  # how long a site where the job failed is avoided


class Sites(Model):
    prefer: tuple[f.Site, ...] = ()
    only: tuple[f.Site, ...] = ()
    avoid: tuple[f.Site, ...] = ()

    @field_validator("avoid")
    @classmethod
    def _check_avoid(cls, avoid: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        wanted = {*info.data.get("prefer", ()), *info.data.get("only", ())}
        both = [site for site in avoid if site in wanted]
        if both:
            raise Wrong(f"{show(both[0])} is also among the sites to use", "choose one")
        return avoid


class Job(Model):
    """A job, or one for each row of a table, with the keys of job.toml.

    It does not change once it is made. Sizes are in bytes here, and durations in seconds.
    """

    name: f.Name
    shell: f.Flag = False  # before `command`, whose validation depends on it
    command: tuple[f.Template, ...]  # argv; with `shell`, one string for /bin/sh -c
    files: tuple[f.FolderPath, ...] = ()  # relative to the folder of job.toml
    environment: dict[f.EnvironmentName, f.EnvironmentValue] = {}
    container: f.Container | None = None
    count: Annotated[f.Whole, Field(ge=1, le=1_000_000)] = 1
    rows: tuple[dict[str, str], ...] | None = None  # from `table`: one job for each row
    resources: Resources = Resources()
    inputs: tuple[Input, ...] = ()
    prefetch: f.Flag = True  # inputs may come to a node while it computes another job of the run
    outputs: tuple[Output, ...] = ()
    deliver: Literal["now", "later"] = "now"  # later: by a courier, once the job has ended
    deliver_within: f.Period = 14400.0  # outputs that are not home by then are computed again
    checkpoint: CheckpointSettings | None = None
    grace: f.Duration = 60.0  # between SIGTERM and SIGKILL
    duration: Literal["Medium", "Long"] | None = None  # OSPool's JobDurationCategory
    time_limit: f.Period | None = None  # the agent stops the command after this long
    retries: Retries = Retries()
    requirements: f.OneLine | None = None  # a ClassAd expression, added to Headway's own
    sites: Sites = Sites()
    submit: f.SubmitLines = {}  # further submit lines, verbatim

    def __init__(self, /, **data: Any) -> None:
        """Make a job in Python.

        Args:
            **data: The keys of job.toml. Sizes may also be plain numbers of bytes, and durations of
                seconds. `table` is a list of rows, whose values are texts, numbers or booleans, or
                the name of a CSV file in the current folder.

        Raises:
            SpecError: With everything that is wrong with it.
        """
        make_job(self, data)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_validator("deliver")
    @classmethod
    def _check_deliver(cls, deliver: str, info: ValidationInfo) -> str:
        if deliver == "later" and info.data.get("outputs") == ():
            raise Wrong("there is nothing to deliver", "declare `outputs`")
        return deliver

    @field_validator("command", mode="before")
    @classmethod
    def _argv(cls, value: Any, info: ValidationInfo) -> object:
        return arguments(value, shell=info.data.get("shell"), by_people=f.by_people(info))

    @property
    def from_shell(self) -> dict[str, str]:
        """The variables whose values are taken from the shell at submit, with their names there."""
        found = {name: shell_name(value) for name, value in self.environment.items()}
        return {name: there for name, there in found.items() if there is not None}

    @property
    def written_environment(self) -> dict[str, str]:
        """The variables whose values the description itself holds."""
        return {
            name: value[1:] if shell_name(value[1:]) and value.startswith("$$") else value
            for name, value in self.environment.items()
            if shell_name(value) is None
        }

    @property
    def size(self) -> int:
        """How many jobs this describes."""
        return len(self.rows) if self.rows is not None else self.count

    def row(self, index: int) -> dict[str, str]:
        """The placeholder values of one job.

        Args:
            index: The job's number, from 0 on.

        Returns:
            Its table row, and `job`: its number. A run of only some jobs of a description keeps
            the numbers that they have in it.
        """
        columns = self.rows[index] if self.rows is not None else {}
        return {"job": str(index), **columns}

    def uploads(self, output: Output) -> bool:
        """Whether an output goes to a URL.

        Args:
            output: One of `outputs`.

        Returns:
            False if it goes to a path of the access point, or stays in the run folder. All rows
            of a table agree on that.
        """
        return output.to is not None and is_url(fill(output.to, self.row(0)))


# From what the models refuse to problems that a person can act on.

_LEVELS: dict[type[BaseModel], Loc] = {
    Job: (),
    Resources: ("resources",),
    Gpus: ("resources", "gpus"),
    Input: ("inputs", 0),
    Output: ("outputs", 0),
    CheckpointSettings: ("checkpoint",),
    Retries: ("retries",),
    Sites: ("sites",),
}


def _names(loc: Loc) -> tuple[str, ...]:
    """A key path without the numbers of list items."""
    return tuple(part for part in loc if isinstance(part, str))


KNOWN_KEYS: dict[tuple[str, ...], list[str]] = {
    _names(loc): [field.alias or name for name, field in model.model_fields.items()]
    for model, loc in _LEVELS.items()
}
KNOWN_KEYS[()] = [key if key != "rows" else "table" for key in KNOWN_KEYS[()]]

_MISSING = {
    ("name",): 'add name = "…", which names the run',
    ("command",): 'add command = "…", such as "python3 train.py"',
    ("inputs", "url"): 'add url = "https://…"',
    ("inputs", "path"): 'the URL does not end in a file name: add path = "…"',
    ("outputs", "path"): 'add path = "…", what the command leaves behind',
    ("checkpoint", "paths"): 'add paths = ["…"], what the command writes as its checkpoint',
}


_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


@dataclass(frozen=True)
class KeyOrigins:
    """Where a person wrote a key: in the file, or in an option."""

    source: str
    original: Mapping[str, Any]  # the file before any option
    document: Mapping[str, Any]  # the same with the options applied
    settings: Sequence[Setting] = ()

    def where(self, loc: Loc) -> str:
        """The file and key path, or the option that set the key."""
        node, depth = _resolve(self.document, loc)
        # what is not in the document, as far as tables go, stems from a shorthand
        loc = loc if isinstance(node, dict) else loc[:depth]
        for setting in reversed(self.settings):
            pairs = zip(setting.loc, loc, strict=False)
            common = loc[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))]
            missing = _resolve(self.original, common)[1] < len(common)
            if common and (common == setting.loc or missing):
                return setting.label
        return f"{self.source}: {key_path(loc)}" if loc else self.source


def _resolve(document: Any, loc: Loc) -> tuple[Any, int]:
    """The last node of a key path that is in a document, and how many of its parts are."""
    for depth, part in enumerate(loc):
        is_key = isinstance(document, dict) and part in document
        if not is_key and not (
            isinstance(document, list) and isinstance(part, int) and part < len(document)
        ):
            return document, depth
        document = document[part]
    return document, len(loc)


def explain(error: ValidationError, origins: KeyOrigins, level: Loc = ()) -> list[Problem]:
    """One problem for each thing that the models refused; `level`: where in a job the model is."""
    errors = [
        (tuple(part for part in one["loc"] if part != "[key]"), one)
        for one in error.errors(include_url=False)
    ]
    problems: dict[Problem, None] = {}
    for loc, one in errors:
        url = (*loc[:-1], "url")
        is_path = one["type"] == "missing" and loc[-1] == "path"
        if is_path and any(other[: len(url)] == url for other, _ in errors):
            continue  # the path would have come from the URL, which is wrong itself
        context = one.get("ctx") or {}
        wrong = context.get("error")
        if not isinstance(wrong, Wrong):
            words = _words(one["type"], (*level, *loc), one.get("input"), context, one["msg"])
            wrong = Wrong(*words)
        problems[wrong.at(origins.where(loc))] = None
    return list(problems)


def _words(
    kind: str, loc: Loc, value: Any, context: dict[str, Any], message: str
) -> tuple[str, str]:
    """What is wrong with a value, and the remedy, for a kind of pydantic's errors."""
    if kind == "missing":
        return "is missing", _MISSING.get(_names(loc), "")
    if kind == "extra_forbidden":
        return unknown_key(loc, KNOWN_KEYS)
    if kind in ("int_type", "int_from_float", "int_parsing", "int_parsing_size"):
        return f"should be a whole number, not {show(value)}", _whole_number(value)
    if kind in ("float_type", "finite_number", "float_parsing"):
        remedy = f"write {value} without quotes" if isinstance(value, str) else "write e.g. 7.5"
        return f"should be a number, not {show(value)}", remedy
    if kind == "string_type":
        scalar = not isinstance(value, (list, dict))
        remedy = f'write "{show(value)}" in quotes' if scalar else "write it in quotes"
        return f"should be text, not {show(value)}", remedy
    if kind == "bool_type":
        return f"should be true or false, not {show(value)}", "write it without quotes"
    if kind in ("tuple_type", "list_type"):
        remedy = f"write [{show(value)}]" if isinstance(value, (str, int)) else "write it as […]"
        return f"should be a list, not {show(value)}", remedy
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return f"should be a table, not {show(value)}", _table(loc)
    if kind == "literal_error":
        return _choice(loc, value, str(context.get("expected", "")))
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        remedy = "leave `gpus` out for none" if loc[-2:] == ("gpus", "count") else ""
        return f"{show(value)} is not possible: it must be {words} {context[name]:,}", remedy
    return message[:1].lower() + message[1:], ""


def _whole_number(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and abs(value) < 1e15:
        return f"write {max(1, math.ceil(value))}"
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return f"write {int(value)} without quotes"
    return "write e.g. 1"


def _table(loc: Loc) -> str:
    level = _names(loc)
    inner = KNOWN_KEYS.get(level)
    header = f"[[{level[0]}]]" if level in (("inputs",), ("outputs",)) else f"[{'.'.join(level)}]"
    return f"write a section {header}" + (f" with keys such as `{inner[0]}`" if inner else "")


def _choice(loc: Loc, value: Any, expected: str) -> tuple[str, str]:
    choices = re.findall(r"'([^']*)'", expected)
    what = f"{show(value)} is none of {', '.join(show(choice) for choice in choices)}"
    if loc == ("duration",) and re.search(r"[0-9]", str(value)):
        return what, "it is OSPool's category; a limit in hours is `time_limit`"
    near = closest(value, choices) if isinstance(value, str) else None
    return what, f"did you mean {show(near)}?" if near else ""


# From job.toml to a Job, or to everything that is wrong with it.


def load_job(
    path: str | Path, *, overrides: Sequence[str] = (), resources: Sequence[str] = ()
) -> Job:
    """The job that a job.toml describes.

    Args:
        path: The job.toml. Paths in `files`, `table` and `container` are relative to its folder.
        overrides: As `--set` takes them, such as `retries.node=5`.
        resources: As `--resource` takes them, such as `memory=16GB`.

    Returns:
        The job.

    Raises:
        SpecError: With everything that is wrong with the file and the options.
    """
    path = Path(path)
    options = {"overrides": overrides, "resources": resources}
    return build_job(read_toml(path), folder=path.parent, source=path.name, **options)


def build_job(
    raw: Mapping[str, Any],
    *,
    folder: Path,
    source: str = "job.toml",
    overrides: Sequence[str] = (),
    resources: Sequence[str] = (),
) -> Job:
    """The job that a TOML document describes.

    Args:
        raw: The document.
        folder: Where paths in `files`, `table` and `container` begin.
        source: What messages call the document.
        overrides: As `--set` takes them.
        resources: As `--resource` takes them.

    Returns:
        The job.

    Raises:
        SpecError: With every problem at once.
    """
    document, settings, problems = apply_options(raw, overrides, resources)
    origins = KeyOrigins(source, raw, dict(document), settings)
    if "rows" in document:
        del document["rows"]
        problems.append(Problem(origins.where(("rows",)), *unknown_key(("rows",), KNOWN_KEYS)))
    _take_outputs(document, origins, problems)
    rows, columns = _take_table(document, folder, origins, problems)
    if "files" in document:
        document["files"], wrong = expand_files(document["files"], folder, origins.where)
        problems += wrong
    context = Reading(columns)
    job: Job | None = None
    try:
        job = Job.model_validate({**document, "rows": rows}, context=context)
    except ValidationError as error:
        problems += explain(error, origins)
    image = job.container if job else document.get("container")
    if isinstance(image, str) and image.strip() and "\0" not in image:
        try:
            check_container(image.strip(), folder)
        except Wrong as wrong:
            problems.append(wrong.at(origins.where(("container",))))
    draft = _draft(document, rows, columns, folder, context)
    problems += [Problem(origins.where(loc), *words) for loc, *words in find_collisions(draft)]
    if problems or job is None:
        raise SpecError(problems)
    return job


def make_job(job: Job, given: Mapping[str, Any]) -> None:
    """Fill in a Job that is made in Python; raises SpecError with every problem at once.

    Its `files` and its container are looked for at submit, when their folder is known.
    """
    document = dict(given)
    origins = KeyOrigins("Job", document, document)
    problems: list[Problem] = []
    folder = Path.cwd()
    if "rows" in document:
        if "table" in document:
            what = "is the same as `table`"
            problems.append(Problem(origins.where(("rows",)), what, "keep one of the two"))
        document.setdefault("table", document.pop("rows"))
    if document.get("table", "") is None:
        del document["table"]
    _take_outputs(document, origins, problems)
    rows, columns = _take_table(document, folder, origins, problems)
    files = document.get("files", ())
    if isinstance(files, (list, tuple)):
        files = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in files]
    document["files"] = files
    context = Reading(columns, units=False)
    try:
        job.__pydantic_validator__.validate_python(
            {**document, "rows": rows}, self_instance=job, context=context
        )
    except ValidationError as error:
        problems += explain(error, origins)
    draft = _draft({**document, "files": ()}, rows, columns, folder, context)
    problems += [Problem(origins.where(loc), *words) for loc, *words in find_collisions(draft)]
    if problems:
        raise SpecError(problems)


def dump_job(job: Job) -> str:
    """The resolved job as JSON: sizes in bytes, durations in seconds."""
    return job.model_dump_json(by_alias=True, indent=2) + "\n"


def load_resolved(text: str) -> Job:
    """The job that `dump_job` wrote."""
    try:
        return Job.model_validate_json(text)
    except ValidationError as error:
        remedy = "it is written by Headway: restore it, or submit the job again"
        raise SpecError(explain(error, KeyOrigins("job.json", {}, {})), remedy=remedy) from None


#: The keys of a section [outputs], and those of a job that they stand for.
_OUTPUTS = {"files": "outputs", "deliver": "deliver", "within": "deliver_within"}


def _take_outputs(document: dict[str, Any], origins: KeyOrigins, problems: list[Problem]) -> None:
    """Put the keys of a section [outputs] where those of a job are; an option's value stays."""
    section = document.get("outputs")
    if not isinstance(section, dict):
        return
    del document["outputs"]
    for key, value in section.items():
        if key in _OUTPUTS:
            document.setdefault(_OUTPUTS[key], value)
            continue
        meant = closest(key, _OUTPUTS)
        hint = f"did you mean `{meant}`? " if meant else ""
        remedy = f"{hint}[outputs] has {', '.join(_OUTPUTS)}; for a list, write [[outputs]]"
        problems.append(Problem(origins.where(("outputs", key)), "is not a key here", remedy))


def _take_table(
    document: dict[str, Any], folder: Path, origins: KeyOrigins, problems: list[Problem]
) -> tuple[Rows | None, set[str] | None]:
    """The rows, and the columns that placeholders may name (None: not known)."""
    if "table" not in document:
        return None, {"job"}
    if "count" in document:
        what = "the table's rows already say how many jobs there are"
        problems.append(Problem(origins.where(("count",)), what, "keep one of `count` and `table`"))
    rows, wrong = read_table(document.pop("table"), folder, origins.where)
    problems += wrong
    return rows, {*rows[0], "job"} if rows else None


def _draft(
    document: Mapping[str, Any],
    rows: Rows | None,
    columns: set[str] | None,
    folder: Path,
    context: Reading,
) -> Draft:
    """The valid parts of a description, so that a wrong key does not hide a collision elsewhere."""
    inputs = _valid(Input, document.get("inputs"), context)
    outputs = _valid(Output, document.get("outputs"), context)
    if columns is None:  # without the table, only what needs none can be compared
        inputs = [(n, i) for n, i in inputs if not _asks((i.path, *i.urls))]
        outputs = [(n, o) for n, o in outputs if not _asks((o.path, o.to or ""))]
    count = document.get("count", 1)
    valid = type(count) is int and 1 <= count <= 1_000_000 and columns is not None
    size = len(rows) if rows is not None else count if valid else 1
    checkpoint = document.get("checkpoint")
    paths = checkpoint.get("paths") if isinstance(checkpoint, dict) else None
    saved = [p for p in paths if isinstance(p, str)] if isinstance(paths, list) else []
    return Draft(inputs, outputs, document.get("files", ()), rows, size, folder, saved)


def _valid(model: type[AnyModel], items: Any, context: Reading) -> list[tuple[int, AnyModel]]:
    items = items if isinstance(items, (list, tuple)) else ()
    made = ((index, _salvaged(model, item, context)) for index, item in enumerate(items))
    return [(index, one) for index, one in made if one is not None]


def _salvaged(model: type[AnyModel], item: Any, context: Reading) -> AnyModel | None:
    """An item without the keys that are wrong in it, if that leaves a valid one."""
    try:
        return model.model_validate(item, context=context)
    except ValidationError as error:
        bad = {one["loc"][0] for one in error.errors(include_url=False) if one["loc"]}
    if not isinstance(item, dict) or not bad:
        return None
    try:
        rest = {key: value for key, value in item.items() if key not in bad}
        return model.model_validate(rest, context=context)
    except ValidationError:
        return None


def _asks(texts: Sequence[str]) -> bool:
    return any(placeholders(text) for text in texts)
