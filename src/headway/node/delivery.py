"""Delivery: outputs that go home after their job has ended, so that its slot is free at once.

A job on a node with a store hands its verified outputs over, and says in its own ad where they are.
A courier on that node's transfer slot takes them out, and HTCondor brings them home. A courier is
an agent like any other: the slot's ad tells it what it is. It also sends those that go to URLs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time

from headway.node.classad import quoted, read_job_ad
from headway.node.errors import NodeError
from headway.node.files import write_atomically
from headway.node.host import (
    HANDED,
    SANDBOX,
    SANDBOX_AT,
    SINCE,
    STEPS,
    TICKET,
    TRANSFER_SLOT,
    machine_attribute,
    store_folder,
)
from headway.node.plan import OUT, TICKET_FILE
from headway.node.record import read_json
from headway.node.store.folder import Store, open_store
from headway.node.store.sandboxes import NoHandOver, SandboxError, Sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headway.node.plan import Plan
    from headway.node.record import AttemptRecord
    from headway.node.store.sandboxes import Sending, Ticket

    Stop = Callable[[], bool]

#: Seconds for an attribute, which goes to the starter, the shadow and the schedd: giving up costs
#: the slot more time.
_PATIENCE = 30.0
OUTPUTS = f"{OUT}/outputs"
#: Where a courier has outputs until it has sent those for URLs. HTCondor brings nothing of it home,
#: even if the courier is killed.
TAKEN = "headway-taken"
#: Goes home with the job, and once more with the courier: what must arrive.
TICKET_HOME = f"{OUT}/{TICKET_FILE}"


def hand_over(plan: Plan, record: AttemptRecord, size: int, should_stop: Stop) -> Ticket | None:
    """Leave the outputs, so many bytes, in this node's store; None: they go home with the job.

    Raises:
        Stopped: The attempt must end.
    """
    wanted = plan.deliver
    if wanted is None or size < wanted.smallest:
        return None
    ad, root, startd = read_job_ad(os.environ), store_folder(os.environ), _startd()
    obstacle = ""
    if machine_attribute(os.environ, TRANSFER_SLOT) != "false" or not startd:
        obstacle = "this node has no transfer slots"
    elif not root:
        obstacle = "this node has no store for them"
    elif ad.get(SANDBOX.lower()):
        obstacle = "those that were left in a store before did not arrive"
    if obstacle or not root:
        record.note(f"the outputs go home with the job: {obstacle}")
        return None
    name = f"{plan.run[:8]}-{plan.row.get('job', '0')}-{record.attempt.id}"
    try:
        sandboxes = Sandboxes(Store(root), should_stop)
        ticket = sandboxes.hand_over(OUTPUTS, name, at=startd, stays=wanted.stays)
    except (NodeError, NoHandOver) as reason:
        record.note(f"the outputs go home with the job: {reason}")
        return None
    starts, steps = ad.get("numshadowstarts"), ad.get(STEPS.lower())
    told = {
        SANDBOX: quoted(name),
        TICKET: quoted(ticket.digest),
        SANDBOX_AT: quoted(startd),
        STEPS: str(steps + 1 if isinstance(steps, int) else 1),
        SINCE: str(ad_time(ad, record)),  # the job is a courier from now on
        HANDED: str(starts)
        if isinstance(starts, int)
        else "undefined",  # and this start's end is not its last
    }
    try:
        write_atomically(TICKET_HOME, ticket.as_bytes(), 0o644)
        if all(record.set_attribute(key, told[key], patience=_PATIENCE) for key in told):
            record.note(f"{ticket.size} bytes of outputs are handed over to the store, as {name}")
            if os.path.isdir(OUTPUTS):  # they were copied, and need not go home
                shutil.rmtree(OUTPUTS)
            return ticket
        words = "the access point cannot be told of a sandbox"
    except OSError as error:
        words = f"the ticket cannot be written: {error.strerror}"
    for key in (HANDED, SINCE):  # an answer that was late may have been a yes
        record.set_attribute(key, "undefined")
    sandboxes.take_back(name, OUTPUTS)
    with contextlib.suppress(OSError):
        os.unlink(TICKET_HOME)
    record.note(f"the outputs go home with the job: {words}")
    return None


def _startd() -> str:
    """The name of this node's startd: the part after the slot in the name of a slot."""
    return (machine_attribute(os.environ, "Name") or "").partition("@")[2]


def forget_what_is_home() -> None:
    """Remove what an earlier checkpoint saved of the attempt that left the sandbox.

    HTCondor gives that to each further attempt, which would bring it home, over the whole record.
    """
    sandbox = read_job_ad(os.environ).get(SANDBOX.lower())
    for attempt in os.listdir(f"{OUT}/attempts") if isinstance(sandbox, str) else ():
        folder = f"{OUT}/attempts/{attempt}"
        if str(sandbox).endswith(attempt) and read_json(f"{folder}/record.json").get("exit") != 0:
            shutil.rmtree(folder, ignore_errors=True)


def nothing_left() -> None:
    """Say that nothing waits for a courier, whatever an earlier attempt has said."""
    write_atomically(TICKET_HOME, b"{}", 0o644)


def ad_time(ad: Mapping[str, object], record: AttemptRecord) -> int:
    """The time by the access point's clock: this node's own may be wrong."""
    begun = ad.get("jobcurrentstartdate")
    if isinstance(begun, int):
        return begun + int(record.now() - record.begin)
    return int(time.time())


def take_out(record: AttemptRecord, should_stop: Stop) -> tuple[Ticket, Sending]:
    """Put the sandbox of this job into TAKEN.

    Returns:
        What the sandbox holds, and what couriers have begun to send of it.

    Raises:
        SandboxError: It is lost or damaged; the job's ad says that it is to be computed again.
        NodeError: It cannot be taken out now; another courier may.
        Stopped: The attempt must end.
    """
    ad = read_job_ad(os.environ)
    name, digest = (str(ad.get(key.lower()) or "") for key in (SANDBOX, TICKET))
    store = open_store(store_folder(os.environ))
    if store is None:
        raise NodeError("this node has no store, or none that can be used now")
    sandboxes = Sandboxes(store, should_stop)
    try:
        ticket = sandboxes.ticket(name, digest)
        sandboxes.take_out(ticket, TAKEN)
    except SandboxError as error:
        record.set_attribute(SINCE, "undefined")
        steps = ad.get(STEPS.lower())
        record.set_attribute(STEPS, str(steps + 1 if isinstance(steps, int) else 1))  # no try
        record.send_line("deliver", "lost", {"sandbox": name, "why": str(error)[:200]})
        raise
    write_atomically(TICKET_HOME, ticket.as_bytes(), 0o644)
    return ticket, sandboxes.sending(name)


def put_off() -> None:
    """After a courier that could not deliver: the sandbox is needed again, and stays."""
    store, name = open_store(store_folder(os.environ)), read_job_ad(os.environ).get(SANDBOX.lower())
    if store is not None and isinstance(name, str):
        Sandboxes(store).put_off(name)
