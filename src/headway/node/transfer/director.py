"""Directors: what they are asked, what their headers say, and which of their refusals pass."""

from __future__ import annotations

import re

from headway.node.transfer.heads import REDIRECTS, Redirects, clock, joined
from headway.node.transfer.http import ANSWER, ask
from headway.node.transfer.source import Fault
from headway.node.transfer.urls import host_of, same_host, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headway.node.transfer.heads import ResponseHead

ORIGINS = "/api/v1.0/director/origin"
LAST = 1 << 20  # the priority of a source that is given none
_LINKS = 64  # looked at, however many a director sends
_LINK = re.compile(r"<([^<>]*)>([^<]*)")


class Place:
    """One server that a director sends us to."""

    def __init__(self, url: str, priority: int, depth: int) -> None:
        self.url = url
        self.priority = priority  # the lower the better
        self.depth = depth  # of the namespace that it has the object from


class Directions:
    """A director's answer for one object."""

    def __init__(self, reply: ResponseHead, asked: str) -> None:
        self.places = places(reply.get("Link"), _led(reply, asked))
        namespace = dict(reversed(list(pairs(reply.get("X-Pelican-Namespace")))))
        generation = list(pairs(reply.get("X-Pelican-Token-Generation")))
        issuing = [*pairs(reply.get("X-Pelican-Authorization")), *generation]
        self.namespace = namespace.get("namespace", "")
        self.needs_token = namespace.get("require-token", "").lower() == "true"
        self.collections = namespace.get("collections-url", "")
        self.issuers = [value for key, value in issuing if key == "issuer"]
        self.clock = clock(reply.get("Date"))  # the node's own may be off
        self.bases = [value for key, value in generation if key == "base-path"]


class Absent(Fault):
    """The director itself says that no server has the object."""


def ask_director(
    endpoint: str,
    target: str,
    *,
    method: str = "GET",
    should_stop: Callable[[], bool] = lambda: False,
    public: bool = False,
) -> Directions:
    """Where the object is; no redirect is followed but those within the director's own host."""
    url = endpoint.rstrip("/") + target
    host = host_of(endpoint)
    way = Redirects(url)
    while True:
        try:
            reply = ask(method, way.url, should_stop=should_stop, seconds=ANSWER, public=public)
        except Fault as fault:
            fault.words = f"the director {host} cannot be asked: {fault.words}"
            raise
        if reply.status in REDIRECTS:
            onward = _led(reply, way.url)
            told = reply.get("Link") or reply.get("X-Pelican-Namespace")
            if onward and same_host(endpoint, onward) and not told:
                _follow(way, onward, host)
                continue
            found = Directions(reply, way.url)
            if found.places:
                return found
            raise Fault(f"the director {host} sends us nowhere that we may go", phase="resolve")
        if reply.status == 200 and method == "GET":  # one server plays both parts
            found = Directions(reply, way.url)
            found.places = [Place(way.url, 0, 0)]
            return found
        raise refusal(reply, host, method)


def _follow(way: Redirects, onward: str, host: str) -> None:
    try:
        way.follow(onward)
    except Fault as fault:
        fault.words = f"the director {host} sends us nowhere: {fault.words}"
        raise


def refusal(reply: ResponseHead, host: str, method: str = "GET") -> Fault:
    """What a director's answer without directions means for another try."""
    who = f"the director {host}"
    genuine = reply.get("Server").lower().startswith("pelican/")
    words, remedy, passing = f"{who} answers {reply.words()}", "", True
    if reply.status == 429:
        words = f"{who} is busy or just starting: {reply.words()}"
    elif not genuine and reply.status in (404, 500, 502, 503, 504):
        words = f"something before {who} answers in its place: {reply.words()}"
    elif reply.status in (404, 410):
        remedy = "check the URL; is the object there, and its origin up?"
        words = f"{who} knows no server with it: {reply.words()}"
        return Absent(words, after=reply.after, remedy=remedy, phase="resolve", absent=True)
    elif reply.status == 405 and method != "GET":
        words, passing = f"{words}: no origin takes uploads there", False
        remedy = "ask the namespace's owner whether its origin takes uploads"
    elif reply.status in (401, 403):
        passing = False
        remedy = "check that the job's token is valid for this path and has not expired"
    else:
        passing = reply.status >= 500 or reply.status in (408, 425) or not genuine
    return Fault(
        words,
        retryable=passing,
        after=reply.after,
        remedy=remedy,
        phase="resolve",
        strain=reply.status in (429, 503),
    )


def places(links: str, location: str) -> list[Place]:
    """The servers in their order; what is no http(s) URL, or comes twice, is left out."""
    found = sorted(_links(links), key=lambda place: place.priority)
    if location and all(place.url != location for place in found) and _usable(location):
        found.insert(0, Place(location, 0, 0))
    first = {place.url: place for place in reversed(found)}
    return [place for place in found if first[place.url] is place]


def _led(reply: ResponseHead, asked: str) -> str:
    """Where its Location leads; "" where that is nowhere: its links may be good."""
    try:
        return joined(asked, reply.get("Location"))
    except Fault:
        return ""


def pairs(header: str) -> Iterator[tuple[str, str]]:
    """`key=value, key=value` as Pelican writes it; keys in lower case."""
    for part in header.split(","):
        key, equals, value = part.strip().partition("=")
        if equals and key:
            yield key.strip().lower(), value.strip().strip('"')


def _links(header: str) -> Iterator[Place]:
    for number, match in enumerate(_LINK.finditer(header)):
        if number >= _LINKS:
            return
        said = {"rel": "duplicate"}
        for part in match[2].rstrip(", \t").split(";"):
            key, _, value = part.partition("=")
            said[key.strip().lower()] = value.strip().strip('"').lower()
        url = match[1].strip()
        if said["rel"] == "duplicate" and _usable(url):
            yield Place(url, _number(said.get("pri"), LAST), _number(said.get("depth"), 0))


def _number(text: str | None, otherwise: int) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 6:
        return otherwise
    return int(text)


def _usable(url: str) -> bool:
    try:
        parts = split(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.username is None
