"""Enquiries: what servers are asked beside the bytes, each in a thread of its own.

Before the end: is there a digest of the whole? At the end of a transfer that took several requests
and that nothing else will prove: is the object still the one that it was?
"""

from __future__ import annotations

import contextlib
import threading

from headway.node.transfer.source import Fault
from headway.node.transfer.stream import HttpStream, open_stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headway.node.transfer.source import Identity, Source
    from headway.node.transfer.stream import Stream


class Enquiry:
    """One HEAD request to each of some sources, which are all told of in the end.

    `told` is called with the lock of `changed` held.
    `digest`: the algorithm of a digest that is asked for, or "any". `doubted`: whether the answer
    is worth another look, by a GET. `kept`: connections that have
    nothing else to do; where there is none, or it has failed meanwhile, a fresh one is opened, and
    offered to `keep` afterwards.
    """

    def __init__(
        self,
        sources: list[Source],
        told: Callable[[Source, Identity | None], None],
        changed: threading.Condition,
        *,
        digest: str = "",
        kept: Mapping[int, HttpStream] | None = None,
        keep: Callable[[Source, Stream], bool] = lambda _source, _stream: False,
        doubted: Callable[[Source, Identity | None], bool] = lambda _source, _identity: False,
    ) -> None:
        self._told, self._changed = told, changed
        self._digest, self._doubted = digest, doubted
        self._kept, self._keep = dict(kept or {}), keep
        self._ended = False
        self._streams: list[Stream] = []
        self.keys = {source.key for source in sources}  # those whose answer is awaited
        for source in sources:
            threading.Thread(target=self._ask, args=(source,), name="enquiry", daemon=True).start()

    @property
    def under_way(self) -> bool:
        return bool(self.keys)

    def end(self) -> None:
        """Nobody needs the answers any more."""
        self._ended = True
        for stream in [*self._streams, *self._kept.values()]:
            stream.abort()

    def _ask(self, source: Source) -> None:
        identity = None
        try:
            identity = self._answer(source)
        except Fault:
            pass  # it need not answer
        finally:
            with self._changed:  # it is over when what it has found is known, and not before
                self._told(source, None if self._ended else identity)
                self.keys.discard(source.key)
                self._changed.notify_all()

    def _answer(self, source: Source) -> Identity | None:
        kept = self._kept.get(source.key)
        if kept is not None:
            with contextlib.closing(kept), contextlib.suppress(Fault):
                return self._look(source, kept)
        fresh = open_stream(source.url, source.token)
        self._streams.append(fresh)
        try:
            return None if self._ended else self._look(source, fresh)
        finally:
            if not self._keep(source, fresh):
                fresh.close()

    def _look(self, source: Source, stream: Stream) -> Identity | None:
        said = stream.about(digest=self._digest)
        if not self._doubted(source, said):
            return said
        given = stream.glimpse()
        if given is not None and given.size is None and said is not None:
            given.size = said.size
        return given


class Idle:
    """Connections that have nothing to bring just now, one a source: the last question is asked
    over it, at a quarter of the price. A lane begins with one that has brought nothing yet; how
    much one that has will still bring, nobody knows. The job's lock is held by who calls."""

    def __init__(self) -> None:
        self._streams: dict[int, HttpStream] = {}
        self._unused: set[int] = set()  # the sources whose connection has brought nothing

    def keep(self, source: Source, stream: Stream, *, unused: bool = False) -> bool:
        if not isinstance(stream, HttpStream) or not stream.idle:
            return False
        if self._streams.setdefault(source.key, stream) is not stream:
            return False
        if unused:
            self._unused.add(source.key)
        return True

    def unused(self, source: Source) -> HttpStream | None:
        return self._streams[source.key] if source.key in self._unused else None

    def take(self, sources: list[Source]) -> dict[int, HttpStream]:
        """The connections to these sources; the others are closed."""
        taken = {each.key: self._streams[each.key] for each in sources if each.key in self._streams}
        self.close(but=list(taken.values()))
        return taken

    def close(self, *, but: Sequence[Stream] = ()) -> None:
        for stream in self._streams.values():
            if stream not in but:
                stream.close()
        self._streams, self._unused = {}, set()
