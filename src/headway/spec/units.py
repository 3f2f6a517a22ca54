"""Sizes and durations, always with a unit: a bare number could mean two things."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal

from headway.spec.errors import Wrong, show

Readings = Callable[[float], tuple[str, str]]  # the two likely units of a bare number

MAX_SIZE = 10**18  # 1 EB
MAX_DURATION = 366 * 86400.0

_DECIMAL = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_SIZES = {name.lower(): factor for name, factor in {**_DECIMAL, **_BINARY}.items()}
_SIZES |= {"byte": 1, "bytes": 1}

_DURATIONS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86400),
}
_LARGEST_FIRST = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))

_NUMBER = r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_SIGNED = re.compile(rf"[+-]?(?:{_NUMBER})(?:[eE][+-]?[0-9]+)?")
_SIZE = re.compile(rf"({_NUMBER})\s*([A-Za-z]+)")
_PART = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]+)\s*(?:,|and\b)?")
_CLOCK = re.compile(r"([0-9]{1,4}):([0-5][0-9])(?::([0-5][0-9]))?")


def parse_size(value: object) -> int:
    """Bytes from "8 GB" (10^9) or "8 GiB" (2^30)."""
    text = _with_unit(value, "a size", 'such as "8 GB" or "512 MiB"', _size_readings)
    match = _SIZE.fullmatch(text)
    if not match:
        raise Wrong(f"{show(text)} is not a size", 'write it like "8 GB" or "512 MiB"')
    number, unit = match.groups()
    if unit.lower() in ("k", "m", "g", "t", "p"):
        prefix = unit.upper()
        raise Wrong(
            f"{show(text)} has two readings: {number} {prefix}B or {number} {prefix}iB?",
            f'write "{number} {prefix}B" (powers of 1000) or "{number} {prefix}iB" (of 1024)',
        )
    if re.fullmatch(r"[KMGTP]b", unit):
        raise Wrong(f"{show(text)} reads as bits", f'write "{number} {unit[0]}B" for bytes')
    factor = _SIZES.get(unit.lower())
    if factor is None:
        raise Wrong(
            f"{show(unit)} is not a unit of size",
            "the units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
        )
    exact = Decimal(number) * factor
    if exact > MAX_SIZE:
        raise Wrong(f"{show(text)} is more than any machine has", "check the unit")
    size = int(exact.to_integral_value(ROUND_HALF_EVEN))
    if size == 0 and exact > 0:
        raise Wrong(f"{show(text)} is less than a byte", "check the unit")
    return size


def parse_duration(value: object) -> float:
    """Seconds from "90 s", "20 min" or "1 h 30 min"."""
    hint = 'such as "90 s", "20 min" or "1 h 30 min"'
    text = _with_unit(value, "a duration", hint, _duration_readings)
    clock = _CLOCK.fullmatch(text)
    if clock:
        first, second, third = (int(part or 0) for part in clock.groups())
        one, two = f"{first} h {second} min", f"{first} min {second} s"
        remedy = f'write "{one} {third} s"' if clock[3] else f'write "{one}" or "{two}"'
        raise Wrong(f"{show(text)} has no units", remedy)
    total, smallest, end = Decimal(0), math.inf, 0
    while end < len(text):
        part = _PART.match(text, end)
        if not part:
            raise Wrong(f"{show(text)} is not a duration", f"write it with units, {hint}")
        number, unit = part.groups()
        seconds = _DURATIONS.get(unit.lower())
        if seconds is None:
            remedy = "the units are s, min, h, days, weeks"
            raise Wrong(f"{show(unit)} is not a unit of time", remedy)
        if seconds >= smallest:
            remedy = "write each unit once, the largest first"
            raise Wrong(f"{show(text)} is not a duration", remedy)
        total, smallest, end = total + Decimal(number) * seconds, seconds, part.end()
    if total > MAX_DURATION:
        raise Wrong(f"{show(text)} is longer than a year", "check the unit")
    return float(total)


def format_size(size: float) -> str:
    """Bytes for people, in powers of 1000: "8 GB", "1.54 kB"."""
    if not math.isfinite(size):
        return "?"
    sign, size = ("-", -size) if size < 0 else ("", size)
    unit = next((unit for unit, factor in _DECIMAL.items() if size / factor < 999.5), "PB")
    return f"{sign}{_three_digits(size / _DECIMAL[unit])} {unit}"


def format_duration(seconds: float) -> str:
    """Seconds for people, in the two largest units: "1 h 30 min", "12.5 s"."""
    if not math.isfinite(seconds):
        return "?"
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds < 60:
        figure = _three_digits(seconds)
        return f"{sign}{figure} s" if float(figure) < 60 else f"{sign}1 min"
    whole = round(seconds)
    step = 3600 if whole >= 86400 else 60 if whole >= 3600 else 1
    rounded = round(seconds / step) * step
    parts: list[str] = []
    for unit, length in _LARGEST_FIRST:
        whole, rounded = divmod(rounded, length)
        if whole:
            parts.append(f"{whole} {unit}")
    return sign + " ".join(parts)


def _with_unit(value: object, noun: str, hint: str, readings: Readings) -> str:
    """`value` as text that may have a unit; raises Wrong where it cannot have one."""
    quote = f"write it in quotes with its unit, {hint}"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Wrong(f"should be {noun}, not {show(value)}", quote)
    if isinstance(value, float) and not math.isfinite(value):
        raise Wrong(f"{value} is not {noun}", quote)
    text = value.strip() if isinstance(value, str) else show(value)
    if not text:
        raise Wrong("is empty", f"write {noun} with its unit, {hint}")
    if len(text) > 60 or re.match(r"[+-]?(?:nan|inf)", text, re.IGNORECASE):
        raise Wrong(f"{show(text)} is not {noun}", f"write it {hint}")
    if text.startswith("-"):
        raise Wrong(f"{text} is negative", f"write {noun} {hint}")
    if _SIGNED.fullmatch(text):
        one, two = readings(float(text))
        one, two = f"{text} {one}", f"{text} {two}"
        raise Wrong(f"{text} has no unit: {one} or {two}?", f'write "{one}" or "{two}"')
    return text


def _size_readings(number: float) -> tuple[str, str]:
    return ("MB", "GB") if number < 1e5 else ("B", "kB")


def _duration_readings(number: float) -> tuple[str, str]:
    return ("min", "h") if number <= 24 else ("s", "min")


def _three_digits(figure: float) -> str:
    text = f"{figure:.3g}" if figure < 999.5 else f"{figure:.0f}"
    return f"{float(text):f}".rstrip("0").rstrip(".")


def exact_size(megabytes: int) -> str:
    """A number of MiB in the largest unit that needs no rounding."""
    return f"{megabytes} MiB" if megabytes % 1024 else f"{megabytes // 1024} GiB"
