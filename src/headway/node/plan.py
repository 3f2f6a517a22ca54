"""The plan: what the agent has to do, read from plan.json and filled in with the job's row."""

from __future__ import annotations

import json
import os
import re

from headway.node.errors import HeadwayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# `{column}` placeholders: the access point checks them, the node fills them in.

# `${NAME}` belongs to the shell and `{"a": 1}` to JSON: neither is a placeholder.
_PLACEHOLDER = re.compile(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def placeholders(text: str) -> list[str]:
    """The column names in `text`, in order of appearance."""
    return [m.group(1) for m in _PLACEHOLDER.finditer(text) if m.group(1)]


def fill(text: str, row: Mapping[str, str]) -> str:
    """`text` with each `{column}` replaced; `{{` and `}}` become single braces."""

    def value(match: re.Match[str]) -> str:
        column = match.group(1)
        return row[column] if column else match.group(0)[0]

    return _PLACEHOLDER.sub(value, text)


FORMAT = 1
# the names of Headway's own files and folders where a job runs
OUT = "headway-out"
PLAN = "plan.json"
PAYLOAD = "payload.tar"
AGENT = "headway-node.pyz"
TICKET_FILE = "ticket.json"  # in the output folder: what a courier is to bring
SECRETS = "headway-secrets.json"  # values of variables that the plan only names
# hexadecimal digits of each checksum that an input may declare
CHECKSUMS = {"sha256": 64, "md5": 32, "adler32": 8, "crc32c": 8}
# URLs to which the agent itself sends an output; `name+` names the token to use
_SENT = re.compile(r"(?:[\w.+-]+\+)?(?:https?|osdf|stash|pelican)://|file:", re.IGNORECASE)
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2")


class PlanError(HeadwayError):
    """The plan or the row cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(message, remedy="submit again with the same headway on both sides")


class PlannedInput:
    """One input file of the command; without URLs, HTCondor has transferred it."""

    def __init__(self, data: _Section) -> None:
        self.path = data.path("path", filled=True)
        self.urls = data.texts("urls")
        # the name that HTCondor gives it
        self.arrives_as = os.path.basename(
            data.optional_text("arrives_as", filled=True) or self.path
        )
        self.size = data.integer("size")
        self.checksum = _checksum(data, "checksum")
        self.manifest = _checksum(data, "manifest")  # the digest of its manifest
        if self.manifest is not None and not self.manifest.startswith("sha256:"):
            raise PlanError(f"{data.where}.manifest: not a sha256: {self.manifest!r}")
        self.patience = data.seconds("patience")
        self.streams = data.optional_text("mode") == "stream"  # it arrives while the command runs
        # the folder to unpack it to: `path` is then the archive, gone before the command starts
        self.unpack = data.path("unpack", filled=True) if data.value("unpack") is not None else None
        self.keep = data.flag("keep", True)
        # the node's store may keep it for other jobs; what is a file here already stays where it is
        local = any(url.lower().startswith("file:") for url in self.urls)
        self.store = data.flag("store", True) and bool(self.urls) and not local
        self.window = data.integer("window")  # bytes of disk that it may take, unless `keep`
        self.prefetched = ""  # the checksum of what was brought for this very job, if anything


class PlannedOutput:
    """One file or folder that the command writes."""

    def __init__(self, data: _Section) -> None:
        self.path = data.path("path", filled=True)
        to = data.optional_text("to", filled=True)
        self.url = to if to and _SENT.match(to) else None
        self.required = data.flag("required", True)
        self.overwrite = data.flag("overwrite", False)
        self.min_size = data.integer("min_size") or 0


class PlannedCheckpoint:
    """How the command saves its state, and how it reports that."""

    def __init__(self, data: _Section) -> None:
        self.paths = data.paths("paths")
        self.exit_code = data.integer("exit_code") or 85
        self.interval = data.seconds("interval")
        self.signal = data.optional_text("signal")
        if self.signal is not None and self.signal not in SIGNALS:
            raise PlanError(f"{data.where}.signal: {self.signal!r} is not one of {SIGNALS}")


class PlannedDelivery:
    """Outputs that go home after the job has ended, if the node can keep them."""

    def __init__(self, data: _Section) -> None:
        self.smallest = data.integer("smallest") or 0  # bytes; fewer go home with the job
        stays = data.seconds("stays")
        self.stays = 86400.0 if stays is None else stays  # how long the node keeps them at least


class Plan:
    """A plan, filled in with a row."""

    def __init__(self, data: object, row: Mapping[str, str]) -> None:
        top = _Section(data, row, "plan.json")
        if top.value("format") != FORMAT:
            found = top.value("format")
            raise PlanError(f"plan.json has format {found!r}; this agent reads format {FORMAT}")
        self.row = dict(row)
        self.run = top.optional_text("run") or ""
        self.name = top.optional_text("name") or ""
        self.shell = top.flag("shell", False)
        self.command = top.texts("command")
        if not self.command or not self.command[0] or (self.shell and len(self.command) != 1):
            raise PlanError("plan.json: command: must name a program, or one line for the shell")
        self.environment = top.mapping("environment")
        # names of further variables, whose values are in SECRETS
        self.secrets = top.texts("secrets", filled=False) if top.value("secrets") else []
        payload = top.optional_text("payload")
        self.payload = None if payload is None else _inside(payload, "plan.json: payload")
        self.inputs = [PlannedInput(section) for section in top.sections("inputs")]
        self.outputs = [PlannedOutput(section) for section in top.sections("outputs")]
        checkpoint = top.value("checkpoint")
        self.checkpoint = (
            None
            if checkpoint is None
            else PlannedCheckpoint(_Section(checkpoint, row, "checkpoint"))
        )
        deliver = top.value("deliver")
        self.deliver = (
            None if deliver is None else PlannedDelivery(_Section(deliver, row, "deliver"))
        )
        self.prefetch = top.flag("prefetch", False)  # inputs may come while other jobs compute
        self.disk = top.integer("disk")
        self.gpus = top.integer("gpus") or 0
        grace = top.seconds("grace")
        self.grace = 60.0 if grace is None else grace
        self.time_limit = top.seconds("time_limit")
        unpacked = [each.unpack for each in self.inputs if each.unpack is not None]
        _distinct([*(each.path for each in self.inputs), *unpacked], "inputs")
        _distinct([each.path for each in self.outputs], "outputs")


def read_plan(path: str, row: Mapping[str, str]) -> Plan:
    """Read and check the plan file; raises PlanError if anything is wrong with it."""
    return Plan(_read_json(path), row)


def take_secrets(names: Sequence[str]) -> dict[str, str]:
    """Read the variables that the plan only names, and remove the file with their values."""
    if not names:
        return {}
    data = _read_json(SECRETS)
    try:
        os.unlink(SECRETS)
    except OSError as error:
        raise PlanError(f"{SECRETS} cannot be removed: {error.strerror}") from None
    values = data if isinstance(data, dict) else {}
    lacking = [name for name in names if not isinstance(values.get(name), str)]
    if lacking:
        raise PlanError(f"{SECRETS} lacks the variables {', '.join(lacking)}")
    return {name: values[name] for name in names}


def _read_json(path: str) -> object:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        raise PlanError(f"{path} is not in {os.getcwd()}; the pool did not transfer it") from None
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not JSON: {error}") from None


def read_row(encoded: str | None) -> dict[str, str]:
    """The placeholder values in HEADWAY_ROW: base64url of a JSON object of strings."""
    if not encoded:
        return {"job": "0"}
    import binascii

    try:
        padded = encoded + "=" * (-len(encoded) % 4)
        data = json.loads(binascii.a2b_base64(padded.replace("-", "+").replace("_", "/")))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or not all(isinstance(v, str) for v in data.values()):
        raise PlanError("HEADWAY_ROW is not a row")
    return data


class _Section:
    """A JSON object with a getter for each type of value; a wrong type is a PlanError."""

    def __init__(self, data: object, row: Mapping[str, str], where: str) -> None:
        if not isinstance(data, dict):
            raise PlanError(f"{where}: must be an object")
        self.data, self.row, self.where = data, row, where

    def _wrong(self, key: str, kind: str) -> PlanError:
        return PlanError(f"{self.where}: {key}: must be {kind}, is {self.data.get(key)!r:.80}")

    def _text(self, key: str, text: object, filled: bool) -> str:
        """Only some texts may have placeholders: see the access point's `refuse_placeholders`."""
        if not isinstance(text, str) or "\0" in text:
            raise self._wrong(key, "text")
        if not filled:
            return text
        try:
            return fill(text, self.row)
        except KeyError as column:
            raise PlanError(
                f"{self.where}: {key}: no column {column} in this job's row {sorted(self.row)}"
            ) from None

    def value(self, key: str) -> object:
        return self.data.get(key)

    def optional_text(self, key: str, *, filled: bool = False) -> str | None:
        value = self.data.get(key)
        return None if value is None else self._text(key, value, filled)

    def texts(self, key: str, *, filled: bool = True) -> list[str]:
        values = self.data.get(key)
        if not isinstance(values, list):
            raise self._wrong(key, "a list")
        return [self._text(key, value, filled) for value in values]

    def mapping(self, key: str) -> dict[str, str]:
        values = self.data.get(key)
        if values is None:
            return {}
        if not isinstance(values, dict) or any("=" in k or "\0" in k or not k for k in values):
            raise self._wrong(key, "an object of texts")
        return {name: self._text(key, value, True) for name, value in values.items()}

    def path(self, key: str, *, filled: bool = False) -> str:
        return _inside(self._text(key, self.data.get(key), filled), f"{self.where}: {key}")

    def paths(self, key: str) -> list[str]:
        return [_inside(path, f"{self.where}: {key}") for path in self.texts(key, filled=False)]

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return default if value is None else value

    def integer(self, key: str) -> int | None:
        value: int | None = self._number(key, int, "a whole number, not negative")
        return value

    def seconds(self, key: str) -> float | None:
        value = self._number(key, (int, float), "seconds")
        if value is not None and not value < 1e12:
            raise self._wrong(key, "seconds")
        return None if value is None else float(value)

    def _number(self, key: str, types: Any, kind: str) -> Any:
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, types) or not value >= 0:
            raise self._wrong(key, kind)
        return value

    def sections(self, key: str) -> list[_Section]:
        values = self.data.get(key)
        if values is None:
            return []
        if not isinstance(values, list):
            raise self._wrong(key, "a list")
        return [_Section(v, self.row, f"plan.json: {key}[{i}]") for i, v in enumerate(values)]


def _checksum(data: _Section, key: str) -> str | None:
    text = data.optional_text(key)
    if text is None:
        return None
    name, _, digits = text.lower().partition(":")
    if len(digits) != CHECKSUMS.get(name) or set(digits) - set("0123456789abcdef"):
        raise PlanError(f"{data.where}.{key}: not a checksum: {text!r}")
    return text.lower()


def _inside(path: str, where: str) -> str:
    """The normalised path, which must be below the job's folder and outside headway-out."""
    plain = os.path.normpath(path) if path else "."
    first = plain.split("/")[0]
    if plain == "." or plain.startswith("/") or first == "..":
        raise PlanError(f"{where}: {path!r} is not below the job's folder")
    if first == OUT:
        raise PlanError(f"{where}: {path!r} is in {OUT}/, which belongs to headway")
    return plain


def _distinct(paths: list[str], where: str) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise PlanError(f"plan.json: {where}: {path!r} is declared twice")
