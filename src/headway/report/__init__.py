"""Reports: where every second of slot time went, from event logs.

    from headway.report import report

    found = report("train.log")
    print(found.totals.compute_share, found.findings[0].title)

The names load when they are first used: what they need is heavier than the rest of Headway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.report.whole import Report, report

__all__ = ["Report", "report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'headway.report' has no attribute {name!r}")
    from headway.report import whole

    return getattr(whole, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
