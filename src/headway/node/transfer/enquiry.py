"""Enquiries: what servers are asked beside the bytes, each in a thread of its own.

Before the end: is there a digest of the whole? At the end of a transfer that took several requests
and that nothing else will prove: is the object still the one that it was?
"""

from __future__ import annotations

import threading

from headway.node.transfer.source import Fault
from headway.node.transfer.stream import HttpStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.node.transfer.source import Identity, Source


class Enquiry:
    """One HEAD request to each of some sources.

    `digest`: the algorithm of a digest that is asked for, or "any".
    """

    def __init__(
        self,
        sources: list[Source],
        told: Callable[[Source, Identity], None],
        *,
        digest: str = "",
    ) -> None:
        self._told, self._digest = told, digest
        self._ended = False
        self._streams: list[HttpStream] = []
        self._threads = {
            source.key: threading.Thread(
                target=self._ask, args=(source,), name="enquiry", daemon=True
            )
            for source in sources
            if not source.url.startswith("file:")
        }
        for thread in self._threads.values():
            thread.start()

    @property
    def keys(self) -> list[int]:
        """The sources that are being asked."""
        return [key for key, thread in self._threads.items() if thread.is_alive()]

    @property
    def under_way(self) -> bool:
        return bool(self.keys)

    def end(self) -> None:
        """Nobody needs the answers any more."""
        self._ended = True
        for stream in list(self._streams):
            stream.abort()

    def _ask(self, source: Source) -> None:
        stream = HttpStream(source.url, source.token)
        self._streams.append(stream)
        if self._ended:
            return
        try:
            identity = stream.about(digest=self._digest)
        except Fault:
            return  # it need not answer
        finally:
            stream.close()
        if identity is not None and not self._ended:
            self._told(source, identity)
