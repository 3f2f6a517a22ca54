"""Delivery: outputs that go home after their job has ended, so that its slot is free at once.

A job on a node with a store hands its verified outputs over, and says in its own ad where they are.
A courier on that node's transfer slot takes them out, and HTCondor brings them home. A courier is
an agent like any other: the slot's ad tells it what it is. Outputs that go to URLs have been sent.
"""

from __future__ import annotations

import os
import time

from headway.node.errors import NodeError
from headway.node.host import machine_attribute, store_folder
from headway.node.plan import OUT
from headway.node.store.folder import open_store
from headway.node.store.sandboxes import NoHandOver, SandboxError, Sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.node.plan import Plan
    from headway.node.record import AttemptRecord

#: In a job's ad: its sandbox, the digest of its ticket, the startd whose store has it, since when
#: it waits there, and whether it has been taken out and sent.
SANDBOX, TICKET, PLACE = "HeadwaySandbox", "HeadwayTicket", "HeadwaySandboxAt"
SINCE, DELIVERED = "HeadwayDeliverSince", "HeadwayDelivered"
OUTPUTS = f"{OUT}/outputs"


def hand_over(
    plan: Plan, record: AttemptRecord, size: int, should_stop: Callable[[], bool]
) -> bool:
    """Leave the outputs, so many bytes, in this node's store; False: they go home with the job.

    Raises:
        Stopped: The attempt must end.
    """
    wanted = plan.deliver
    if wanted is None or size < wanted.smallest:
        return False
    root, slot = store_folder(os.environ), machine_attribute(os.environ, "Name") or ""
    store, startd = open_store(root), slot.partition("@")[2]
    if store is None or not startd:
        record.note("the outputs go home with the job: this node has no store for them")
        return False
    sandboxes, attempt = Sandboxes(store, should_stop), record.attempt
    name = f"{plan.run[:8]}-{plan.row.get('job', '0')}-{attempt.id}"
    try:
        ticket = sandboxes.hand_over(OUTPUTS, name, stays=wanted.stays)
    except NoHandOver as reason:
        record.note(f"the outputs go home with the job: {reason}")
        return False
    told = {
        SANDBOX: f'"{name}"',
        TICKET: f'"{ticket.digest}"',
        PLACE: f'"{startd}"',
        DELIVERED: "false",
        SINCE: str(int(time.time())),  # the last one: it makes the job a courier
    }
    if all(record.set_attribute(key, value) for key, value in told.items()):
        record.note(f"{ticket.size} bytes of outputs are handed over to the store, as {name}")
        return True
    record.set_attribute(SINCE, "undefined")
    sandboxes.take_back(name, OUTPUTS)
    record.note("the outputs go home with the job: the access point cannot be told of a sandbox")
    return False


def take_out(record: AttemptRecord, should_stop: Callable[[], bool]) -> int:
    """Put the sandbox of this job to where HTCondor brings outputs home from; returns its bytes.

    Raises:
        SandboxError: It is lost or damaged; the job's ad says that it is to be computed again.
        NodeError: It cannot be taken out now; another courier may.
        Stopped: The attempt must end.
    """
    from headway.node.classad import read_job_ad

    ad = read_job_ad(os.environ)
    name, digest = (str(ad.get(key.lower()) or "") for key in (SANDBOX, TICKET))
    store = open_store(store_folder(os.environ))
    if store is None:
        raise NodeError("this node has no store, or none that can be used now")
    sandboxes = Sandboxes(store, should_stop)
    try:
        ticket = sandboxes.ticket(name, digest)
        sandboxes.take_out(ticket, OUTPUTS)
    except SandboxError:
        record.set_attribute(SINCE, "undefined")
        raise
    return ticket.size
