"""What is known of the logs: how far each file has been stored, and what got lost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta, timezone, tzinfo
from typing import Any

#: More gaps than this are counted, not listed.
_GAPS = 1000


@dataclass
class Cursor:
    """How far one file of a log has been stored, and how to know the file again.

    `number` counts the files that the log has had. A file is the same, by whatever name and
    compressed or not, if it begins alike (`sign`) and the bytes before `offset` are the
    same (`mark`); device and inode only make the search short.
    """

    number: int
    device: int = 0
    inode: int = 0
    offset: int = 0  # all before it is stored, or skipped
    size: int = 0  # as it was when it was last read
    modified: float = 0.0
    sign: str = ""
    sign_size: int = 0
    sequence: int = 0  # as HTCondor counts the files of the pool-wide log; 0: not said
    body: int = 0  # where the header ends that HTCondor rewrites when it rotates
    mark: str = ""
    mark_size: int = 0
    zone: str = ""  # see `zone_text`
    last: float | None = None  # the time of the last event
    #: Whether earlier events were stored before the zone or the year was known.
    retell: bool = False
    #: Whether a newer file had followed when its end was read.
    closed: bool = False
    gone: bool = False
    events: int = 0
    skipped: int = 0  # bytes that are part of no event
    days: list[int] = field(default_factory=list)


@dataclass
class Source:
    """A log with all the files that it has had."""

    id: int
    name: str  # its path, or what stands for it
    owner: str = ""
    files: list[Cursor] = field(default_factory=list)
    next: int = 0  # number of the next file
    sequence: int = 0  # the last one that HTCondor gave to a file of the pool-wide log

    @property
    def newest(self) -> Cursor | None:
        """The file that the log was in when we last looked."""
        live = (one for one in self.files if not one.gone)
        return max(live, key=lambda one: one.number, default=None)


@dataclass(frozen=True)
class Gap:
    """Events that were, or may have been, lost before they could be stored."""

    source: str
    noticed: float
    why: str
    since: float | None = None  # the time of the last event that was stored before


@dataclass
class Gaps:
    """The gaps in the order in which they were noticed."""

    listed: list[Gap] = field(default_factory=list)
    count: int = 0

    def add(self, gap: Gap) -> None:
        """Note one."""
        self.count += 1
        if len(self.listed) < _GAPS:
            self.listed.append(gap)


def source_as_json(source: Source) -> dict[str, Any]:
    """A source as the commit holds it; of files that are gone only what a reader needs."""
    kept = [one for one in source.files if not one.gone or one.retell]
    return {
        "id": source.id,
        "name": source.name,
        "owner": source.owner,
        "next": source.next,
        "sequence": source.sequence,
        "files": [_without_defaults(one) for one in kept],
    }


def source_from_json(found: dict[str, Any]) -> Source:
    """The source that `source_as_json` wrote."""
    known = {one.name for one in fields(Cursor)}
    files = [Cursor(**{k: v for k, v in one.items() if k in known}) for one in found["files"]]
    names = ("id", "name", "owner", "next", "sequence")
    return Source(**{name: found[name] for name in names}, files=files)


_BLANK = asdict(Cursor(-1))


def _without_defaults(cursor: Cursor) -> dict[str, Any]:
    return {name: value for name, value in vars(cursor).items() if value != _BLANK[name]}


def zone_text(zone: tzinfo | None) -> str:
    """A zone as text: empty for this machine's own."""
    if zone is None:
        return ""
    name = getattr(zone, "key", None)
    if name:
        return str(name)
    offset = zone.utcoffset(None)
    return f"{int(offset.total_seconds()) if offset else 0:+d}"


def zone_of(text: str) -> tzinfo | None:
    """The zone that `zone_text` wrote."""
    if not text:
        return None
    if text[0] in "+-":
        return timezone(timedelta(seconds=int(text)))
    from zoneinfo import ZoneInfo

    return ZoneInfo(text)
