"""A source: one place that an object can come from, how it has behaved so far, and when it may be
asked again. Pure: the clock and the dice come from outside."""

from __future__ import annotations

from headway.node.errors import CorruptError, NotFoundError, TransferError
from headway.node.transfer.scheduler import SourceView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.tokens import Secret

FIRST_PAUSE = 0.5  # seconds after the first fault; doubled, or more, with each further one
LONGEST_PAUSE = 60.0
LONGEST_ASKED = 300.0  # of what Retry-After may ask
RESTORE = 20.0  # seconds of good service that give a connection back
MANY_WRONG_PARTS = 3  # in a row, after which one that gave right ones is asked for the whole
MANY_BAD = 2  # wrong whole copies, or wrong chunks, after which a source is not asked again


class Fault(Exception):
    """One try with one source failed; the words hold nothing of the URL."""

    def __init__(
        self,
        words: str,
        *,
        retryable: bool = True,
        after: float = 0.0,
        bad_copy: bool = False,
        node: bool = False,
        remedy: str = "",
        phase: str = "",
        absent: bool = False,
        strain: bool = False,
        settled: bool = False,
        no_range: bool = False,
        wrong_part: bool = False,
        lasting: bool = False,
        means: type[TransferError] | None = None,
    ) -> None:
        super().__init__(words)
        self.words = words
        self.retryable = retryable and not settled
        self.after = after  # seconds that the server asked to wait
        self.bad_copy = bad_copy  # the bytes came, and they are wrong
        self.node = node  # this node is at fault
        self.remedy = remedy
        self.phase = phase  # resolve, connect, TLS, first byte, body, verify or disk
        self.absent = absent  # the source says that there is no such object
        self.strain = strain  # the source has too much to do
        self.settled = settled  # to ask again cannot change it
        self.no_range = no_range  # it gives the whole object only
        self.wrong_part = wrong_part  # it gave another part of the object than the one asked for
        self.lasting = lasting  # it will be the same in some minutes: somebody must repair it first
        # the error that a caller gets when nothing else went wrong
        self.means = means or (
            NotFoundError if absent else CorruptError if bad_copy else TransferError
        )

    def __str__(self) -> str:
        where = f" ({self.phase})" if self.phase else ""
        return f"{self.words}{where}"


class Identity:
    """What a source says of the version that it gives; empty texts: it does not say."""

    def __init__(
        self,
        size: int | None = None,
        etag: str = "",
        modified: str = "",
        digests: dict[str, str] | None = None,
        media_type: str = "",
    ) -> None:
        self.size = size
        self.etag = etag  # strong ones only
        self.modified = modified
        self.digests = digests or {}  # of the whole object: name to hex digits
        self.media_type = media_type  # in lower case, without parameters

    def differs(self, other: Identity, *, same_place: bool) -> bool:
        """Whether both cannot be the same version; mirrors may have validators of their own."""
        if None not in (self.size, other.size) and self.size != other.size:
            return True
        for name, value in self.digests.items():
            if other.digests.get(name, value) != value:
                return True
        if not same_place:
            return False
        if self.etag and other.etag:
            return self.etag != other.etag
        return bool(self.modified and other.modified and self.modified != other.modified)

    def agrees(self, other: Identity) -> bool:
        """Whether both are certainly the same version."""
        if self.size is None or self.size != other.size or self.differs(other, same_place=False):
            return False
        if any(name in other.digests for name in self.digests):
            return True
        return bool(self.etag) and self.etag == other.etag

    def disputes(self, other: Identity) -> bool:
        """Whether their validators speak against one version; equal dates outweigh other ETags,
        which servers make in ways of their own while copies keep their dates."""
        pairs = [(self.etag, other.etag), (self.modified, other.modified)]
        compared = [one == another for one, another in pairs if one and another]
        return bool(compared) and not any(compared)

    def says(self, checksum: str | None) -> bool | None:
        """Whether the source's own digest is the declared one; None: it does not say."""
        name, _, digits = (checksum or "").lower().partition(":")
        told = self.digests.get(name)
        return None if told is None else told == digits

    def as_json(self) -> dict[str, object]:
        fields = ("size", "etag", "modified", "digests")
        return {name: getattr(self, name) for name in fields}


class Source:
    """The running account of one place of an object."""

    def __init__(
        self,
        url: str,
        *,
        key: int,
        rank: int = 0,
        last_resort: bool = False,
        token: Secret | None = None,
        most: int = 2,
        hesitation: float = 0.0,
        named_for: str = "",
    ) -> None:
        self.url, self.key, self.rank = url, key, rank
        self.named_for = named_for  # the URL whose director named it and vouches for it
        self.last_resort = last_resort  # an origin: asked when no cache is left
        self.token = token
        self.most = most  # connections at the best of times
        self.allowed = most
        self._hesitation = hesitation  # seconds of bytes before a second connection is thought of
        self._gives_since: float | None = None
        self.identity: Identity | None = None  # once it has answered
        self.opinion: Identity | None = None  # what it says of the object, if it was only asked
        self.gives_others = False  # its bytes were not those that are here
        self.ranges: bool | None = None  # whether it gives parts; None: not asked yet
        self.trusted = False  # its version is known to be the one that is being downloaded
        self.bytes = 0  # received and used
        self.wasted = 0  # received and not used
        self.rate = 0.0  # bytes a second and connection, smoothed
        self.latency = 0.0  # seconds from a request to its first byte
        self.early = True  # it answers requests that come before the last answer has ended
        self.fault: Fault | None = None  # the last one, until it gives bytes again
        self.faults = 0  # since it gave bytes
        self.silences = 0  # in a row
        self.wrong_parts = 0  # in a row
        self.bytes_per_connection: int | None = (
            None  # bytes after which a connection gives way to a fresh one
        )
        self._fell_silent: list[int] = []  # the bytes that connections gave before they did
        self.bad = 0  # wrong copies or chunks
        self.refusals = 0  # in a row, of the kind that does not pass by itself
        self.lasting = 0  # faults in a row that no other try soon can change
        self.absent_since: float | None = None
        self.benched_until = 0.0
        self.closed = False  # for good
        self._calm_since = 0.0

    def ready(self, now: float) -> bool:
        """Whether it may be asked now."""
        return not self.closed and now >= self.benched_until

    def allowed_now(self, now: float, left: float) -> int:
        """Connections that it may have; a crowd that comes with one each does not overrun it.

        `left` is how many seconds there are to go.
        """
        if not self._hesitation:
            return self.allowed
        given = now - self._gives_since if self._gives_since is not None else 0.0
        return self.allowed if given >= self._hesitation and left >= 2 * self._hesitation else 1

    def view(self, now: float, *, lanes: int, left: float, waits: bool) -> SourceView:
        """What the scheduler needs to know; `waits`: it cannot begin before others have."""
        return SourceView(
            key=self.key,
            rank=self.rank,
            ready=self.ready(now) and not waits,
            allowed=self.allowed_now(now, left),
            lanes=lanes,
            rate=self.rate,
            ranges=self.ranges,
            last_resort=self.last_resort,
            silences=self.silences,
            closed=self.closed,
            answered=self.identity is not None,
            faults=self.faults,
        )

    def state(self, now: float, lanes: int) -> str:
        """One word for people."""
        if self.closed:
            return "refused"
        if now < self.benched_until:
            return "benched"
        if lanes:
            return "active"
        if self.fault is not None and not self.bytes:
            return "benched"  # its pause is over, and it has not been asked again yet
        return "idle" if self.bytes else "new"

    def failed(self, fault: Fault, now: float, dice: float) -> None:
        """Bench it for a while; `dice` in [0, 1) keeps many nodes from coming back in step."""
        self.fault = fault
        if fault.no_range:
            self.ranges = False  # a property, not a failure
            return
        self.faults += 1
        self._calm_since = now
        if fault.wrong_part:
            self.wrong_parts += 1
            if self.ranges is None or self.wrong_parts >= MANY_WRONG_PARTS:
                self.ranges = False
        self.refusals = self.refusals + 1 if not fault.retryable else 0
        self.lasting = self.lasting + 1 if fault.lasting else 0
        if not fault.absent:
            self.absent_since = None
        elif self.absent_since is None:
            self.absent_since = now
        if fault.strain:
            self.allowed = max(1, self.allowed // 2)
        if fault.settled:
            self.closed = True
        if fault.bad_copy:
            self.bad += 1
            self.closed = self.closed or self.bad >= MANY_BAD
        growth = 4.0 if fault.lasting else 2.0
        pause = min(FIRST_PAUSE * growth ** min(self.faults - 1, 10), LONGEST_PAUSE)
        pause = max(pause * (0.75 + 0.5 * dice), min(fault.after, LONGEST_ASKED))
        self.benched_until = max(self.benched_until, now + pause)

    def bench(self, fault: Fault, seconds: float, now: float) -> None:
        """Set it aside because others are better, which is not its failure."""
        self.fault = fault
        self.benched_until = max(self.benched_until, now + seconds)

    def gave(self, count: int, now: float, *, steady: bool = True) -> None:
        """It gave useful bytes: old faults are forgiven, lost connections come back slowly."""
        self.bytes += count
        self._gives_since = self._gives_since if self._gives_since is not None else now
        if not steady:
            return
        self.faults = self.silences = self.refusals = self.lasting = self.wrong_parts = 0
        self.absent_since = None
        if now - self._calm_since >= RESTORE and self.allowed < self.most:
            self.allowed += 1
            self._calm_since = now

    def answered_after(self, seconds: float) -> None:
        """The first byte of an answer came; one for which a connection was made takes longer."""
        mean = (self.latency + seconds) / 2 if self.latency else seconds
        self.latency = min(seconds, mean)

    def only_asked(self, said: Identity) -> None:
        """It says what the object is, and was asked for no bytes."""
        self.opinion = said

    def forgot_a_request(self) -> None:
        """One that came before the last answer had ended: from now on each waits for its turn."""
        self.early = False

    def fell_silent(self, given: int, least: int) -> None:
        """A connection gave so many bytes and then nothing more.

        Connections there may have a limit of their own; shorter ones stay below it.
        """
        self.silences += 1
        self._fell_silent = [*self._fell_silent[-1:], given]
        again = len(self._fell_silent) > 1 and min(self._fell_silent) > 0
        if again or given >= 4 * least:  # where much was given, half of it is no small connection
            self.bytes_per_connection = max(least, max(self._fell_silent) // 2)

    def strained(self, fault: Fault, now: float, lanes: int) -> None:
        """It refuses one more connection; those that flow go on, and no other is opened soon."""
        self.fault = fault
        self.allowed = max(1, min(self.allowed, lanes))
        self._calm_since = now + min(fault.after, LONGEST_ASKED)

    def ease(self, now: float) -> None:
        """Its rate falls: one connection less."""
        if self.allowed > 1:
            self.allowed -= 1
        self._calm_since = now

    def measured(self, rate: float) -> None:
        """Include a lane's recent rate."""
        self.rate = rate if not self.rate else 0.7 * self.rate + 0.3 * rate
