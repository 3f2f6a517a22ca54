"""Repair: what is done about wrong bytes, and about sources that have different versions.

Functions of a job whose lock is held.
"""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from headway.node.errors import TransferError
from headway.node.transfer import steering
from headway.node.transfer.compare import Comparison
from headway.node.transfer.crew import Elsewhere
from headway.node.transfer.source import MANY_BAD, Fault, Identity
from headway.node.transfer.urls import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from headway.node.transfer.job import Job
    from headway.node.transfer.source import Source

MOST_RESTARTS = 5  # versions of one object that are tried before it is given up
_PAGES = ("text/html", "application/xhtml+xml")
_PAGE_NAMES = ("", "html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "cgi")
_MIXED = 3  # times that a chunk of several givers is wrong before all of them are blamed


def rivals(job: Job) -> list[Source]:
    """The sources of another version that are worth a try."""
    return [s for s in job.sources if s.key in job.versions.rivals and s.bad < MANY_BAD]


def switch(job: Job, chosen: list[Source]) -> bool:
    """Begin anew with those who have another version; False: there was enough of that."""
    if job.restarts >= MOST_RESTARTS or not chosen:
        return False
    job.restart(chosen[0])
    job.versions.rivals.clear()
    job.disputed = False
    first = time.monotonic() + 3 * steering.RACE  # they shall be the first to give bytes
    for source in job.sources:
        source.benched_until = max(source.benched_until, first)
    for source in chosen:
        source.closed, source.benched_until, source.faults = False, 0.0, 0
    return True


def word(job: Job, identity: Identity) -> bool | None:
    """Whether a source's own digest is the declared one; None: it does not say."""
    told = identity.digests.get(job.digest_name)
    return None if told is None else told == job.digits


def heard(job: Job, source: Source, identity: Identity) -> None:
    """What a source says of itself in a dispute over versions."""
    right = word(job, identity)
    if right is None or job.over or source.bad:
        return
    rival = source.key in job.versions.rivals
    if not right:
        source.failed(own_word(), time.monotonic(), 0.5)
        source.bad = MANY_BAD
        if not rival:  # and so has everybody who agrees with it
            switch(job, rivals(job))
    elif not rival or switch(job, [source, *(s for s in rivals(job) if s is not source)]):
        job.vouched = True
    job.changed.notify_all()


def rival(job: Job, source: Source, identity: Identity) -> NoReturn:
    """A source has another version, which may be the right one after all."""
    fault = job.versions.rival(source, identity)
    if job.doubts.active:  # what is here is wrong, and now it is clear in which way
        words = "what it gave is not the declared object"
        _blame(job, Fault(words, bad_copy=True, retryable=False, phase="verify"))
        if switch(job, [source]):
            raise Elsewhere
    if job.versions.provable and not job.vouched:
        job.disputed = True
        if switch(job, job.versions.outvoted(job.sources)):
            raise Elsewhere
    raise fault


def cut_short(job: Job, identity: Identity) -> bool:
    """Whether what was taken for the end of the object was none, by a source's own word."""
    here = job.ledger.size
    if not job.length_unsaid or here is None or identity.size is None or here >= identity.size:
        return False
    words = f"it broke off after {here} of {identity.size} bytes"
    fault, now = Fault(words, phase="body", lasting=True), time.monotonic()
    givers = [each for each in job.sources if each.key in job.ledger.givers()]
    for source in givers:
        source.failed(fault, now, 0.5)
        if any(not each.closed for each in job.sources if each not in givers):
            source.bench(fault, steering.SET_ASIDE, now)  # it would begin at the first byte again
    # what came is its beginning; others show by samples that theirs is the same
    job.ledger.size, job.reserved, job.length_unsaid = identity.size, False, False
    return True


def page_instead(job: Job, source: Source, identity: Identity) -> bool:
    """Whether a web page comes in place of the object, as where a network wants a login first."""
    if job.versions.provable or identity.media_type not in _PAGES:
        return False
    last = urlsplit(source.url).path.rpartition("/")[2].lower()
    suffix = last.rpartition(".")[2] if "." in last else ""
    return suffix not in _PAGE_NAMES


def disagreement(job: Job) -> TransferError | None:
    """Why an object that nothing proves cannot get its name: another source knows it otherwise."""
    size, pinned = job.ledger.size, job.versions.pinned
    if pinned is None:
        return None
    # a declared size settles that much
    here = Identity(size if job.declared is None else None, digests=pinned.digests)
    for source in job.sources:
        said = source.identity or source.opinion
        if said is None or page_instead(job, source, said):
            continue
        if here.differs(said, same_place=False):
            what = f"has {said.size} bytes" if said.size != size else "has another digest"
            return disagreed(
                job,
                f"{shown(job.last_url)} gave {size} bytes, and at {shown(source.url)} it {what}",
            )
        if source.gives_others:
            words = f"{shown(job.last_url)} and {shown(source.url)} give different bytes"
            return disagreed(job, words)
    return None


def disagreed(job: Job, words: str) -> TransferError:
    """The error of an object that nothing proves and that sources have in different ways."""
    return TransferError(
        f"{job.part.name} did not arrive: its sources disagree, and nothing tells which of them is "
        f"right: {words}",
        retryable=True,
        remedy="declare its checksum, or name only sources that are right",
    )


def bad_chunk(job: Job, begin: int, end: int) -> None:
    """A chunk is not what the manifest says: it is fetched again, elsewhere if possible."""
    now = time.monotonic()
    mixed = len(job.ledger.givers(begin, end)) > 1
    if mixed:
        job.mixed[begin] = job.mixed.get(begin, 0) + 1
    certain = not mixed or job.mixed[begin] >= _MIXED
    for key in job.forget(begin, end, blame=certain):
        source = job.source(key)
        if source is None or not certain:
            continue
        words = f"the chunk at {begin} is not what the manifest says"
        source.failed(Fault(words, bad_copy=True, retryable=False, phase="verify"), now, 0.5)
        if not any(not each.closed for each in job.sources if each is not source):
            job.ledger.pardon(key)
            continue
        for lane in job.lanes.values():  # others bring the rest; it may show itself again
            if lane.source is source:
                lane.cut(steering.Verdict(lane.key, words, 0.0, failure=False))
    job.changed.notify_all()


def wrong_whole(job: Job, words: str) -> None:
    """The whole is not what was declared: fetch again what may be wrong, and only that."""
    if not _compared(job):
        return
    fault = Fault(words, bad_copy=True, retryable=False, phase="verify")
    givers = [source for source in job.sources if source.key in job.ledger.givers()]
    if rivals(job) or not job.ledger.bytes:
        # two versions were seen, and this is not the right one
        _blame(job, fault)
        if switch(job, rivals(job)):
            return
        portion = []
    else:
        open_ones = [each for each in job.sources if not each.closed]
        # who gives the whole only gives it for every portion, so there is but one
        ranged = sum(each.ranges is not False for each in open_ones)
        whole = ranged < min(2, len(open_ones)) or not ranged
        least = (job.ledger.size or 0) if whole else 4 * steering.LEAST_CHUNK
        if job.doubts.begins:  # those who were doubted so far have to replace the next one's
            for each in job.sources:
                job.ledger.pardon(each.key)
        portion = job.doubts.next(job.ledger.written(), least=least)
    if not portion:
        for source in givers:
            source.closed, source.fault = True, fault
        job.versions.pardon(job.sources)
        job.doubts.clear()
        job.forget(0, 1 << 62)
        job.ledger.size, job.reserved = job.declared, False  # its length may be wrong too
    for begin, end, key in portion:
        elsewhere = any(each.key != key for each in open_ones)
        job.forget(begin, end, blame=elsewhere)


def _compared(job: Job) -> bool:
    """Whether it is known where sources differ, as far as small samples can tell."""
    if rivals(job) or job.doubts.active or not job.ledger.bytes:
        return True
    if job.comparison is None:
        sources = [each for each in job.sources if not each.closed]
        job.comparison = Comparison(job.part, job.ledger.written(), sources, job.wake)
        if not job.comparison.under_way:
            return True
    elif not job.comparison.under_way and job.comparison.rounds:
        job.doubts.found(job.comparison.rounds)
        job.comparison.rounds = []
    job.comparison.watch(time.monotonic())
    return not job.comparison.under_way


def _blame(job: Job, fault: Fault) -> None:
    """All who gave what is here gave it wrong."""
    for source in job.sources:
        if source.key in job.ledger.givers() or (source.trusted and not job.ledger.bytes):
            source.failed(fault, time.monotonic(), 0.5)


def own_word() -> Fault:
    return Fault(
        "it has another version of the object, by its own word",
        retryable=False,
        settled=True,
        bad_copy=True,
        phase="verify",
        remedy="check the declared checksum and the object",
    )
