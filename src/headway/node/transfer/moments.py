"""Moments: dates in a server's answer, read by the server's own clock.

A node's clock may be hours off, or be set while a transfer runs; intervals are monotonic here, and
what a server means by a date is told by the date of its answer.
"""

from __future__ import annotations

import time


def moment(text: str) -> float | None:
    """An HTTP date in seconds; None: it is none."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def clock(date: str) -> float:
    """The time by an answer's Date, else by the node's clock."""
    told = moment(date) if date else None
    return time.time() if told is None else told


def retry_after(text: str, date: str = "") -> float:
    """The seconds that a server asks to wait, whether it names them or a date; 0: neither."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    until = moment(text) if text else None
    return 0.0 if until is None else max(0.0, until - clock(date))
