"""A director with its discovery document, as a federation has one: it only says where to go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from .answer import Answer, Request
from .faults import Fault
from .server import Server
from .store import Store
from .tls import Authority, Identity

NAME = "pelican/7.17.0"
_DISCOVERY = "/.well-known/pelican-configuration"
_OBJECT = "/api/v1.0/director/object/"
_ORIGIN = "/api/v1.0/director/origin/"


class Director(Server):
    """Redirects to caches in their order, or to origins; faults make it fail, lie or come late.

    A cache is a Server or the begin of a URL; one that is dead or has other objects makes a lie.
    Answers are 307 with up to six caches in `Link`. Every path of the namespace is known unless
    `objects` names them. `Status(404, server="nginx").for_seconds(2)` is somebody in between.
    """

    def __init__(
        self,
        namespace: str = "/lab",
        caches: Sequence[Server | str] = (),
        origins: Sequence[Server | str] = (),
        *,
        objects: Iterable[str] | None = None,
        require_token: bool = False,
        faults: Iterable[Fault] = (),
        tls: Identity | None = None,
        endpoint: str | None = None,
        issuer: str = "https://issuer.lab.invalid",
    ) -> None:
        super().__init__(faults=faults, tls=tls or Authority.get().good, name=NAME)
        self.namespace = "/" + namespace.strip("/")
        self.caches, self.origins = list(caches), list(origins)
        self.objects = {"/" + path.lstrip("/") for path in objects} if objects is not None else None
        self.require_token, self.issuer = require_token, issuer
        self.store = _Nothing(self)
        self.endpoint = endpoint  # of another director, whose discovery document this is

    def pelican_url(self, path: str, *, query: str = "") -> str:
        """The object's URL for clients: pelican://host:port/namespace/path."""
        rest = f"?{query}" if query else ""
        return f"pelican://{self.address[0]}:{self.address[1]}{self._full(path)}{rest}"

    def answer(self, request: Request) -> Answer:
        answer = Answer(200)
        if request.path == _DISCOVERY:
            self._json(
                answer, 200, {"director_endpoint": self.endpoint or self.url("").rstrip("/")}
            )
            return answer
        path, origins = request.path, request.method == "PUT"
        if path.startswith(_ORIGIN):
            path, origins = path[len(_ORIGIN) - 1 :], True
        elif path.startswith(_OBJECT):
            path = path[len(_OBJECT) - 1 :]
        origins = origins or "directread" in request.query.split("&")
        known = path.startswith(f"{self.namespace}/")
        if known and self.objects is not None and not origins:
            known = path in self.objects
        places = self.origins if origins else (self.caches or self.origins)
        if not known or not places:
            words = f"No sources found for the requested path {path}"
            self._json(answer, 404, {"status": "error", "msg": words})
            return answer
        rest = f"?{request.query}" if request.query else ""
        self._redirect(answer, [_base(place) + path + rest for place in places[:6]])
        return answer

    def _redirect(self, answer: Answer, urls: list[str]) -> None:
        answer.say(307, b"")
        answer.set("Location", urls[0])
        links = [
            f'<{url}>; rel="duplicate"; pri={number}; depth={self.namespace.count("/")}'
            for number, url in enumerate(urls, 1)
        ]
        answer.set("Link", ", ".join(links))
        about = f"namespace={self.namespace}, require-token={str(self.require_token).lower()}"
        if self.origins:
            about += f", collections-url={_base(self.origins[0])}"
        answer.set("X-Pelican-Namespace", about)
        if self.require_token and self.issuer:  # "": it wants a token and does not say whose
            answer.set("X-Pelican-Authorization", f"issuer={self.issuer}")
            answer.set(
                "X-Pelican-Token-Generation",
                f"issuer={self.issuer}, max-scope-depth=3, strategy=OAuth2",
            )

    @staticmethod
    def _json(answer: Answer, status: int, value: dict[str, str]) -> None:
        answer.say(status, json.dumps(value).encode())
        answer.set("Content-Type", "application/json; charset=utf-8")

    def _full(self, path: str) -> str:
        full = "/" + path.lstrip("/")
        return quote(full if full.startswith(f"{self.namespace}/") else f"{self.namespace}{full}")


class _Nothing(Store):
    """What a director stores: it says where to put an object before the body is sent."""

    def __init__(self, director: Director) -> None:
        super().__init__({})
        self._director = director

    def before_put(self, request: Request) -> Answer:
        return self._director.answer(request)


def _base(place: Server | str) -> str:
    return (place.url("") if isinstance(place, Server) else place).rstrip("/")
