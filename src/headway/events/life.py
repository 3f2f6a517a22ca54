"""The life of a job: an automaton over the kinds of its events.

Outputs may stay in a node's store when the command ends (`left`). Then that end is not the job's:
it is `delivering` until a courier's end, whether the courier is the same job or another one.

A waiting job may start only to bring its inputs to a node (`ahead`): it is `idle` as before.

`completed` and `removed` are final: nothing that follows changes them, unless another courier comes
after one that ended without the outputs (`resumed`). From every other status a job can go on: a 004
puts it back to idle, a 013 ends a hold, and an attempt that starts counts even if the log has lost
the event before it. A 004 after a 012 is late news: the job stays held. Status, report, advice,
healing and the local pool all use this automaton, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag
from typing import NamedTuple

from headway.events.event import AGENT_KINDS, PAUSED, TERMINAL, Kind, Phase, Status


class Effect(IntFlag):
    """What an event does besides changing the state."""

    NOTHING = 0
    OPENED = 1  # an attempt begins with this event
    CLOSED = 2  # the attempt that was open, or that this event opened, ends with it
    OVERTAKEN = 4  # the log does not say how the attempt before ended
    SAVED = 8  # the output that came home before this event was a checkpoint
    LEFT = 32  # the command's own end is not that of the job: its outputs are still to come home
    AHEAD = 64  # the attempt under way turns out to be none: it only brings the job's inputs
    EVICTED = 16  # counts as an eviction, unless a hold or a removal follows at once


class Life(NamedTuple):
    """Where a job is in its life; all that the next step needs to know."""

    status: Status = Status.IDLE
    #: No event of the job has been seen: the log may begin in the middle.
    fresh: bool = True
    paused_from: Status = Status.IDLE
    #: An attempt is under way, and how far it has come.
    open: bool = False
    queued: bool = False
    transferred: bool = False
    arrived: bool = False
    executed: bool = False
    waiting: bool = False
    #: An output came home; until an event says more it may have been the last one.
    saved: bool = False
    failed: bool = False
    #: The agent's phase.
    stage: Kind = Kind.OTHER
    #: The log has told the end of the last attempt: another 004 tells it again.
    end_known: bool = False
    #: The outputs are in a node's store; an attempt is a courier unless its agent says otherwise.
    left: bool = False
    #: The attempt under way only brings the job's inputs to a node.
    ahead: bool = False

    @property
    def shown(self) -> Status:
        """The status for people: couriers come and go, and the job is being delivered."""
        if self.ahead and self.status in _UNDER_WAY:
            return Status.IDLE
        return Status.DELIVERING if self.left and self.status in _UNDER_WAY else self.status

    @property
    def phase(self) -> Phase | None:
        """What the job spends its time on from here; None when it is over."""
        if self.ahead and self.status in _UNDER_WAY:
            return Phase.PREFETCH
        if self.shown is Status.DELIVERING:
            return Phase.DELIVERY if self.open else Phase.STORED
        if self.status is Status.TRANSFERRING_IN:
            if self.waiting:
                return Phase.WAITING
            return Phase.STARTING if self.arrived else Phase.TRANSFER_IN
        if self.status is Status.TRANSFERRING_OUT:
            return Phase.WAITING if self.waiting else Phase.TRANSFER_OUT
        if self.status is Status.RUNNING:
            return Phase.TRANSFER_OUT if self.saved else _STAGES.get(self.stage, Phase.COMPUTE)
        return _PHASES.get(self.status)


_UNDER_WAY = frozenset(
    {Status.IDLE, Status.TRANSFERRING_IN, Status.RUNNING, Status.TRANSFERRING_OUT}
)
_PHASES = {
    Status.IDLE: Phase.QUEUED,
    Status.HELD: Phase.HELD,
    Status.SUSPENDED: Phase.SUSPENDED,
    Status.DISCONNECTED: Phase.DISCONNECTED,
}
_STAGES = {
    Kind.CHECK: Phase.STARTING,
    Kind.STAGE_IN: Phase.TRANSFER_IN,
    Kind.STAGE_OUT: Phase.TRANSFER_OUT,
    Kind.DONE: Phase.TRANSFER_OUT,
    Kind.DONE_CHECKPOINT: Phase.TRANSFER_OUT,
    Kind.DONE_LATER: Phase.TRANSFER_OUT,
    Kind.LOST: Phase.DELIVERY,
}

Step = tuple[Life, Effect]


def step(life: Life, kind: Kind) -> Step:
    """The life after one more event, and what else the event does."""
    if life.status in TERMINAL:
        return life, Effect.NOTHING
    act = _ACTIONS.get(kind)
    after, effect = act(life, kind) if act else (life, Effect.NOTHING)
    return (after._replace(fresh=False) if after.fresh else after), effect


def resumed() -> Life:
    """The life of a job that had ended, once another courier is submitted for its outputs."""
    return Life(Status.IDLE, fresh=False, end_known=True, left=True)


def _opened(life: Life) -> Step:
    """A new attempt begins: forget the last one."""
    effect = Effect.OPENED | Effect.OVERTAKEN if life.open else Effect.OPENED
    return Life(life.status, life.fresh, life.paused_from, open=True, left=_left(life)), effect


def _left(life: Life) -> bool:
    """Whether the outputs are in a store once the attempt under way is over."""
    return life.left or life.stage is Kind.DONE_LATER


def _alive(life: Life) -> Step:
    """The attempt went on after an output came home: that output was a checkpoint."""
    if life.open and life.saved:
        return life._replace(saved=False), Effect.SAVED
    return life, Effect.NOTHING


def _running(life: Life) -> Life:
    """The log begins in the middle of an attempt."""
    return Life(Status.RUNNING, open=True, transferred=True, arrived=True, executed=True)


def _on_input(life: Life, kind: Kind) -> Step:
    if kind is Kind.INPUT_FINISHED:
        # Also written when the transfer failed, and sometimes after the 001: it says nothing new.
        if life.open:
            return life._replace(arrived=not life.executed, waiting=False), Effect.NOTHING
        if life.status is not Status.IDLE or life.end_known:
            return life, Effect.NOTHING
        life, effect = _opened(life)
        return life._replace(status=Status.TRANSFERRING_IN, transferred=True, arrived=True), effect
    effect = Effect.NOTHING
    queued = kind is Kind.INPUT_QUEUED
    if not life.open or life.executed or life.transferred or (queued and life.queued):
        life, effect = _opened(life)
    return life._replace(
        status=Status.TRANSFERRING_IN,
        queued=life.queued or queued,
        transferred=not queued,
        waiting=queued,
    ), effect


def _on_output(life: Life, kind: Kind) -> Step:
    opened = Effect.NOTHING
    if life.fresh:
        life, opened = _running(life), Effect.OPENED
    if not life.open or not life.executed or life.status in PAUSED:
        return life, Effect.NOTHING
    if kind is Kind.OUTPUT_FINISHED:
        saved = life.status is Status.TRANSFERRING_OUT
        return life._replace(status=Status.RUNNING, saved=saved, waiting=False), opened
    life, effect = _alive(life)
    waiting = kind is Kind.OUTPUT_QUEUED
    return life._replace(status=Status.TRANSFERRING_OUT, waiting=waiting), opened | effect


def _on_execute(life: Life, _kind: Kind) -> Step:
    effect = Effect.NOTHING
    if not life.open or life.executed:
        life, effect = _opened(life)
    return life._replace(
        status=Status.RUNNING, executed=True, waiting=False, stage=Kind.OTHER
    ), effect


def _on_alive(life: Life, _kind: Kind) -> Step:
    if life.fresh:
        return _running(life), Effect.OPENED
    return _alive(life)


def _on_agent(life: Life, kind: Kind) -> Step:
    opened = Effect.NOTHING
    if life.fresh:
        life, opened = _running(life), Effect.OPENED
    if not life.open:
        return life, Effect.NOTHING
    done = kind in (Kind.DONE, Kind.DONE_CHECKPOINT, Kind.DONE_LATER)
    life, effect = (life, Effect.NOTHING) if done else _alive(life)
    if kind is Kind.PREFETCH and not life.ahead:
        return life._replace(stage=kind, ahead=True), opened | effect | Effect.AHEAD
    left = kind is Kind.DELIVER or (life.left and kind is Kind.DONE)
    return life._replace(stage=kind, left=left), opened | effect


def _on_pause(life: Life, kind: Kind) -> Step:
    effect = Effect.NOTHING
    if not life.open:
        life, effect = _running(life), Effect.OPENED
    came_from = life.paused_from if life.status in PAUSED else life.status
    status = Status.SUSPENDED if kind is Kind.SUSPENDED else Status.DISCONNECTED
    return life._replace(status=status, paused_from=came_from), effect


def _on_resume(life: Life, _kind: Kind) -> Step:
    if life.status in PAUSED:
        return life._replace(status=life.paused_from), Effect.NOTHING
    if life.fresh:
        return _running(life), Effect.OPENED
    return life, Effect.NOTHING


def _on_remote_error(life: Life, _kind: Kind) -> Step:
    return (life._replace(failed=True) if life.open else life), Effect.NOTHING


def _on_lost(life: Life, kind: Kind) -> Step:
    """007, 024 and 004; the first of them that comes ends the attempt."""
    if life.status is Status.HELD:  # late news of the attempt that the hold ended
        return life, Effect.NOTHING
    effect = Effect.NOTHING
    if kind is Kind.EVICTED and not life.failed:
        life, effect = _alive(life)
    if not life.open and not life.end_known:
        effect |= Effect.OPENED
    if not life.end_known:
        effect |= Effect.CLOSED if life.ahead else Effect.CLOSED | Effect.EVICTED
    return Life(Status.IDLE, life.fresh, end_known=True, left=_left(life)), effect


def _on_released(life: Life, _kind: Kind) -> Step:
    if life.status is Status.HELD:
        return life._replace(status=Status.IDLE), Effect.NOTHING
    return life, Effect.NOTHING


def _on_end(life: Life, kind: Kind) -> Step:
    """The attempt that is open ends; the command's own end tells of one in any case."""
    effect = Effect.CLOSED if life.open else Effect.NOTHING
    if not life.open and kind in (Kind.REQUEUED, Kind.SUCCEEDED, Kind.FAILED):
        effect = Effect.OPENED | Effect.CLOSED
    status = _AFTER_END.get(kind, Status.COMPLETED)
    if life.stage is Kind.DONE_LATER and kind in (Kind.REQUEUED, Kind.SUCCEEDED):
        status, effect = Status.IDLE, effect | Effect.LEFT  # its courier may be another job
    return Life(status, life.fresh, end_known=status is Status.IDLE, left=_left(life)), effect


_AFTER_END = {Kind.REQUEUED: Status.IDLE, Kind.HELD: Status.HELD, Kind.REMOVED: Status.REMOVED}

_ACTIONS: dict[Kind, Callable[[Life, Kind], Step]] = {
    **dict.fromkeys((Kind.INPUT_QUEUED, Kind.INPUT_STARTED, Kind.INPUT_FINISHED), _on_input),
    **dict.fromkeys((Kind.OUTPUT_QUEUED, Kind.OUTPUT_STARTED, Kind.OUTPUT_FINISHED), _on_output),
    Kind.EXECUTING: _on_execute,
    Kind.ALIVE: _on_alive,
    **dict.fromkeys(AGENT_KINDS, _on_agent),
    **dict.fromkeys((Kind.SUSPENDED, Kind.DISCONNECTED), _on_pause),
    **dict.fromkeys((Kind.UNSUSPENDED, Kind.RECONNECTED), _on_resume),
    Kind.REMOTE_ERROR: _on_remote_error,
    **dict.fromkeys((Kind.SHADOW_EXCEPTION, Kind.RECONNECT_FAILED), _on_lost),
    **dict.fromkeys((Kind.EVICTED, Kind.TRANSFER_FAILED), _on_lost),
    Kind.RELEASED: _on_released,
    **dict.fromkeys((Kind.REQUEUED, Kind.SUCCEEDED, Kind.FAILED, Kind.SKIPPED), _on_end),
    **dict.fromkeys((Kind.HELD, Kind.REMOVED), _on_end),
}
