"""A moment on the command line: how long ago, or a date and time."""

from __future__ import annotations

import re
from datetime import datetime

from headway.cli.parser import UsageError

_EXAMPLES = "such as 7d, 12h, 90min, 2025-11-16 or 2025-11-16T08:30"


def moment(text: str, now: float) -> float:
    """Seconds since the epoch; a date without a zone is meant here."""
    from headway.spec import parse_duration
    from headway.spec.words import Wrong

    given = text.strip()
    if re.match(r"[0-9]{4}-", given):
        try:
            # Python 3.10 does not know the Z, and knows no fractions of other lengths.
            found = datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", given)).timestamp()
        except (ValueError, OverflowError, OSError):
            raise UsageError(
                f"--since {text[:60]!r} is no date", remedy=f"write it {_EXAMPLES}"
            ) from None
    else:
        try:
            found = now - parse_duration(given)
        except Wrong as error:
            raise UsageError(f"--since: {error.what}", remedy=f"write it {_EXAMPLES}") from None
    if found > now:
        raise UsageError(f"--since {text[:60]} is in the future", remedy=f"write it {_EXAMPLES}")
    return found
