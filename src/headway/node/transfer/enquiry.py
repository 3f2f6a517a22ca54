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
    """One HEAD request to each of some sources."""

    def __init__(
        self,
        sources: list[Source],
        told: Callable[[Source, Identity], None],
        *,
        want_digest: bool = False,
    ) -> None:
        self._sources, self._told, self._want = sources, told, want_digest
        self._streams: list[HttpStream] = []
        self._thread = threading.Thread(target=self._run, name="enquiry", daemon=True)
        self._thread.start()

    @property
    def keys(self) -> list[int]:
        """The sources that are asked."""
        return [source.key for source in self._sources]

    @property
    def under_way(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Nobody needs the answer any more."""
        self._sources = []
        for stream in list(self._streams):
            stream.abort()

    def _run(self) -> None:
        for source in list(self._sources):
            if source not in self._sources or source.url.startswith("file:"):
                continue
            stream = HttpStream(source.url, source.token)
            self._streams.append(stream)
            try:
                identity = stream.about(want_digest=self._want)
            except Fault:
                continue  # it need not answer
            finally:
                stream.close()
            if identity is not None and source in self._sources:
                self._told(source, identity)
