"""Federations: from the URL that a user wrote (osdf://, pelican://, https://, …) to its servers.

`resolve` asks the federation's director once and offers what it says. A failure is a Fault: the
caller, who knows about other sources and about time, decides when to ask again. Caches are offered
unless the caller wants the origin (`direct`), which serves the caches, and clients in need.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from itertools import islice
from urllib.parse import unquote, urlsplit

from headway.node.errors import AccessDeniedError, TransferError
from headway.node.host import FEDERATIONS
from headway.node.transfer.heads import REDIRECTS, Redirects, clock, joined, number
from headway.node.transfer.http import ANSWER, ask
from headway.node.transfer.source import Fault
from headway.node.transfer.tokens import Need, find_token, meant_for, reasons
from headway.node.transfer.urls import authority, host_of, name, same_host, scrubbed, shown, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headway.node.transfer.connection import Stop
    from headway.node.transfer.heads import ResponseHead
    from headway.node.transfer.tokens import Secret, Token
    from headway.node.transfer.urls import Name


OSDF = "osg-htc.org"
CACHES = 6
ABSENCES, GRACE = 3, 20.0  # a director's 404 is final when said so often, over such a time
OPTIONS = ("directread", "prefercached", "skipstat")  # of a federation's URLs, for its director
ORIGINS = "/api/v1.0/director/origin"
LAST = 1 << 20  # the priority of a source that is given none
_DOCUMENT = "/.well-known/pelican-configuration"
_ANONYMOUS = "it was requested without one"
_LINKS = 64  # that are looked at, however many a director sends
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_federations: dict[str, Federation] = {}
_absences: dict[str, tuple[int, float]] = {}
_lock = threading.Lock()


class Offer:
    """One place to fetch an object from, or to send it to, and the token that opens it."""

    def __init__(
        self,
        url: str,
        *,
        priority: int = 0,
        depth: int = 0,
        origin: bool = False,
        token: Secret | None = None,
        cache: bool = False,
        withheld: str = "",
    ) -> None:
        self.url = url
        self.priority = priority  # the lower the better
        self.depth = depth  # of the namespace that it has the object from
        self.origin = origin  # where the object lives, past the caches
        self.cache = cache  # a federation's cache; neither: a mirror that the user named
        self.token = token  # for this host alone: see `tokens.bearer`
        self.withheld = withheld  # why no token of those that were found goes there

    @property
    def name(self) -> str:
        """The host, as messages and tables call the source."""
        return authority(self.url)

    def __repr__(self) -> str:
        return f"Offer({shown(self.url)}, priority={self.priority}, origin={self.origin})"


class Directions:
    """A director's answer for one object."""

    def __init__(self, reply: ResponseHead, asked: str) -> None:
        self.places = places(reply.get("Link"), _led(reply, asked))
        namespace = dict(reversed(list(pairs(reply.get("X-Pelican-Namespace")))))
        generation = list(pairs(reply.get("X-Pelican-Token-Generation")))
        issuing = [*pairs(reply.get("X-Pelican-Authorization")), *generation]
        self.namespace = namespace.get("namespace", "")
        self.needs_token = namespace.get("require-token", "").lower() == "true"
        self.issuers = [value for key, value in issuing if key == "issuer"]
        self.clock = clock(reply.get("Date"))  # the node's own may be off
        self.bases = [value for key, value in generation if key == "base-path"]


class Absent(Fault):
    """The director itself says that no server has the object."""


def _ask_director(
    federation: Federation, named: Name, direct: bool, write: bool, public: bool, should_stop: Stop
) -> Directions:
    """Where the object is; no redirect is followed but those within the director's own host."""
    query = [part for part in named.query.split("&") if part]
    url, method = federation.director + named.path, "PUT" if write else "GET"
    if direct and not write:
        url = federation.director + ORIGINS + named.path
        if not any(part.partition("=")[0] == "directread" for part in query):
            query.append("directread")
    host = host_of(federation.director)
    way = Redirects(f"{url}?{'&'.join(query)}" if query else url)
    while True:
        try:
            reply = ask(method, way.url, should_stop=should_stop, seconds=ANSWER, public=public)
        except Fault as fault:
            fault.words = f"the director {host} cannot be asked: {fault.words}"
            raise
        if reply.status in REDIRECTS:
            onward = _led(reply, way.url)
            answers = reply.get("Link") or reply.get("X-Pelican-Namespace")
            if onward and same_host(federation.director, onward) and not answers:
                try:
                    way.follow(onward)
                except Fault as fault:
                    fault.words = f"the director {host} redirects to nowhere: {fault.words}"
                    raise
                continue
            found = Directions(reply, way.url)
            if found.places:
                return found
            raise Fault(f"the director {host} sends us nowhere that we may go", phase="resolve")
        if reply.status == 200 and method == "GET":  # one server plays both parts
            found = Directions(reply, way.url)
            found.places = [Offer(way.url)]
            return found
        raise director_refusal(reply, host, method)


def director_refusal(reply: ResponseHead, host: str, method: str = "GET") -> Fault:
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
        means=AccessDeniedError if reply.status in (401, 403) else None,
    )


def places(links: str, location: str) -> list[Offer]:
    """The servers in their order; what is no http(s) URL, or comes twice, is left out."""
    found = sorted(_links(links), key=lambda place: place.priority)
    if location and all(place.url != location for place in found) and _usable(location):
        found.insert(0, Offer(location))
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


def _links(header: str) -> Iterator[Offer]:
    for match in islice(_LINK.finditer(header), _LINKS):
        said = {"rel": "duplicate"}
        for part in match[2].rstrip(", \t").split(";"):
            key, _, value = part.partition("=")
            said[key.strip().lower()] = value.strip().strip('"').lower()
        url = match[1].strip()
        if said["rel"] == "duplicate" and _usable(url):
            priority, depth = number(said.get("pri", "")), number(said.get("depth", ""))
            yield Offer(url, priority=LAST if priority is None else priority, depth=depth or 0)


def _usable(url: str) -> bool:
    try:
        parts = split(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.username is None


class Federation:
    """What a discovery document says; no director: the discovery host has the objects itself."""

    def __init__(self, discovery: str, director: str) -> None:
        self.discovery, self.director = discovery, director


def resolve(
    url: str,
    *,
    direct: bool = False,
    write: bool = False,
    anonymous: bool = False,
    should_stop: Stop = lambda: False,
) -> list[Offer]:
    """Where the object that a URL names is, the best place first.

    A URL that names no federation offers itself. `direct`: the federation's origins only. `write`:
    where to send it. `anonymous`: the URL comes from a stranger, so no token goes anywhere, and no
    host of a private network is asked; what needs a token is offered without one. A Fault: there is
    no place now, or (not retryable) ever. TransferError: the URL cannot be used at all.
    """
    named = parse_name(url)
    try:
        if named.federated:
            return _resolve(named, direct, write, anonymous, should_stop)
        return [_undirected(named.plain, named, write, anonymous)]
    except Fault as fault:
        fault.phase = "resolve"  # whatever it was for the director, here nothing else has begun
        raise


def parse_name(url: str) -> Name:
    """What a user's URL names; TransferError where it cannot be used."""
    try:
        return name(url)
    except ValueError as error:
        raise TransferError(str(error), retryable=False, remedy="correct the URL") from None


def _undirected(url: str, named: Name, write: bool, anonymous: bool) -> Offer:
    """The offer of a URL that no director has named: only a token in the URL's name goes there."""
    if anonymous:
        return Offer(url, origin=named.federated, withheld=_ANONYMOUS if named.credential else "")
    return Offer(url, origin=named.federated, token=_named_token(named, write))


def _resolve(
    named: Name, direct: bool, write: bool, anonymous: bool, should_stop: Stop
) -> list[Offer]:
    options = [part.partition("=")[0] for part in named.query.split("&") if part]
    if "recursive" in options or "pack" in options:
        raise Fault(
            "Headway moves single objects: `recursive` and `pack` are not for it",
            settled=True,
            remedy="name each object by a URL of its own",
        )
    direct = direct or write or "directread" in options
    federation = discover(named, public=anonymous, should_stop=should_stop)
    if not federation.director:
        return [_undirected(_joined(federation.discovery, named), named, write, anonymous)]
    try:
        found = _ask_director(federation, named, direct, write, anonymous, should_stop)
    except Absent as absent:
        raise _judged(absent, f"{federation.director}{named.path}") from None
    except Fault:
        with _lock:  # perhaps the federation has another director by now
            _federations.pop(federation.discovery, None)
        raise
    with _lock:
        _absences.pop(f"{federation.director}{named.path}", None)
    refused: list[str] = []
    token: Token | None = None
    if anonymous:
        refused += [_ANONYMOUS] if found.needs_token or named.credential else []
    else:
        token = _token(named, found, federation, write, refused)
    # a token must not be seen on the way
    offers = [each for each in found.places if token is None or each.url.startswith("https:")]
    for each in offers:
        each.origin, each.cache, each.token = direct, not direct, token
        each.withheld = "" if token is not None else reasons(refused)
    if token is not None and not named.credential:
        doors = [federation.discovery, federation.director]
        offers = [each for each in offers if meant_for(token.claims, [each.url, *doors])]
    if not direct:
        offers = _preferred(offers, named, token is not None)[:CACHES]
    if not offers:
        raise Fault("the director offers only unencrypted ways to an object that needs a token")
    return offers


def sources_of(
    urls: Sequence[str],
    *,
    origins: bool = False,
    anonymous: bool = False,
    faults: dict[str, Fault] | None = None,
    should_stop: Stop = lambda: False,
) -> list[Offer]:
    """All that the mirrors of one object offer, in order; with `origins` these last.

    What cannot be resolved goes into `faults` by its URL; when nothing can be, the first is raised.
    """
    failed: dict[str, Fault] = {} if faults is None else faults
    offers: list[Offer] = []
    last: list[Offer] = []
    for url in urls:
        try:
            found = resolve(url, anonymous=anonymous, should_stop=should_stop)
            offers += [each for each in found if not each.origin]
            last += [each for each in found if each.origin]
            if origins and found[0].cache:
                last += resolve(url, direct=True, anonymous=anonymous, should_stop=should_stop)
        except Fault as fault:
            failed[url] = fault
    first: dict[str, Offer] = {}
    for offer in [*offers, *last]:
        first.setdefault(offer.url, offer)
    if not first and failed:
        raise next(iter(failed.values()))
    return list(first.values())


def discover(named: Name, *, public: bool, should_stop: Stop) -> Federation:
    """The federation behind a name; its answer is kept for the life of the process."""
    discovery = f"https://{named.host}"
    if not named.host:
        director = _setting("DIRECTOR_URL", "FEDERATION_DIRECTORURL")
        if director:
            return Federation("", _endpoint(director, "the environment's director", True))
        discovery = _setting("FEDERATION_DISCOVERYURL") or OSDF
        if "://" not in discovery:
            discovery = f"https://{discovery}"
    discovery = discovery.rstrip("/")
    with _lock:
        kept = _federations.get(discovery)
    if kept is None:
        kept = _discover(discovery, public, should_stop)
        with _lock:
            _federations[discovery] = kept
    return kept


def forget() -> None:
    """Forget all federations and absences; for tests, and for a process that lives on."""
    with _lock:
        _federations.clear()
        _absences.clear()


def absence_is_final(count: int, seconds: float) -> bool:
    """Whether a director has said 404 often and long enough to be believed."""
    return count >= ABSENCES and seconds >= GRACE


def _discover(discovery: str, public: bool, should_stop: Stop) -> Federation:
    endpoint = _endpoint(discovery, "the federation", True)
    host = authority(endpoint)
    try:
        reply = ask("GET", endpoint + _DOCUMENT, should_stop=should_stop, public=public)
    except Fault as fault:
        fault.words = f"the federation {host} cannot be asked: {fault.words}"
        raise
    if reply.status != 200:
        # a wrong name and a passing trouble look alike, and asking again is cheap
        remedy = "" if reply.status >= 500 else f"is {host} the name of a federation?"
        raise Fault(
            f"{host} gives no federation document: {reply.words()}",
            after=reply.after,
            remedy=remedy,
        )
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Fault(f"{host} gives something else than a federation document")
    director = document.get("director_endpoint") or ""
    if not isinstance(director, str):
        raise Fault(f"{host} names no proper director")
    plain = endpoint.startswith("http:")  # only where the user's own setting says so
    return Federation(discovery, _endpoint(director, "its director", plain) if director else "")


def _endpoint(url: str, what: str, plain: bool) -> str:
    """An endpoint without query; plain http only if the user's own setting has it."""
    try:
        parts = split(url if "://" in url else f"https://{url}")
        if parts.scheme != "https" and not (plain and parts.scheme == "http"):
            raise ValueError("it is not https")
        if parts.username is not None:
            raise ValueError("it contains a user name")
    except ValueError as error:
        words = f"{what} {shown(url)} cannot be used: {scrubbed(str(error))}"
        raise Fault(words, settled=True) from None
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _judged(absent: Absent, key: str) -> Fault:
    """A 404 as it is to be taken: passing until it has been said often enough."""
    now = time.monotonic()
    with _lock:
        count, since = _absences.get(key, (0, now))
        _absences[key] = (count + 1, since)
        if len(_absences) > 10_000:
            _absences.pop(next(iter(_absences)))
    final = absence_is_final(count + 1, now - since)
    absent.retryable, absent.settled = not final, final
    return absent


def _preferred(offers: list[Offer], named: Name, secret: bool) -> list[Offer]:
    """The caches that the environment prefers come first; `+` at the end lets the others follow."""
    setting = os.environ.get("NEAREST_CACHE") or _setting("NEAREST_CACHE", "CLIENT_PREFERREDCACHES")
    wished = [word.strip() for word in setting.split(",") if word.strip()]
    if not wished:
        return offers
    first: list[Offer] = []
    for place in wished:
        if place == "+":
            continue
        base = place if "://" in place else f"https://{place}"
        known = [each for each in offers if same_host(each.url, base)]
        if known:
            first += known
        elif not secret:  # a token goes only where the director sends us
            try:
                split(base)
                first.append(Offer(_joined(base, named), cache=True))
            except ValueError:
                continue
    others = [each for each in offers if each not in first]
    return [*first, *others] if wished[-1] == "+" or not first else first


def _token(
    named: Name, found: Directions, federation: Federation, write: bool, refused: list[str]
) -> Token | None:
    """The token for an object; Fault when it needs one and none that may be sent is still good."""
    if not (found.needs_token or write or named.credential):
        return None
    need = Need(
        unquote(named.path),
        write=write,
        issuers=found.issuers,
        bases=[*found.bases, found.namespace] if found.namespace else found.bases,
        servers=[place.url for place in found.places],
        federation=[federation.discovery, federation.director],
    )
    token = find_token(need, named.credential, now=found.clock, refused=refused)
    if token is None and named.credential:
        raise _no_such(named.credential, refused)
    if token is None and found.needs_token:
        raise _none_fits(scrubbed(found.namespace, 80) or "its namespace", refused)
    if token is not None and token.expired(found.clock):
        why = f", and the file {token.trouble}" if token.trouble else ""
        raise Fault(
            f"the token in {token.where} has expired{why}",
            remedy="HTCondor renews the tokens it brings; get a new one if it is your own",
            means=AccessDeniedError,
        )
    return token


def _none_fits(space: str, refused: Sequence[str]) -> Fault:
    """An object needs a token, and there is none, or none that may be sent there."""
    words = f"{space} requires a token, and this job has none for it"
    remedy = "let HTCondor bring one (use_oauth_services), or set BEARER_TOKEN_FILE"
    if refused:
        words = f"{space} requires a token, and none of the job's may be sent: {reasons(refused)}"
        remedy = (
            "get a token for this object; one that HTCondor has brought as NAME.use is sent"
            " whatever it says of itself where the URL names it: NAME+osdf://…"
        )
    return _denied(words, remedy)


def _no_such(credential: str, refused: Sequence[str]) -> Fault:
    words = f"the token {credential} is not among the job's credentials"
    words += f": {reasons(refused)}" if refused else ""
    return _denied(words, "let HTCondor bring it (use_oauth_services)")


def _denied(words: str, remedy: str) -> Fault:
    return Fault(words, settled=True, remedy=remedy, means=AccessDeniedError)


def _named_token(named: Name, write: bool) -> Token | None:
    """Only a token that the URL names goes where no director has sent us."""
    if not named.credential:
        return None
    if named.scheme == "http":
        raise Fault("a token goes only over https", settled=True)
    refused: list[str] = []
    need = Need(unquote(named.path), write=write)
    token = find_token(need, named.credential, refused=refused)
    if token is None:
        raise _no_such(named.credential, refused)
    return token


def _joined(base: str, named: Name) -> str:
    query = "&".join(
        part for part in named.query.split("&") if part and part.partition("=")[0] not in OPTIONS
    )
    parts = urlsplit(base)
    path = parts.path.rstrip("/") + named.path
    return f"{parts.scheme}://{parts.netloc}{path}" + (f"?{query}" if query else "")


def _setting(*names: str) -> str:
    """A setting of Pelican's own clients, under any of its prefixes."""
    values = (os.environ.get(f"{prefix}_{each}") for prefix in FEDERATIONS for each in names)
    return next((value.strip() for value in values if value and value.strip()), "")
