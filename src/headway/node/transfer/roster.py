"""The roster: which sources an object has; a federation's director is asked, and asked again."""

from __future__ import annotations

import random
import threading
import time

from headway.node.errors import HeadwayError, TransferError
from headway.node.transfer import urls
from headway.node.transfer.source import Fault, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_AGAIN = 30.0  # seconds after which a director may know better caches
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 5.0  # a director that is back must not wait for us long
_MANY = 4  # times that a director must refuse to be believed
_ORIGIN_RANK = 1000
_HESITATION = (2.0, 6.0)  # seconds of bytes before a second connection to a source
_NEED = 2.0  # seconds without any connection after which the origin is asked for


class _Asked:
    """One URL whose sources a director knows."""

    def __init__(self, url: str, rank: int) -> None:
        self.url, self.rank = url, rank
        self.thread: threading.Thread | None = None
        self.fault: Fault | TransferError | None = None
        self.refusals = 0
        self.failures = 0  # since it answered
        self.begun = 0.0  # of the last question
        self.next = 0.0
        self.answered = False
        self.in_need: float | None = None  # since when no cache that it named gives anything
        self.past_caches = False  # it has been asked for the origin


class Roster:
    """All sources of one object, in the order of preference."""

    def __init__(
        self,
        given: Sequence[str],
        *,
        per_source: int,
        hesitates: bool,
        direct: bool,
        should_stop: Callable[[], bool],
    ) -> None:
        self._per_source, self._direct, self._should_stop = per_source, direct, should_stop
        self._hesitates = hesitates
        self._lock = threading.Lock()
        self._fresh: list[Source] = []
        self._known: dict[str, Source] = {}
        self._asked: list[_Asked] = []
        self._keys = 0
        for rank, url in enumerate(given):
            try:
                name = urls.name(url)
            except ValueError as error:
                raise TransferError(str(error), retryable=False, remedy="correct the URL") from None
            if name.federated or name.credential:
                self._asked.append(_Asked(url, rank * 100))
            else:
                self._add(url, rank * 100, False, None)
        if not given:
            raise TransferError("the file has no source", retryable=False)

    def news(self, now: float, *, stuck: bool) -> list[Source]:
        """Sources that were not known before; with `stuck`, directors are asked once more."""
        for each in self._asked:
            running = each.thread is not None and each.thread.is_alive()
            wanted = not each.answered or stuck
            if not (each.answered and stuck):
                each.in_need = None
            elif each.in_need is None:
                each.in_need = now
            need = each.in_need is not None and now - each.in_need >= _NEED
            origin = need and not each.past_caches
            if not running and wanted and (origin or now >= each.next):
                each.past_caches = each.past_caches or origin
                each.next, each.begun = now + _AGAIN, now
                each.thread = threading.Thread(
                    target=self._ask, args=(each, origin), name="director", daemon=True
                )
                each.thread.start()
        with self._lock:
            fresh, self._fresh = self._fresh, []
        return fresh

    def waiting(self, now: float) -> bool:
        """Whether a director may still name further sources."""
        return any(not each.answered and each.refusals < _MANY for each in self._asked)

    def refused(self, now: float) -> bool:
        """Whether every director has refused so often that it is believed."""
        return bool(self._asked) and all(each.refusals >= _MANY for each in self._asked)

    def faults(self) -> list[tuple[str, Fault]]:
        """What directors said last, with the URL that they were asked for."""
        result = []
        for each in self._asked:
            fault = each.fault
            if fault is None and not each.answered and each.thread is not None:
                silent = time.monotonic() - each.begun
                fault = Fault(f"its director has said nothing for {silent:.0f} s")
            if isinstance(fault, TransferError):
                fault = Fault(fault.message, retryable=fault.retryable, remedy=fault.remedy)
            if fault is not None:
                fault.phase = fault.phase or "resolve"
                result.append((each.url, fault))
        return result

    def _ask(self, asked: _Asked, origin: bool) -> None:
        from headway.node.transfer.pelican import resolve

        try:
            direct = self._direct or origin
            offers = resolve(asked.url, direct=direct, should_stop=self._should_stop)
        except Exception as reason:
            error = reason if isinstance(reason, (Fault, HeadwayError)) else _unforeseen(reason)
            if origin:
                return  # the caches may still recover; that there is no origin is no news
            now = time.monotonic()
            retryable = bool(getattr(error, "retryable", True))
            asked.failures += 1
            asked.refusals = asked.refusals + 1 if not retryable else 0
            if getattr(error, "settled", False):
                asked.refusals = _MANY  # it has been asked often enough, or need not be asked
            asked.fault = error if isinstance(error, (Fault, TransferError)) else None
            pause = min(_FIRST_PAUSE * 2.0 ** min(asked.failures - 1, 9), _LONGEST_PAUSE)
            pause *= random.uniform(0.75, 1.25)  # noqa: S311 - not for secrecy
            asked.next = now + max(pause, min(getattr(error, "after", 0.0), 300.0))
            return
        asked.fault, asked.refusals, asked.failures = None, 0, 0
        for number, offer in enumerate(offers):
            rank = asked.rank + number + (_ORIGIN_RANK if offer.origin else 0)
            self._add(offer.url, rank, offer.origin, offer.token, asked.url)
        asked.answered = bool(offers)

    def _add(self, url: str, rank: int, origin: bool, token: object, named_for: str = "") -> None:
        with self._lock:
            known = self._known.get(url)
            if known is not None:
                known.token = token or known.token  # type: ignore[assignment]
                return
            source = Source(
                url,
                key=self._keys,
                rank=rank,
                last_resort=origin,
                token=token,  # type: ignore[arg-type]
                most=self._per_source,
                # not all at the same moment: many nodes may have begun together
                hesitation=random.uniform(*_HESITATION) if self._hesitates else 0.0,  # noqa: S311
                named_for=named_for,
            )
            self._keys += 1
            self._known[url] = source
            self._fresh.append(source)


def _unforeseen(error: Exception) -> Fault:
    """What nobody thought of must not pass for a silent director; the next answer may be better."""
    return Fault(f"its director cannot be asked: {type(error).__name__}", phase="resolve")
