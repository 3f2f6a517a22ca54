"""The kinds of value a job description has; each says in plain words what it cannot take."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo

from headway.spec.keys import submit_remedy
from headway.spec.paths import folder_path, template_path
from headway.spec.templates import check_template, refuse_placeholders
from headway.spec.units import MAX_DURATION, MAX_SIZE, format_size, parse_duration, parse_size
from headway.spec.urls import input_url, output_to
from headway.spec.words import Wrong, show, text_of


@dataclass(frozen=True)
class Reading:
    """The validation context of what a person wrote: columns must be known and, in job.toml,
    units be written.

    Without units (in Python, from job.json) plain numbers are bytes and seconds.
    """

    columns: Collection[str] | None  # None: the table could not be read
    units: bool = True


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
    if isinstance(value, bool) or not isinstance(value, int):
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
        raise Wrong("is no time at all", "leave it out, or give it a length")
    return seconds


def _name(text: str) -> str:
    name = unicodedata.normalize("NFC", text)
    odd = [c for c in name if not (c.isalnum() or c in " ._-" or unicodedata.category(c)[0] == "M")]
    if not name.strip():
        raise Wrong("is empty", 'give the job a name, such as "cifar10"')
    if odd:
        raise Wrong(
            f"{show(name)} holds {show(odd[0])}",
            "a name is made of letters, digits, spaces, `.`, `_` and `-`",
        )
    if name[0] in ".- " or name[-1] == " ":
        raise Wrong(
            f"{show(name)} begins with `.`, `-` or a space, or ends with a space",
            "begin with a letter or digit",
        )
    if len(name) > 100 or len(name.encode()) > 200:
        raise Wrong("is longer than 100 characters (or 200 bytes)", "choose a shorter name")
    return name


def _template(text: str, info: ValidationInfo) -> str:
    return check_template(text, info.context.columns if isinstance(info.context, Reading) else None)


_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _environment_name(name: str) -> str:
    if not _ENVIRONMENT_NAME.fullmatch(name):
        raise Wrong("is not a name for a variable", "use letters, digits and `_`")
    if name.lower().startswith("_condor_") or name.upper().startswith("HEADWAY_"):
        raise Wrong("is set by HTCondor or Headway", "choose another name")
    return name


_HEX_DIGITS = {"sha256": 64, "md5": 32, "crc32c": 8, "adler32": 8}


def checked_checksum(text: str) -> str:
    """A checksum as "name:hex", in small letters."""
    refuse_placeholders(text)
    kind, colon, digits = text.strip().lower().partition(":")
    if not colon:
        fits = [name for name, length in _HEX_DIGITS.items() if length == len(kind)]
        first = fits[0] if fits else "sha256"
        raise Wrong("does not say its kind", f'write "{first}:…" before the digits')
    if kind not in _HEX_DIGITS:
        raise Wrong(f"{show(kind)} is not a known checksum", f"use {', '.join(_HEX_DIGITS)}")
    if not re.fullmatch(r"[0-9a-f]*", digits) or len(digits) != _HEX_DIGITS[kind]:
        raise Wrong(
            f"a {kind} checksum has {_HEX_DIGITS[kind]} hexadecimal digits, this has {len(digits)}"
            if re.fullmatch(r"[0-9a-f]*", digits)
            else f"{show(digits)} is not hexadecimal",
            "copy the whole checksum",
        )
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
        raise Wrong("holds a line break", "write it on one line")
    return text.strip()


def _container(text: str) -> str:
    image = refuse_placeholders(_one_line(text))
    if re.search(r"\s", image):
        raise Wrong(f"{show(image)} holds a space", "name one image")
    if re.match(r"[^/]+://[^/@:]*:[^/@]*@[^/]+/", image):
        raise Wrong("holds a user name or password", "remove everything up to `@`")
    return image


_SUBMIT_KEY = re.compile(r"(?:\+|MY\.)?[A-Za-z_][A-Za-z0-9_.]*", re.IGNORECASE)


def _submit_key(key: str) -> str:
    if not _SUBMIT_KEY.fullmatch(key):
        raise Wrong(f"{show(key)} is not a submit command", 'write e.g. "+ProjectName"')
    remedy = submit_remedy(key)
    if remedy:
        raise Wrong("is written by Headway itself", remedy)
    return key


def _submit_value(value: object) -> str:
    text = text_of(value)
    if any(char in text for char in "\n\r\0"):
        raise Wrong("holds a line break", "write it on one line")
    if text.rstrip().endswith("\\"):
        raise Wrong("ends with a backslash, which would join the next line", "remove it")
    return text.strip()


def _flat(value: object) -> object:
    """`MY.Attribute = …` is a dotted key in TOML: put it together again."""
    if not isinstance(value, dict):
        return value
    flat: dict[Any, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and isinstance(key, str) and key.lower() == "my":
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
        raise Wrong(f"{show(path)} holds a comma, which separates files in HTCondor", "rename it")
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
        Annotated[str, AfterValidator(_submit_key)],
        Annotated[str, BeforeValidator(_submit_value)],
    ],
    BeforeValidator(_flat),
]
