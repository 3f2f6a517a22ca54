"""Health: how a source answers right now, found out with one small, polite request."""

from __future__ import annotations

import os
import re
import time
from urllib.parse import unquote, urlsplit

from headway.node.transfer.heads import REDIRECTS, Redirects
from headway.node.transfer.http import ONCE, HttpConnection, refusal
from headway.node.transfer.source import Fault
from headway.node.transfer.tokens import bearer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.transfer.http import Answer
    from headway.node.transfer.pelican import Offer

    Stop = Callable[[], bool]

SAMPLE = 1 << 20  # bytes: enough to see a rate, little enough to burden nobody
LIMIT = 10.0  # seconds for all of it
SLOW = 0.1  # of the best source's rate
FAST = 10e6  # bytes a second of which a small sample says nothing more than that it is fast
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


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
    """Ask one source for the object's first bytes.

    Args:
        offer: The source, with the token that opens it, if any.
        should_stop: Asked often; Stopped is raised when it says so.
        sample: How many bytes.
        limit: Seconds for all of it.
        public: The URL is a stranger's word: no file, and no host of a private network.

    Returns:
        What it showed of itself; what is wrong with it is in `fault`.
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
    """Compare the sources: a slow one, and one with another object, show only beside the others."""
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
    age = reply.get("Age")
    health.age = int(age) if age.isascii() and age.isdigit() and len(age) < 12 else None
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
