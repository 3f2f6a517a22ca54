"""Targets: the places that `put` hands files over to."""

from __future__ import annotations

import errno
import time

from headway.node.errors import NodeError, Stopped, TransferError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int, int | None], None]

FULL = (errno.ENOSPC, errno.EDQUOT)
_EVERY = 0.5  # seconds between two calls of `progress`


class Target:
    """The destination of a `put`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.proof = ""  # "digest" or "size": how the file was found to be there, once it is

    def put(
        self,
        path: str,
        size: int,
        overwrite: bool,
        again: bool,
        progress: Progress | None,
        should_stop: Callable[[], bool],
    ) -> None:
        """Hand the file over; `again`: an earlier try may have got there unnoticed."""
        raise NotImplementedError


def open_target(url: str) -> Target:
    """The target behind a URL, by its scheme."""
    from headway.node.transfer import urls

    try:
        named = urls.name(url)
    except ValueError as error:
        raise TransferError(str(error), retryable=False, remedy="correct the URL") from None
    if named.scheme == "file":
        from headway.node.transfer.local import FileTarget

        return FileTarget(url)
    try:
        from headway.node.transfer.delivery import NetTarget
    except ImportError as error:
        raise NodeError(f"the node's Python cannot speak https: {error}") from None
    return NetTarget(url)


class Pace:
    """Calls `progress` twice a second at most, and raises Stopped when asked to stop."""

    def __init__(self, progress: Progress | None, should_stop: Callable[[], bool]) -> None:
        self._progress, self._should_stop = progress, should_stop
        self._last = 0.0

    def step(self, done: int, total: int | None) -> None:
        if self._should_stop():
            raise Stopped("the transfer was stopped")
        now = time.monotonic()
        if self._progress is not None and now - self._last >= _EVERY:
            self._last = now
            self._progress(done, total)
