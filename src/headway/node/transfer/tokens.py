"""Tokens: which one opens an object, and the type that keeps it out of everything but a header.

A token that a URL names (`name+osdf://`) goes where that URL leads: the user has said so. Any other
is sent only if all of this holds, in the words of WLCG's token profile and of SciTokens: it is a
JWT, its issuer (`iss`) is one that the director lists for the object, its `scope` covers the path
for what is to be done, and its audience (`aud`) is anyone or names the server or its federation.
A token file counts only if it is this user's or root's, and nobody else may write to it.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import posixpath
import re
import stat
import time
from binascii import a2b_base64
from urllib.parse import unquote, urlsplit

from headway.node.files import why_untrusted
from headway.node.transfer.urls import same_host, scrubbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn

MARGIN = 60.0  # seconds before its end at which a token counts as expired
_LARGEST = 1 << 16
_SHARED = "/tmp"  # noqa: S108 - WLCG says so; only a file of this user counts there
_FORM = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# WLCG's words and SciTokens'; permission to stage from tape includes reading
_READ = ("storage.read", "storage.stage", "read")
_WRITE = ("storage.modify", "storage.create", "write")
_ANYONE = ("https://wlcg.cern.ch/jwt/v1/any", "ANY")  # an audience of anyone: WLCG's, SciTokens'
_REASONS = 4  # told at most of tokens that were not sent


class Secret:
    """A text that str, repr, format and pickle do not reveal; only `reveal` does."""

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
    """A bearer token; if it is from a file, it is read again as soon as the file is renewed."""

    def __init__(self, text: str, path: str = "", where: str = "") -> None:
        super().__init__(text)
        self.where = where or path  # what a message may call it
        self.trouble = ""  # why the renewed file was not taken
        self._path = path
        self._mark = _mark(path)

    def reveal(self) -> str:
        """The token as its file has it now, unless that is one of another issuer or audience."""
        mark = _mark(self._path)
        if mark is not None and mark != self._mark:
            fresh, self.trouble = read_token(self._path)
            if fresh is not None:  # else it is just being written: the old one still serves
                if _for_whom(fresh) == _for_whom(self._text):
                    self._text, self._mark = fresh, mark
                else:
                    self.trouble = "is now one of another issuer or audience"
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
    """What a token must be good for, and who would see it."""

    def __init__(
        self,
        path: str,
        *,
        write: bool = False,
        issuers: Sequence[str] = (),
        bases: Sequence[str] = (),
        servers: Sequence[str] = (),
        federation: Sequence[str] = (),
    ) -> None:
        self.path = path  # of the object, in the federation
        self.write = write
        self.issuers = [issuer.rstrip("/") for issuer in issuers]
        self.bases = list(bases)  # where an issuer's scopes begin: the namespace, or above it
        self.servers = list(servers)  # URLs: who would receive it
        self.federation = list(federation)  # URLs of the federation and of its director


def find_token(
    need: Need,
    name: str = "",
    environ: Mapping[str, str] = os.environ,
    now: float | None = None,
    refused: list[str] | None = None,
) -> Token | None:
    """The first token that may be sent; one that a URL names (`name+osdf://`) is the only one.

    A token that is not named must fit the need in every respect. If all that fit have expired, the
    first of them is returned. `refused` takes why each token that was found may not be sent, in
    words without any token.
    """
    now = time.time() if now is None else now
    old: Token | None = None
    said: list[str] = [] if refused is None else refused
    for token in _named(name, environ, said) if name else _candidates(environ, said):
        wrong = "" if name else _unfit(token, need)
        if wrong:
            said.append(f"{token.where} {wrong}")
        elif not token.expired(now):
            return token
        else:
            old = old or token
    return old


def reasons(refused: Sequence[str]) -> str:
    """Why tokens that were found are not sent, in one line."""
    more = len(refused) - _REASONS
    return "; ".join([*refused[:_REASONS], *([f"and {more} more"] if more > 0 else [])])


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
        if not below or any(_below(path, unquote(below)) for path in _seen_from(need)):
            return True
    return False


def meant_for(claims: Mapping[str, object], urls: Iterable[str]) -> bool:
    """Whether a token's audience is anyone, or names the host of one of these URLs."""
    if "aud" not in claims:
        return True
    said = claims["aud"]
    audiences = said if isinstance(said, list) else [said]
    if any(each in _ANYONE for each in audiences):
        return True
    hosts = [(host[0], host[1] or 443) for host in map(_host, urls) if host is not None]
    for each in audiences:
        wanted = _host(each) if isinstance(each, str) else None
        # an audience without a port means the host, whatever its port
        if wanted and any(wanted[0] == host and wanted[1] in (None, port) for host, port in hosts):
            return True
    return False


def _host(text: str) -> tuple[str, int | None] | None:
    """The host and port that a URL, or a bare `host:port`, names."""
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        if parts.scheme not in ("", "https") or not parts.hostname or parts.username is not None:
            return None
        return parts.hostname, parts.port
    except ValueError:
        return None


def _unfit(token: Token, need: Need) -> str:
    """Why a token that the URL does not name may not be sent; "": it may."""
    claims = token.claims
    if not claims:
        return "is no JWT, and such a token is sent only where the URL names it"
    if not need.issuers:
        return "is not sent, because the director names no issuer whose tokens it wants"
    issuer = claims.get("iss")
    if not isinstance(issuer, str) or issuer.rstrip("/") not in need.issuers:
        wants = " or ".join(scrubbed(each, 80) for each in need.issuers[:2])
        return (
            f"is of the issuer {scrubbed(str(issuer), 80)}, and the director wants one of {wants}"
        )
    if not covers(claims, need):
        verb = "write" if need.write else "read"
        scope = scrubbed(str(claims.get("scope", "nothing")), 80)
        return f"does not allow to {verb} {scrubbed(need.path, 80)}: its scope is {scope}"
    if not meant_for(claims, [*need.servers, *need.federation]):
        servers = ", ".join(host for host, _ in filter(None, map(_host, need.servers[:2])))
        audience = scrubbed(str(claims["aud"]), 80)
        return f"is meant for the audience {audience}, and not for {servers or 'this federation'}"
    return ""


def _for_whom(text: str) -> tuple[object, object]:
    claims = claims_of(text)
    return claims.get("iss"), claims.get("aud")


def _seen_from(need: Need) -> Iterator[str]:
    """The object's path as each base makes it look, and whole."""
    for base in need.bases:
        if _below(need.path, base):
            yield "/" + need.path[len(base.rstrip("/")) :].lstrip("/")
    yield need.path


def _below(path: str, folder: str) -> bool:
    path, folder = posixpath.normpath(path), posixpath.normpath(folder).rstrip("/")
    return path == folder or path.startswith(folder + "/")


def _candidates(environ: Mapping[str, str], refused: list[str]) -> Iterator[Token]:
    """In the order of WLCG's token discovery, then what HTCondor has brought."""
    text = _clean(environ.get("BEARER_TOKEN", ""))
    if text is not None:
        yield Token(text, where="BEARER_TOKEN")
    places = filter(None, (environ.get("XDG_RUNTIME_DIR"), _SHARED))
    own = [os.path.join(place, f"bt_u{os.getuid()}") for place in places]
    files = [environ.get("BEARER_TOKEN_FILE", ""), *own]
    folder = _creds(environ)
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder) if name.endswith(".use") and name[0] != "."]
        names.sort(key=lambda name: (name != "scitokens.use", name))
        files += [os.path.join(folder, name) for name in names]
    yield from filter(None, (_token_in(path, refused) for path in files))


def _named(name: str, environ: Mapping[str, str], refused: list[str]) -> Iterator[Token]:
    """`service.handle` is in service_handle.use; a scheme cannot have an underscore."""
    for file in (name.replace(".", "_"), name):
        if "/" in file or file.startswith("."):
            return
        token = _token_in(os.path.join(_creds(environ), f"{file}.use"), refused)
        if token is not None:
            yield token
            return


def _token_in(path: str, refused: list[str]) -> Token | None:
    text, wrong = read_token(path)
    if wrong and f"{path} {wrong}" not in refused:
        refused.append(f"{path} {wrong}")
    return None if text is None else Token(text, path)


def _creds(environ: Mapping[str, str]) -> str:
    return environ.get("_CONDOR_CREDS") or ".condor_creds"


def read_token(path: str) -> tuple[str | None, str]:
    """The token in a file, plain or as JSON; None and, if somebody may have planted it, words."""
    if not path:
        return None, ""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # so as not to hang on a pipe
    if os.path.dirname(path) == _SHARED:
        flags |= os.O_NOFOLLOW  # anybody can put a link there
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError):
        return None, ""
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None, ""
        wrong = why_untrusted(status, by_root=True)
        if wrong:
            return None, f"{wrong}, so it is not used"
        text = os.read(handle, _LARGEST).decode("utf-8", "replace").strip()
    except OSError:
        return None, ""
    finally:
        os.close(handle)
    if text.startswith("{"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return None, ""
        value = data.get("access_token") if isinstance(data, dict) else None
        text = value if isinstance(value, str) else ""
    return _clean(text), ""


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
