"""Tokens: which one opens an object, and the type that keeps it out of everything but a header."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import stat
import time
from binascii import a2b_base64

from headway.node.transfer.urls import same_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import NoReturn

MARGIN = 60.0  # seconds before its end at which a token counts as expired
_LARGEST = 1 << 16
_SHARED = "/tmp"  # noqa: S108 - WLCG says so; only a file of this user counts there
_FORM = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_READ = ("storage.read", "read")  # WLCG's word and SciTokens'
_WRITE = ("storage.modify", "storage.create", "write")


class Secret:
    """A text that str, repr, format and pickle do not give away; only `reveal` does."""

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one header that needs it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text, other._text)

    def __hash__(self) -> int:
        return hash(self._text)


class Token(Secret):
    """A bearer token; one that lies in a file is read again as soon as the file is renewed."""

    def __init__(self, text: str, path: str = "", where: str = "") -> None:
        super().__init__(text)
        self.where = where or path  # what a message may call it
        self._path = path
        self._mark = _mark(path)

    def reveal(self) -> str:
        mark = _mark(self._path)
        if mark is not None and mark != self._mark:
            fresh = _from_file(self._path)
            if fresh is not None:  # else it is just being written: the old one still serves
                self._text, self._mark = fresh, mark
        return self._text

    @property
    def claims(self) -> dict[str, object]:
        """What the token says of itself, unproven; nothing when it is no JWT."""
        return claims_of(self.reveal())

    def expired(self, now: float) -> bool:
        """Whether its end has come, or is too near for another request."""
        end = self.claims.get("exp")
        return isinstance(end, (int, float)) and end - MARGIN < now


class Need:
    """What a token must be good for."""

    def __init__(
        self,
        path: str,
        *,
        write: bool = False,
        issuers: Sequence[str] = (),
        bases: Sequence[str] = (),
    ) -> None:
        self.path = path  # of the object, in the federation
        self.write = write
        self.issuers = [issuer.rstrip("/") for issuer in issuers]
        self.bases = list(bases)  # where an issuer's scopes begin: the namespace, or above it


def find_token(
    need: Need, name: str = "", environ: Mapping[str, str] = os.environ, now: float | None = None
) -> Token | None:
    """The token that fits best; one that a URL names (`name+osdf://`) is the only candidate.

    A token of another issuer than those that the director names is never offered unless it is
    named: it would tell a foreign federation what it cannot use.
    """
    moment = time.time() if now is None else now
    best: tuple[int, Token] | None = None
    for token in _named(name, environ) if name else _candidates(environ):
        rank = _rank(token, need, moment, bool(name))
        if rank is not None and (best is None or rank < best[0]):
            best = (rank, token)
    return best[1] if best else None


def bearer(token: Secret | None, granted: str, url: str) -> dict[str, str]:
    """The header for `url`: nothing unless it is the very host the token is granted for, by TLS."""
    if token is None or not same_host(granted, url) or not url.lower().startswith("https://"):
        return {}
    return {"Authorization": f"Bearer {token.reveal()}"}


def claims_of(text: str) -> dict[str, object]:
    """The claims of a JWT, with its signature unchecked: only its issuer's servers can do that."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        body = parts[1].replace("-", "+").replace("_", "/")
        claims = json.loads(a2b_base64(body + "=" * (-len(body) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def covers(claims: Mapping[str, object], need: Need) -> bool:
    """Whether the token's scopes allow what is needed, as far as they can be read."""
    scopes = claims.get("scope")
    if not isinstance(scopes, str):
        return False
    wanted = _WRITE if need.write else _READ
    for scope in scopes.split():
        word, _, below = scope.partition(":")
        if word not in wanted:
            continue
        if not below or any(_below(path, below) for path in _seen_from(need)):
            return True
    return False


def _rank(token: Token, need: Need, now: float, named: bool) -> int | None:
    """0 fits, 1 may fit, 2 has expired; None: not to be shown to anyone."""
    claims = token.claims
    issuer = claims.get("iss")
    foreign = bool(
        need.issuers and isinstance(issuer, str) and issuer.rstrip("/") not in need.issuers
    )
    if foreign and not named:
        return None
    if token.expired(now):
        return 2
    return 0 if claims and not foreign and covers(claims, need) else 1


def _seen_from(need: Need) -> Iterator[str]:
    """The object's path as each base makes it look, and whole."""
    for base in need.bases:
        if _below(need.path, base):
            yield "/" + need.path[len(base.rstrip("/")) :].lstrip("/")
    yield need.path


def _below(path: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return path == folder or path.startswith(folder + "/")


def _candidates(environ: Mapping[str, str]) -> Iterator[Token]:
    """In the order of WLCG's token discovery, then what HTCondor has brought."""
    text = _clean(environ.get("BEARER_TOKEN", ""))
    if text is not None:
        yield Token(text, where="BEARER_TOKEN")
    files = [environ.get("BEARER_TOKEN_FILE", "")]
    own = f"bt_u{os.getuid()}"
    files += [
        os.path.join(place, own) for place in (environ.get("XDG_RUNTIME_DIR"), _SHARED) if place
    ]
    folder = _creds(environ)
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder) if name.endswith(".use") and name[0] != "."]
        names.sort(key=lambda name: (name != "scitokens.use", name))
        files += [os.path.join(folder, name) for name in names]
    for path in files:
        found = _from_file(path, ours=os.path.dirname(path) == _SHARED)
        if found is not None:
            yield Token(found, path)


def _named(name: str, environ: Mapping[str, str]) -> Iterator[Token]:
    """`service.handle` lies in service_handle.use; a scheme cannot hold an underscore."""
    for file in (name.replace(".", "_"), name):
        if "/" in file or file.startswith("."):
            return
        path = os.path.join(_creds(environ), f"{file}.use")
        found = _from_file(path)
        if found is not None:
            yield Token(found, path)
            return


def _creds(environ: Mapping[str, str]) -> str:
    return environ.get("_CONDOR_CREDS") or ".condor_creds"


def _from_file(path: str, ours: bool = False) -> str | None:
    """The token in a file, plain or as JSON; None when there is none, or (`ours`) it is planted."""
    if not path:
        return None
    try:
        # not to hang on a pipe that lies there
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or (ours and status.st_uid != os.getuid()):
            return None
        text = os.read(handle, _LARGEST).decode("utf-8", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(handle)
    if text.startswith("{"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return None
        value = data.get("access_token") if isinstance(data, dict) else None
        text = value if isinstance(value, str) else ""
    return _clean(text)


def _clean(text: str) -> str | None:
    """A token as a header can carry it (RFC 6750); anything else is none."""
    text = text.strip()
    return text if _FORM.fullmatch(text) else None


def _mark(path: str) -> tuple[int, int, int] | None:
    if not path:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
