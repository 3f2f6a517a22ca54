"""The federation of the study: a director, a cache for each site, the origin, and a web server.

All are servers of the fault lab, on loopback, over real HTTP. A client is known by the path of its
director (/SITE/NODE-SLOT), for which the world's nodes care, as a real director knows it by its
address. Whatever a client does, it gets no more than its site's rate over all connections.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from study.weather import Episode, Kind, Moment, Weather
from study.world import HOUR, SITES, Site, World
from tests.lab import Content, Fault, Server, Shorter, Status
from tests.lab.answer import Answer, Bucket, Case, Request

NAMESPACE = "/study"
DATA = f"{NAMESPACE}/ILSVRC2012_img_train.tar"
WEIGHTS = "/resnet50.pt"
ACCESS_POINT = "ap"
REMOTE = 0.8  # of its rate that a site has from another site's cache
SHORT = 0.6  # of the object that the short copy holds
ORIGIN = 1.8 * HOUR  # what a transfer from the origin takes, for any site
_UNLIMITED = 1e9  # bytes a second, for who is at no site
_GONE = Status(404, body=b"404 page not found\n", server="ingress")


class Clock:
    """Seconds since the first job of a round had a slot; 0 before."""

    def __init__(self) -> None:
        self._begin: float | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            self._begin = self._begin or time.monotonic()

    def now(self) -> float:
        return 0.0 if self._begin is None else time.monotonic() - self._begin


class _Path(Bucket):
    """The way from one cache to one client: its rate is the weather's."""

    def __init__(self, cache: Site, client: str, federation: Federation) -> None:
        super().__init__(federation.rate(cache, client))
        self._cache, self._client, self._federation = cache, client, federation

    def take(self, count: int) -> float:
        federation = self._federation
        moment = federation.moment(self._cache.name, self._client)
        bad = federation.weather.of_cache(self._cache.name, moment)
        federation.note(self._client, (e for e in bad if e.kind is not Kind.SHORT))
        self.rate = federation.rate(self._cache, self._client)
        silent = [e.left(moment) for e in bad if e.kind is Kind.SILENT]
        return max(super().take(count), max(silent, default=0.0))


@dataclass(frozen=True)
class _Cache(Fault):
    """What the weather makes of a cache's answers."""

    site: Site
    federation: Any = field(compare=False)

    def shape(self, case: Case, answer: Answer) -> bool:
        assert case.request is not None
        federation = self.federation
        client = case.request.query.removeprefix("client=")
        moment = federation.moment(self.site.name, client)
        bad = federation.weather.of_cache(self.site.name, moment)
        short = [e for e in bad if e.kind is Kind.SHORT]
        if short and Shorter(int(federation.world.scale.size * SHORT)).shape(case, answer):
            federation.note(client, short)
        answer.buckets += [federation.line(client), federation.path(self.site, client)]
        return True


@dataclass(frozen=True)
class _Origin(Fault):
    """An origin serves everybody slowly."""

    federation: Any = field(compare=False)

    def shape(self, case: Case, answer: Answer) -> bool:
        rate = self.federation.world.scale.rate(ORIGIN)
        answer.buckets.append(case.shared.setdefault(self, Bucket(rate)))
        return True


class _Director(Server):
    """Sends a client to its site's cache first, then to the others."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(name="pelican/7.20.0")
        self._federation = federation

    def answer(self, request: Request) -> Answer:
        _, site, slot, *rest = request.path.split("/")
        path, client = "/" + "/".join(rest), f"{site}/{slot}"
        federation, answer = self._federation, Answer(200)
        if site != ACCESS_POINT:
            federation.clock.start()
            moment = federation.moment("director", client)
            absent = federation.weather.of_director(site, moment)
            if absent:
                federation.note(client, absent)
                answer.say(404, _GONE.body)
                answer.set("Server", _GONE.server)
                return answer
        direct = path.startswith("/api/v1.0/director/origin")
        path = path.removeprefix("/api/v1.0/director/origin")
        if not path.startswith(f"{NAMESPACE}/"):
            answer.say(404, b"no such namespace\n")
            return answer
        urls = (
            [federation.origin.url(path)]
            if direct
            else [cache.url(path, query=f"client={client}") for cache in federation.nearest(site)]
        )
        answer.say(307, b"")
        answer.set("Location", urls[0])
        links = [f'<{url}>; rel="duplicate"; pri={n}; depth=1' for n, url in enumerate(urls, 1)]
        answer.set("Link", ", ".join(links))
        about = f"namespace={NAMESPACE}, require-token=false"
        answer.set("X-Pelican-Namespace", f"{about}, collections-url={federation.origin.url('')}")
        return answer


class Federation:
    """All servers of a run; `with` starts and stops them."""

    def __init__(
        self, world: World, weather: Weather, objects: dict[str, Content], weights: Content
    ) -> None:
        self.world, self.weather, self.clock = world, weather, Clock()
        self._before: dict[str, int] = {}  # what was sent in earlier rounds
        self._lines: dict[str, Bucket] = {}
        self._paths: dict[tuple[str, str], Bucket] = {}
        self._first: dict[tuple[str, str], float] = {}
        self._met: set[tuple[Kind, str]] = set()
        self._lock = threading.Lock()
        self.caches = {site: Server(objects, [_Cache(site, self)]) for site in SITES}
        self.origin = Server(objects, [_Origin(self)])
        self.web = Server({WEIGHTS: weights})
        self.director = _Director(self)

    def __enter__(self) -> Federation:
        for server in self._all():
            server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._all():
            server.stop()

    def begin_round(self, weather: Weather) -> None:
        """Another round begins, of which nobody has asked anything yet."""
        before = self._sent()
        with self._lock:
            self.weather, self.clock, self._before = weather, Clock(), before
            self._first.clear()
            self._met.clear()

    def _all(self) -> Iterable[Server]:
        return (*self.caches.values(), self.origin, self.web, self.director)

    def nearest(self, site: str) -> list[Server]:
        """The caches in the order in which a site is sent to them."""
        own = [cache for where, cache in self.caches.items() if where.name == site]
        return own + [cache for where, cache in self.caches.items() if where.name != site]

    def line(self, client: str) -> Bucket:
        """The client's own connection to the world, whoever it fetches from."""
        with self._lock:
            return self._lines.setdefault(client, Bucket(self._at_home(client)))

    def path(self, cache: Site, client: str) -> Bucket:
        """What a cache gives to a client."""
        with self._lock:
            return self._paths.setdefault((cache.name, client), _Path(cache, client, self))

    def rate(self, cache: Site, client: str) -> float:
        """Bytes a second that a cache, while it is not silent, gives to a client now."""
        share = 1.0 if client.startswith(cache.name) else REMOTE
        bad = self.weather.of_cache(cache.name, Moment(self.clock.now()))
        slow = [self.world.scale.rate(e.transfer) for e in bad if e.kind is Kind.SLOW]
        return min([self._at_home(client) * share, *slow])

    def moment(self, place: str, client: str) -> Moment:
        """Now, for a client that asks a cache or the director."""
        now = self.clock.now()
        return Moment(now, client, now - self._first.setdefault((place, client), now))

    def _at_home(self, client: str) -> float:
        """The rate of the client's site when all is well."""
        home = [site for site in SITES if client.startswith(site.name)]
        return self.world.scale.rate(home[0].transfer) if home else _UNLIMITED

    def note(self, client: str, bad: Iterable[Episode]) -> None:
        with self._lock:
            self._met.update((episode.kind, client) for episode in bad)

    def met(self) -> dict[str, int]:
        """How many slots met each kind of bad weather."""
        return {kind.value: sum(k is kind for k, _ in self._met) for kind in Kind}

    def moved(self) -> dict[str, int]:
        """Bytes of the data set that the caches sent in this round, by client (SITE/NODE-SLOT)."""
        now = self._sent().items()
        return {client: sent - self._before.get(client, 0) for client, sent in now}

    def _sent(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for cache in self.caches.values():
            for each in cache.requests:
                if each.path == DATA:
                    client = each.query.removeprefix("client=")
                    found[client] = found.get(client, 0) + each.sent
        return found
