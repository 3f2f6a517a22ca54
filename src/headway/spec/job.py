"""What a job.toml says, once it has been read and found good."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

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
from headway.spec import fields as f
from headway.spec.command import arguments
from headway.spec.units import parse_size
from headway.spec.urls import unpacked_name, url_basename
from headway.spec.words import Wrong, show

_NOT_UNPACKED = (".7z", ".rar", ".z", ".lz4", ".lz", ".deb", ".rpm", ".iso", ".sif", ".h5", ".pt")
Signal = Literal["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"]


_FROM_SHELL = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


class Model(BaseModel):
    """Unknown keys are errors; a job does not change once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, /, **data: Any) -> None:
        """Make it in Python; raises SpecError with everything that is wrong, as for a job.toml."""
        try:
            self.__pydantic_validator__.validate_python(data, self_instance=self)
        except ValidationError as error:
            from headway.spec.problems import explain_part

            raise SpecError(explain_part(error, type(self), data)) from None

    # pydantic is to fill in what it validates itself, and not to call this
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        where = f"{type(self).__name__}: {name}"
        remedy = "make another one: .model_copy(update={…})"
        raise SpecError([Problem(where, "cannot be changed once it is made", remedy)])


class Gpus(Model):
    count: Annotated[f.Whole, Field(ge=1, le=1000)] = 1
    memory: f.Memory | None = None  # at least this much on each GPU
    capability: Annotated[float, Strict(), Field(gt=0, le=100, allow_inf_nan=False)] | None = (
        None  # at least, e.g. 7.5
    )
    runtime: f.Runtime | None = None  # at least this CUDA runtime, e.g. "12.1"


def shell_name(value: str) -> str | None:
    """The variable of the shell that `$NAME` means; None: the text means itself."""
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
    mode: Literal["file", "stream"] = "file"  # there before the command starts, or while it runs
    unpack: f.Flag = False  # an archive becomes the folder `path`, a compressed file the file
    keep: f.Flag = True  # false: what was read is given back, and fetched again in the next epoch
    # of the disk, with keep = false
    window: Annotated[f.Memory | None, Field(validate_default=True)] = None

    @field_validator("mode")
    @classmethod
    def _by_the_agent(cls, mode: str, info: ValidationInfo) -> str:
        if mode == "stream" and info.data.get("via") == "plugin":
            raise Wrong(
                "an input that HTCondor brings is whole before the command starts",
                "leave out `via`: the agent streams it",
            )
        return mode

    @field_validator("unpack")
    @classmethod
    def _whole(cls, unpack: bool, info: ValidationInfo) -> bool:
        if not unpack:
            return unpack
        if info.data.get("mode") == "stream":
            raise Wrong(
                "an input that streams is read as it is, while it arrives",
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
        """Where its bytes arrive: at its path, or, if it is to be unpacked, beside that."""
        if not self.unpack:
            return self.path
        folder, _, name = self.path.rpartition("/")
        arrives = url_basename(self.urls[0]) or name
        arrives = f"{arrives}.packed" if arrives == name else arrives
        return f"{folder}/{arrives}" if folder else arrives

    @field_validator("keep")
    @classmethod
    def _provable(cls, keep: bool, info: ValidationInfo) -> bool:
        if keep or "mode" not in info.data or "manifest" not in info.data:
            return keep
        if info.data["mode"] != "stream":
            raise Wrong("is of use for a stream only", 'add mode = "stream"')
        if info.data["manifest"] is None:
            raise Wrong(
                "needs a manifest: what comes again must be what was there before",
                "add the `manifest` that `headway publish` prints",
            )
        return keep

    @field_validator("window")
    @classmethod
    def _for_a_while(cls, window: int | None, info: ValidationInfo) -> int | None:
        if window is not None and info.data.get("keep") is True:
            raise Wrong("bounds what is kept, and all of it is", "add keep = false")
        if window is None and info.data.get("keep") is False:
            raise Wrong("is missing: with keep = false it says how much disk", 'window = "20 GB"')
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


class Checkpoint(Model):
    paths: tuple[f.CheckpointPath, ...]
    exit_code: Annotated[f.Whole, Field(ge=1, le=255)] = 85
    interval: f.Period | None = None  # told to the command as HEADWAY_CHECKPOINT_INTERVAL
    signal: Signal | None = None  # sent at the interval

    @field_validator("paths")
    @classmethod
    def _some(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        if not paths:
            raise Wrong("is empty", "name what the command writes as its checkpoint")
        return tuple(dict.fromkeys(paths))

    @field_validator("signal")
    @classmethod
    def _at_interval(cls, signal: Signal | None, info: ValidationInfo) -> Signal | None:
        if signal and "interval" in info.data and info.data["interval"] is None:
            raise Wrong("is sent at the interval, and there is none", 'add interval = "1 h"')
        return signal


class Retries(Model):
    """How many further attempts a job gets, by what went wrong."""

    node: f.Retry = 3  # the node was not fit
    input: f.Retry = 10  # an input did not arrive: five hours of pauses
    output: f.Retry = 1  # a declared output was missing
    command: f.Retry = 0  # the command failed
    holds: f.Retry = 5  # releases after plainly transient holds
    backoff: f.Period = 60.0  # the pause before the first release; doubles with each hold
    avoid: f.Period = 1800.0  # a site that failed the job; then a bad site is better than none


class Sites(Model):
    prefer: tuple[f.Site, ...] = ()
    only: tuple[f.Site, ...] = ()
    avoid: tuple[f.Site, ...] = ()

    @field_validator("avoid")
    @classmethod
    def _not_wanted(cls, avoid: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        wanted = {*info.data.get("prefer", ()), *info.data.get("only", ())}
        both = [site for site in avoid if site in wanted]
        if both:
            raise Wrong(f"{show(both[0])} is also among the sites to use", "choose one")
        return avoid


class Job(Model):
    name: f.Name
    shell: f.Flag = False  # before `command`, which is read in its light
    command: tuple[f.Template, ...]  # argv; with `shell`, one string for /bin/sh -c
    files: tuple[f.FolderPath, ...] = ()  # relative to the folder of job.toml
    environment: dict[f.EnvironmentName, f.EnvironmentValue] = {}
    container: f.Container | None = None
    count: Annotated[f.Whole, Field(ge=1, le=1_000_000)] = 1
    rows: tuple[dict[str, str], ...] | None = None  # from `table`: one job a row
    resources: Resources = Resources()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    checkpoint: Checkpoint | None = None
    grace: f.Duration = 60.0  # between SIGTERM and SIGKILL
    duration: Literal["Medium", "Long"] | None = None  # OSPool's JobDurationCategory
    time_limit: f.Period | None = None  # the agent stops the command after this long
    retries: Retries = Retries()
    requirements: f.OneLine | None = None  # a ClassAd expression, added to Headway's own
    sites: Sites = Sites()
    submit: f.SubmitLines = {}  # further submit lines, verbatim

    def __init__(self, /, **data: Any) -> None:
        """Make a job in Python, with the keys of job.toml.

        Sizes may also be plain numbers of bytes, and durations of seconds. `table` is a list of
        rows, whose values are texts, numbers or booleans, or the name of a CSV file in the current
        folder.

        Raises:
            SpecError: with everything that is wrong with it.
        """
        from headway.spec.load import make_job

        make_job(self, data)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_validator("command", mode="before")
    @classmethod
    def _argv(cls, value: Any, info: ValidationInfo) -> object:
        return arguments(value, shell=info.data.get("shell"), by_people=f.by_people(info))

    @property
    def from_shell(self) -> dict[str, str]:
        """The variables whose values are taken from the shell at submit, with their names there.

        Their values are never a part of the job.
        """
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
        """The placeholder values of job `index`: its table row and `{job}`.

        A run of only some jobs of a description keeps the numbers that they have in it.
        """
        columns = self.rows[index] if self.rows is not None else {}
        return {"job": str(index), **columns}
