"""Discovery: which sources an object has, and how each of them answers right now.

A federation's director is asked, and asked again while a download needs more sources than it has
named. `examine` finds out with one small, polite request how a source does.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from urllib.parse import unquote, urlsplit

from headway.node.errors import HeadwayError, NodeError, TransferError
from headway.node.transfer import federation
from headway.node.transfer.heads import REDIRECTS, Redirects, number
from headway.node.transfer.http import ONCE, HttpConnection, refusal
from headway.node.transfer.source import Fault, Source
from headway.node.transfer.tokens import bearer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.node.transfer.connection import Stop
    from headway.node.transfer.federation import Offer
    from headway.node.transfer.http import Answer
    from headway.node.transfer.options import Options
    from headway.node.transfer.tokens import Secret


_AGAIN = 30.0  # seconds after which a director may know better caches
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 5.0  # so that a director that is back is soon asked again
_MANY = 4  # times that a director must refuse to be believed
_ORIGIN_RANK = 1000
_HESITATION = (2.0, 6.0)  # seconds of bytes before a second connection to a source
_NEED = 2.0  # seconds without any connection after which the origin is asked for
SAMPLE = 1 << 20  # bytes: enough to see a rate, and no burden to anybody
LIMIT = 10.0  # seconds for all of it
SLOW = 0.1  # of the best source's rate
FAST = 10e6  # bytes a second of which a small sample says nothing more than that it is fast
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


class _Asked:
    """One URL whose sources a director knows."""

    def __init__(self, url: str, rank: int) -> None:
        self.url, self.rank = url, rank
        self.thread: threading.Thread | None = None
        self.fault: Fault | None = None
        self.refusals = 0
        self.failures = 0  # since it answered
        self.begun = 0.0  # of the last question
        self.next = 0.0
        self.answered = False
        self.in_need: float | None = None  # since when no cache that it named gives anything
        self.past_caches = False  # it has been asked for the origin


class Discovery:
    """Finds all sources of one object, in the order of preference."""

    def __init__(self, given: Sequence[str], options: Options) -> None:
        self._per_source, self._direct = options.per_source, options.direct
        self._should_stop = options.should_stop
        # unless the caller wants all connections at one source, second ones wait a little
        self._hesitates = options.per_source < options.connections
        self._lock = threading.Lock()
        self._fresh: list[Source] = []
        self._known: dict[str, Source] = {}
        self._asked: list[_Asked] = []
        self._keys = 0
        for rank, url in enumerate(given):
            name = federation.parse_name(url)
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

    def waiting(self) -> bool:
        """Whether a director may still name further sources."""
        return any(not each.answered and each.refusals < _MANY for each in self._asked)

    def refused(self) -> bool:
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
            if fault is not None:
                fault.phase = fault.phase or "resolve"
                result.append((each.url, fault))
        return result

    def _ask(self, asked: _Asked, origin: bool) -> None:
        try:
            direct = self._direct or origin
            offers = federation.resolve(asked.url, direct=direct, should_stop=self._should_stop)
        except Exception as error:
            if origin:
                return  # the caches may still recover; that there is no origin is no news
            fault = asked.fault = _as_fault(error)
            asked.failures += 1
            asked.refusals = asked.refusals + 1 if not fault.retryable else 0
            if fault.settled:
                asked.refusals = _MANY  # it has been asked often enough, or need not be asked
            pause = min(_FIRST_PAUSE * 2.0 ** min(asked.failures - 1, 9), _LONGEST_PAUSE)
            pause *= random.uniform(0.75, 1.25)  # noqa: S311 - not for secrecy
            asked.next = time.monotonic() + max(pause, min(fault.after, 300.0))
            return
        asked.fault, asked.refusals, asked.failures = None, 0, 0
        for place, offer in enumerate(offers):
            rank = asked.rank + place + (_ORIGIN_RANK if offer.origin else 0)
            self._add(offer.url, rank, offer.origin, offer.token, asked.url)
        asked.answered = bool(offers)

    def _add(
        self, url: str, rank: int, origin: bool, token: Secret | None, named_for: str = ""
    ) -> None:
        with self._lock:
            known = self._known.get(url)
            if known is not None:
                known.token = token or known.token
                return
            source = Source(
                url,
                key=self._keys,
                rank=rank,
                last_resort=origin,
                token=token,
                most=self._per_source,
                # not all at the same moment: many nodes may have begun together
                hesitation=random.uniform(*_HESITATION) if self._hesitates else 0.0,  # noqa: S311
                named_for=named_for,
            )
            self._keys += 1
            self._known[url] = source
            self._fresh.append(source)


def _as_fault(error: Exception) -> Fault:
    """Why a director could not be asked; whatever it was, it must not look like silence."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, TransferError):
        retryable, remedy = error.retryable, error.remedy
        return Fault(error.message, retryable=retryable, remedy=remedy, means=type(error))
    if isinstance(error, HeadwayError):
        return Fault(error.message, remedy=error.remedy, node=isinstance(error, NodeError))
    return Fault(f"its director cannot be asked: {type(error).__name__}")


# -- how a source answers


class Health:
    """What one source showed of itself."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.fault: Fault | None = None
        self.status: int | None = None  # of the last answer
        self.first_byte: float | None = None  # seconds from the beginning to the answer's head
        self.rate: float | None = None  # bytes a second of the sample
        self.size: int | None = None  # of the object, as this source has it
        self.age: int | None = None  # seconds for which a cache has had it; 0: it had to fetch it
        self.ranges = True
        self.state = "well"  # or "slow", or "sick": see `words`
        self.words = ""


def examine(
    offer: Offer,
    *,
    should_stop: Stop = lambda: False,
    sample: int = SAMPLE,
    limit: float = LIMIT,
    public: bool = False,
) -> Health:
    """Ask one source for the object's first bytes; what is wrong with it is in `fault`.

    `sample`: how many bytes. `limit`: seconds for all of it. `public`: the URL comes from a
    stranger, so no file is read and no host of a private network is asked. `should_stop` is asked
    often; Stopped is raised when it says so.
    """
    health = Health(offer)
    begin = time.monotonic()
    try:
        if not offer.url.lower().startswith("file:"):
            _fetch(health, begin, sample, limit, should_stop, public)
        elif not public:
            _read(health, sample)
    except Fault as fault:
        health.fault = fault
        health.state = "sick"
        health.words = f"{fault.words} ({fault.phase})" if fault.phase else fault.words
    return health


def judge(found: Sequence[Health]) -> None:
    """Compare the sources: only that shows a slow one, or one that has another object."""
    fit = [each for each in found if each.state != "sick"]
    sizes = [each.size for each in fit if each.size is not None]
    usual = max(set(sizes), key=lambda size: (sizes.count(size), -sizes.index(size)), default=None)
    rates = [each.rate for each in fit if each.rate is not None and each.size in (usual, None)]
    for each in fit:
        if each.size is not None and each.size != usual:
            each.state = "sick"
            each.words = f"it has {each.size} bytes, the others have {usual}"
        elif each.rate is not None and each.rate < min(SLOW * max(rates), FAST):
            each.state, each.words = "slow", "much slower than the best"
        elif not each.ranges:
            each.words = "gives the whole object only, no ranges"


def _fetch(
    health: Health, begin: float, sample: int, limit: float, should_stop: Stop, public: bool
) -> None:
    offer, way = health.offer, Redirects(health.offer.url)
    end = begin + limit
    while True:
        token = bearer(offer.token, offer.url, way.url)
        with HttpConnection(
            way.url, silence=limit, deadline=end, should_stop=should_stop, public=public
        ) as connection:
            headers = {**ONCE, "Range": f"bytes=0-{sample - 1}", **token}
            answer = connection.ask("GET", headers)
            health.status = answer.status
            if answer.status in (200, 206):
                health.first_byte = time.monotonic() - begin
                _measure(health, answer, sample)
                return
        if answer.status == 416:  # an empty object has no first byte
            health.first_byte, health.size = time.monotonic() - begin, 0
            return
        if answer.status not in REDIRECTS:
            raise refusal(answer)
        way.follow(answer.get("Location"))


def _measure(health: Health, reply: Answer, sample: int) -> None:
    begin = time.monotonic()
    match = _RANGE.fullmatch(reply.get("Content-Range"))
    if reply.status == 206:
        if match is None or match[1] != "0":
            raise Fault("it gives other bytes than it was asked for", phase="first byte")
        health.size = int(match[3])
    else:
        health.ranges, health.size = False, reply.length
    health.age = number(reply.get("Age"))
    data = reply.read(sample)
    wanted = sample if health.size is None else min(sample, health.size)
    if len(data) < wanted and health.size is not None:
        raise Fault(f"it broke off after {len(data)} of {wanted} bytes", phase="body")
    seconds = time.monotonic() - begin
    health.rate = len(data) / seconds if seconds > 0 and data else None


def _read(health: Health, sample: int) -> None:
    begin = time.monotonic()
    try:
        with open(unquote(urlsplit(health.offer.url).path), "rb") as file:
            health.size = os.fstat(file.fileno()).st_size
            data = file.read(sample)
    except OSError as error:
        raise Fault(str(error.strerror), phase="disk") from None
    seconds = time.monotonic() - begin
    health.first_byte = seconds
    health.rate = len(data) / seconds if seconds > 0 and data else None
