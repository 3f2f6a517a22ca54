"""Prefetch: a waiting job brings its inputs to a node, while another job of its run computes there.

The waiting job starts on a transfer slot, as a courier does. Its agent puts the inputs into the
node's store and ends, and the job goes on waiting, for a while for that node alone. `store.ahead`
says whether inputs are wanted. Whatever goes wrong, the job waits on as if nothing had been: what
its ad says from the beginning makes HTCondor put it back into the queue however the agent ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from itertools import starmap

from headway.node import inputs
from headway.node.classad import quoted, read_job_ad
from headway.node.delivery import ad_time
from headway.node.errors import HeadwayError, NodeError, Stopped, words_of
from headway.node.host import (
    PREFETCH,
    PREFETCH_AFTER,
    PREFETCHED,
    PREFETCHED_AT,
    PREFETCHED_UNTIL,
    STEPS,
    TRANSFER_SLOTS,
    machine_attribute,
    store_folder,
)
from headway.node.record import Progress, ProgressReporter
from headway.node.store.ahead import Ahead, mark
from headway.node.store.folder import open_store
from headway.node.store.inputs import InputStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.node.plan import Plan
    from headway.node.process import Watch
    from headway.node.record import AttemptRecord
    from headway.node.store.folder import Held

AGAIN = 60  # seconds until a job may come again that was not needed
AFTER_FAILURE = 600
#: A job waits for the node that has its inputs so many times as long as they took to come: to bring
#: them to another one takes as long, and HTCondor may need a minute.
WORTH, LEAST = 3.0, 60.0
_TRIES, _PAUSE = 10, 2.0  # to tell the access point
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}")


@contextlib.contextmanager
def announced(record: AttemptRecord, watch: Watch) -> Iterator[None]:
    """Say, before anything else is done, that this start is not the job's own.

    Raises:
        NodeError: The access point cannot be told.
        Stopped: The attempt must end.
    """
    ad = read_job_ad(os.environ)
    starts, steps = (ad.get(name) for name in ("numshadowstarts", STEPS.lower()))
    steps = steps if isinstance(steps, int) else 0
    told = {
        STEPS: str(steps + 1),
        PREFETCH_AFTER: str(ad_time(ad, record) + AFTER_FAILURE),
        PREFETCH: str(starts),
    }
    for left in reversed(range(_TRIES)):
        watch.check()
        if isinstance(starts, int) and all(starmap(record.set_attribute, told.items())):
            break
        if not left:
            raise NodeError("the access point cannot be told of a prefetch")
        watch.wait(_PAUSE)
    try:
        yield
    except Stopped:
        record.set_attribute(STEPS, str(steps))  # HTCondor does not count this end
        raise


def prefetch(plan: Plan, record: AttemptRecord, watch: Watch) -> tuple[int, str]:
    """Bring this job's inputs into the node's store; returns their bytes, and what came of it.

    Raises:
        Stopped: The attempt must end.
    """
    try:
        return _bring(plan, record, watch)
    except Stopped:
        raise
    except (HeadwayError, OSError) as error:
        return 0, f"the inputs did not come: {words_of(error)}"


def _bring(plan: Plan, record: AttemptRecord, watch: Watch) -> tuple[int, str]:
    root, slot = store_folder(os.environ), machine_attribute(os.environ, "Name") or ""
    store, startd = open_store(root), slot.partition("@")[2]
    if store is None or not startd:
        raise NodeError("this node has no store, or none that can be used now")
    ahead, name = Ahead(store), mark(plan.run, plan.row.get("job", "0"))
    held = ahead.begin(name)
    if held is None:
        now = ad_time(read_job_ad(os.environ), record)
        record.set_attribute(PREFETCH_AFTER, str(now + AGAIN))
        return 0, "no more inputs are wanted here now"
    here, begin = False, time.monotonic()
    try:
        wanted = [each for each in plan.inputs if each.store and not each.streams]
        progress = Progress({each.path: each.size for each in wanted})
        reporter = ProgressReporter(record, "prefetch", progress)
        mine, checksums = InputStore(store, record.note, watch.must_stop), []
        for each in plan.inputs:
            checksum = ""
            if each in wanted:
                task = functools.partial(inputs.prefetch, each, progress, watch.must_stop, mine)
                checksum = watch.work(functools.partial(task, record.inputs), reporter.tick)
            checksums.append(checksum)
        now = ad_time(read_job_ad(os.environ), record)
        waits = max(LEAST, WORTH * (time.monotonic() - begin))
        told = {
            PREFETCHED: quoted(",".join(checksums)),
            PREFETCHED_UNTIL: str(now + int(waits)),
            PREFETCHED_AT: quoted(startd),
        }
        here = all(record.set_attribute(key, value) for key, value in told.items())
        return progress.done, f"the inputs are in the store of {startd}"
    finally:
        ahead.finish(name, here=here)
        held.release()


def take_note(plan: Plan) -> None:
    """Note in the plan what an earlier start of this job has brought, and that the job is here."""
    if not plan.prefetch:
        return
    told = str(read_job_ad(os.environ).get(PREFETCHED.lower()) or "").split(",")
    if len(told) == len(plan.inputs):
        for each, checksum in zip(plan.inputs, told):
            each.prefetched = checksum if _CHECKSUM.fullmatch(checksum) else ""
    with contextlib.suppress(HeadwayError, OSError):
        ahead = _marks()
        if ahead is not None:
            ahead.arrive(mark(plan.run, plan.row.get("job", "0")))


def compute(plan: Plan) -> Held | None:
    """Note for as long as the lock is held that a job of this run computes here."""
    with contextlib.suppress(HeadwayError, OSError):
        ahead = _marks() if plan.prefetch else None
        if ahead is not None:
            return ahead.compute(mark(plan.run, plan.row.get("job", "0")))
    return None


def _marks() -> Ahead | None:
    if machine_attribute(os.environ, TRANSFER_SLOTS) is None:
        return None
    store = open_store(store_folder(os.environ))
    return None if store is None else Ahead(store)
