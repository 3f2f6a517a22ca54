"""The options of a download, its progress and its result."""

from __future__ import annotations

from headway.node.transfer.urls import authority, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from headway.node.transfer.ledger import Stretch
    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.source import Identity, Source

    class ReadControl(Protocol):
        """What readers may ask of a download, at any time and without a lock: see `Assembly`."""

        def turn(self, order: Sequence[Stretch], passed: int = 0) -> None: ...
        def wish(self, stretches: list[Stretch]) -> None: ...
        def passed(self, count: int) -> None: ...
        def give_back(self, begin: int, end: int) -> None: ...

    class Readers(Protocol):
        """Those who read an object while it arrives."""

        unit: int  # bytes that are reported together; with a manifest, its chunks
        room: int  # bytes of the disk that the object may take; 0: as many as it has

        # The size is known; returns what is on disk and proven already.
        def begins(self, size: int) -> Sequence[Stretch]: ...

        # These bytes are on disk and, where there is a manifest, right.
        def proven(self, begin: int, end: int) -> None: ...

        # These are about to be taken back, whichever of them were there.
        def lost(self, begin: int, end: int) -> None: ...

        # Called a few times a second without any lock, to tell the engine what is wanted.
        def look(self, control: ReadControl) -> None: ...


PATIENCE = 180.0  # seconds without a byte from anywhere: on a slot, a GPU waits
GRACE = 10.0  # seconds for which every source must say that there is no such object
CONNECTIONS = 4
PER_SOURCE = 2


class Options:
    """How one object is downloaded."""

    def __init__(
        self,
        *,
        size: int | None = None,
        most: int | None = None,
        checksum: str | None = None,
        manifest: Manifest | None = None,
        progress: Callable[[int, int | None], None] | None = None,
        watch: Callable[[Snapshot], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        patience: float = PATIENCE,
        grace: float = GRACE,
        absence_is_final: bool = False,
        connections: int = CONNECTIONS,
        per_source: int = PER_SOURCE,
        keep: bool = False,
        replace: bool = True,
        direct: bool = False,
        negotiate: bool = True,
        readers: Readers | None = None,
    ) -> None:
        """Take what the caller says, and the defaults for a slot.

        Args:
            size: The bytes that the object must have.
            most: An object of more bytes is refused.
            checksum: What the whole object must have, as "sha256:…".
            manifest: What each chunk must be.
            progress: Called with the bytes that are here and the total, at most twice a second.
            watch: Called as often, with a snapshot.
            should_stop: Asked often; Stopped is raised when it says so.
            patience: Seconds without a byte from anywhere after which the download fails.
            grace: Seconds for which every source must say that there is no such object.
            absence_is_final: Nobody waits in a slot, so fail early where another try would not
                help soon.
            connections: How many at a time, to all sources together.
            per_source: How many at a time to one source.
            keep: Keep what has arrived when the download ends early, so that another call can
                resume it; a killed process leaves it in any case.
            replace: Replace a file that has the name by then.
            direct: Fetch from a federation's origin, not from its caches.
            negotiate: Ask servers for a digest where nothing is declared.
            readers: They use the object while it arrives: they say what comes first, and hear what
                is there and proven.
        """
        self.size = size if manifest is None else manifest.size
        self.most, self.checksum, self.manifest = most, checksum, manifest
        self.progress, self.watch, self.should_stop = progress, watch, should_stop
        self.patience, self.grace, self.absence_is_final = patience, grace, absence_is_final
        self.connections, self.per_source = connections, per_source
        self.keep, self.replace, self.direct = keep, replace, direct
        self.negotiate, self.readers = negotiate, readers
        #: The declared size, if the manifest has another one.
        self.contradicted = size if size not in (None, self.size) else None

    @property
    def provable(self) -> bool:
        """Whether a checksum or a manifest was declared."""
        return self.checksum is not None or self.manifest is not None

    def owner(self) -> str:
        """What the journal of this download belongs to, in one line."""
        if self.manifest is None:
            return self.checksum or ""
        import hashlib

        hasher = hashlib.sha256(f"{self.manifest.size} {self.manifest.chunk_size} ".encode())
        for digest in self.manifest.digests:
            hasher.update(digest)
        return f"{self.checksum or ''} manifest:{hasher.hexdigest()}"


class SourceState:
    """One source as a progress bar shows it."""

    def __init__(self, source: Source, state: str, rate: float, lanes: int) -> None:
        self.host = authority(source.url)
        self.url = shown(source.url)
        self.state = state  # new, active, idle, benched or refused
        self.rate = rate  # bytes a second, all its connections together
        self.connections = lanes
        self.bytes, self.wasted = source.bytes, source.wasted
        self.words = source.fault.words if source.fault is not None else ""
        self.phase = source.fault.phase if source.fault is not None else ""

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


class Snapshot:
    """A download at one moment.

    Attributes:
        bytes: How many are here.
        total: How many there will be; None while that is unknown.
        rate: Bytes a second, all connections together.
        seconds: Since it began.
        sources: Each source as it is now.
        slow: What slows it down: "disk", "source", "network" or "".
    """

    def __init__(
        self,
        done: int,
        total: int | None,
        rate: float,
        seconds: float,
        sources: list[SourceState],
        slow: str,
    ) -> None:
        self.bytes, self.total, self.rate, self.seconds = done, total, rate, seconds
        self.sources, self.slow = sources, slow

    @property
    def eta(self) -> float | None:
        """Seconds to the end at the present rate."""
        if self.total is None or self.rate <= 0:
            return None
        return (self.total - self.bytes) / self.rate

    def as_json(self) -> dict[str, object]:
        sources = [source.as_json() for source in self.sources]
        return {**vars(self), "sources": sources}


class Fetched:
    """A file that has arrived and is proven as far as anything was declared.

    Attributes:
        path: Where it is.
        bytes: Its size.
        seconds: How long it took.
        url: The source that gave the last byte.
        verified: A checksum or manifest was declared and is right.
        proof: "manifest", "checksum", "digest" (a server's own word), "size" or "".
        snapshot: The sources as they were at the end.
        identity: What the sources said of the version that arrived.
    """

    def __init__(
        self,
        path: str,
        size: int,
        seconds: float,
        url: str,
        verified: bool,
        proof: str,
        last: Snapshot,
        identity: Identity | None = None,
    ) -> None:
        self.path, self.bytes, self.seconds = path, size, seconds
        self.url, self.verified, self.proof, self.snapshot = url, verified, proof, last
        self.identity = identity
