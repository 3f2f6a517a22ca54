"""How many examples a property test tries that takes seconds."""

from __future__ import annotations

from hypothesis import settings

_SHARE, _LEAST = 5, 12


def examples(many: int) -> int:
    """A fifth of `many` in the steady profile, whose examples never change; all in the others.

    To be called where `settings` decorates a test: pytest has loaded the profile by then.
    """
    steady = settings.default is not None and settings.default.derandomize
    return max(_LEAST, many // _SHARE) if steady else many
