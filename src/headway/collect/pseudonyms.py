"""Pseudonyms: the same name always gets the same one, and without the key nobody finds it out."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from functools import lru_cache
from pathlib import Path

from headway.errors import CollectError
from headway.events.columnar.rows import machine

_KEY_SIZE = 32
_DIGITS = 12
_SLOT = re.compile(r"slot\d{1,6}(?:_\d{1,6})*\Z", re.ASCII)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://([^/?#]*)(.*)\Z", re.DOTALL)
#: Schemes that say how a file moves; any other may be somebody's own word.
_SCHEMES = frozenset(
    {"http", "https", "ftp", "file", "osdf", "stash", "pelican", "root", "roots", "s3", "gs"}
    | {"davs", "dav", "gsiftp", "docker", "oras", "igwn", "htcondor", "data", "box", "gdrive"}
)
#: No such name can be somebody's machine.
_NOWHERE = "anon.invalid"


class Pseudonyms:
    """Names by what they are of; each is made of a keyed hash of the name alone."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.digest = lru_cache(maxsize=1 << 16)(self._digest)

    def _digest(self, name: str) -> str:
        data = name.strip().lower().encode("utf-8", "replace")
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()[:_DIGITS]

    def user(self, name: str) -> str:
        """For a user; the part behind an @ is a host."""
        local, _, domain = name.partition("@")
        return f"user-{self.digest(local)}" + (f"@{self.host(domain)}" if domain else "")

    def site(self, name: str) -> str:
        """For a site."""
        return f"site-{self.digest(name)}"

    def host(self, name: str) -> str:
        """For a machine, by its name or number."""
        return f"host-{self.digest(name.rstrip('.'))}.{_NOWHERE}"

    def address(self, address: str) -> str:
        """For an address like `<192.0.2.1:9618?addrs=…&alias=name>`, or a plain name."""
        host = self.host(machine(address))
        return f"<0.0.0.0:0?addrs=0.0.0.0-0&alias={host}>" if address.startswith("<") else host

    def slot(self, name: str) -> str:
        """For a slot: its number stays, the machine is one."""
        *parts, host = name.split("@")
        kept = [one if _SLOT.match(one) else f"x-{self.digest(one)}" for one in parts]
        return "@".join([*kept, self.host(host)])

    def path(self, path: str) -> str:
        """For a path as a whole: neither its depth nor its ending stays."""
        return f"/path-{self.digest(path)}"

    def url(self, url: str) -> str:
        """For a URL: how it is fetched stays."""
        match = _URL.match(url)
        if not match:
            return self.path(url)
        scheme = match[1].lower()
        scheme = scheme if scheme.partition("+")[2] in _SCHEMES or scheme in _SCHEMES else "url"
        scheme = scheme.rpartition("+")[2]
        host = match[2].rpartition("@")[2].partition(":")[0]
        return f"{scheme}://{self.host(host) if host else ''}{self.path(match[3])}"

    def word(self, word: str) -> str:
        """For anything else."""
        return f"w{self.digest(word)}"


def key_of(path: Path, *, may_make: bool) -> tuple[bytes, bool]:
    """The key in this file, made on first use for the owner's eyes only; whether it was made."""
    try:
        key = path.read_bytes()
        if len(key) == _KEY_SIZE:
            return key, False
        if key or not may_make:
            raise CollectError(f"{path} is no key", remedy="name the right file with --key")
        path.unlink()  # left by a process that was killed
    except FileNotFoundError:
        if not may_make:
            raise CollectError(
                f"the key {path} is gone: the same name would get another pseudonym",
                remedy="put it back or name it with --key, or collect into another folder",
            ) from None
    except OSError as error:
        raise CollectError(
            f"the key {path} cannot be read: {error.strerror}", remedy="see to its permissions"
        ) from error
    return _made(path), True


def _made(path: Path) -> bytes:
    key = secrets.token_bytes(_KEY_SIZE)
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CollectError(
            f"the key {path} cannot be written: {error.strerror}",
            remedy="name another file with --key",
        ) from error
    return key
