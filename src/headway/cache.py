"""The inputs that this machine keeps for the next run: the local pool's store, and what is in it.

It lies in the user's cache folder. HEADWAY_CACHE names another folder, or is `off`.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headway.errors import HeadwayError
from headway.node.errors import NodeError
from headway.node.store.folder import DAY, MARKER, Entry, Settings, Store, create_store
from headway.text import many

_log = logging.getLogger(__name__)

VARIABLE = "HEADWAY_CACHE"
_OFF = ("off", "0", "no", "none", "false")
_QUOTA = 0.2  # of the file system
_FREE = 0.05


class CacheError(HeadwayError):
    """The cache cannot be used, or has no such entry."""


@dataclass(frozen=True)
class Kept:
    """One input that the cache keeps.

    Attributes:
        id: Its name in the cache.
        file: The file name in its URL.
        urls: Where it is from, without queries.
        bytes: Its size.
        proof: What its bytes were proven by when they arrived: manifest, checksum, digest, size.
        wanted_by: What a job must declare to get it: its manifest, checksum, or only its URL.
        kept: When it was kept, in seconds since the epoch.
        used: When a job last used it.
        pinned: It stays whatever the limits are.
    """

    id: str
    file: str
    urls: tuple[str, ...]
    bytes: int
    proof: str
    wanted_by: str
    kept: float
    used: float
    pinned: bool

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def cache_folder() -> Path | None:
    """Where the cache is, whether it exists or not; None if it is switched off."""
    named = os.environ.get(VARIABLE, "")
    if named.lower() in _OFF:
        return None
    if named:
        return Path(named).absolute().resolve()  # it may be a link to a larger disk
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "headway" / "inputs"


def make_cache() -> Path | None:
    """The cache's folder, which is made if there is none; None if it cannot be had."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        marker = folder / MARKER
        if not marker.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_store(str(folder), usual_settings(folder))
        store = Store(str(folder))
        if abs(time.time() - marker.stat().st_mtime) > DAY:  # when it was last swept
            os.utime(marker)
            store.sweep()
    except (OSError, NodeError) as error:
        _log.info("inputs are not kept: %s", error)
        return None
    return folder


def usual_settings(folder: Path) -> Settings:
    """The limits of a new cache, by the size of its file system."""
    total = shutil.disk_usage(folder).total
    return Settings(quota=int(_QUOTA * total), keep_free=int(_FREE * total), shared_account=False)


class Cache:
    """The cache of this user.

    Raises:
        CacheError: It is switched off, or its folder cannot be trusted.
    """

    def __init__(self) -> None:
        folder = cache_folder()
        if folder is None:
            raise CacheError(
                f"{VARIABLE}={os.environ.get(VARIABLE)} switches the cache off",
                remedy=f"unset {VARIABLE}, or name a folder",
            )
        self.folder = folder
        self._store: Store | None = None
        if (folder / MARKER).exists():
            try:
                self._store = Store(str(folder))
            except NodeError as error:
                what = error.message
                remedy = f"make it a folder of yours alone, or name another one in {VARIABLE}"
                raise CacheError(what, remedy=remedy) from None

    @property
    def settings(self) -> Settings:
        """The limits."""
        if self._store is not None:
            return self._store.settings
        place = self.folder
        while not place.exists():
            place = place.parent
        return usual_settings(place)

    def kept(self) -> list[Kept]:
        """What is there, the one that was used longest ago first."""
        entries = self._store.entries() if self._store is not None else []
        return [_kept(entry) for entry in entries]

    def find(self, names: Sequence[str]) -> list[Kept]:
        """The entries that are called so: by the beginning of the id, by URL or by file name.

        Raises:
            CacheError: A name fits no entry, or its beginning fits several.
        """
        found: dict[str, Kept] = {}
        every = self.kept()
        for name in names:
            fits = [each for each in every if name == each.file or name in each.urls]
            fits = fits or [each for each in every if _is_id(name, each.id)]
            if not fits:
                remedy = "`headway cache` lists what is there"
                raise CacheError(f"the cache has nothing called {name!r}", remedy=remedy)
            found |= {each.id: each for each in fits}
        return list(found.values())

    def pin(self, kept: Iterable[Kept], *, pinned: bool = True) -> None:
        """Let these stay whatever the limits are, or take that back."""
        for entry in self._entries(kept):
            assert self._store is not None
            try:
                self._store.pin(entry, pinned)
            except OSError as error:
                raise CacheError(f"{self.folder} cannot be written: {error.strerror}") from None

    def remove(self, kept: Iterable[Kept]) -> list[Kept]:
        """Remove entries; returns those that stay, because a job is reading them."""
        stay = []
        for entry in self._entries(kept):
            assert self._store is not None
            if not self._store.drop(entry.folder):
                stay.append(_kept(entry))
        return stay

    def sweep(self) -> list[str]:
        """Remove what is damaged, too old or too much; returns what went and why."""
        return self._store.sweep() if self._store is not None else []

    def stays(self, one: Kept, now: float | None = None) -> str:
        """Why an entry is kept, and what would make it go, in words."""
        if one.pinned:
            return "pinned: it stays until it is unpinned"
        left = self.settings.age - ((time.time() if now is None else now) - one.used)
        return f"until it is unused for {self.settings.age / DAY:.0f} days" + (
            f", {many(max(0, int(left / DAY)), 'day')} from now" if left < 7 * DAY else ""
        )

    def _entries(self, kept: Iterable[Kept]) -> list[Entry]:
        wanted = {each.id for each in kept}
        entries = self._store.entries() if self._store is not None else []
        return [entry for entry in entries if entry.name in wanted]


def _is_id(name: str, full: str) -> bool:
    digits = full.partition("-")[2]
    return len(name) >= 4 and (full.startswith(name) or digits.startswith(name))


def _kept(entry: Entry) -> Kept:
    facts = entry.facts
    urls = tuple(str(url) for url in facts.get("urls") or ())
    last = unquote((urls[0] if urls else "").partition("?")[0].rstrip("/").rpartition("/")[2])
    kind = entry.name.partition("-")[0]
    return Kept(
        id=entry.name,
        file=last,
        urls=urls,
        bytes=entry.size,
        proof=str(facts.get("proof") or ""),
        wanted_by={"manifest": "manifest", "url": "url"}.get(kind, "checksum"),
        kept=float(facts["kept"]),
        used=entry.used,
        pinned=entry.pinned,
    )
