"""The accounts: tables that say where every second of every job went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar

import polars as pl

from headway.events.opening import Skip
from headway.report.enums import Cause, Delivery, JobOutcome, Phase, Worth

Schema = dict[str, pl.DataType | type[pl.DataType]]

PHASES = pl.Enum([phase.value for phase in Phase])
VERDICTS = pl.Enum([verdict.value for verdict in Worth])
CAUSES = pl.Enum([cause.value for cause in Cause])
OUTCOMES = pl.Enum([outcome.value for outcome in JobOutcome])

#: One row a job. Times are seconds since the epoch, lengths are seconds; null: not known.
JOBS: Schema = {
    "job": pl.UInt32,  # its row
    "id": pl.String,  # "794569.14"
    "cluster": pl.Int64,
    "proc": pl.Int64,
    "log": pl.Categorical,  # the log that it is in
    "user": pl.Categorical,  # null where no log says
    "site": pl.Categorical,  # of its last attempt
    "outcome": OUTCOMES,
    "begin": pl.Float64,  # its first event
    "submitted": pl.Float64,
    "matched": pl.Float64,  # its first attempt
    "end": pl.Float64,  # its last event; for a job that goes on, the last of its log
    "return_value": pl.Int32,
    "signal": pl.Int32,
    "hold_code": pl.Int32,  # of its last hold, also where it was released
    "hold_subcode": pl.Int32,
    "hold_reason": pl.String,
    "attempts": pl.UInt32,
    "stalls": pl.UInt32,  # attempts whose transfer was cut off or stalled
    "evictions": pl.UInt32,  # attempts that ended by eviction or disconnect, not by hold, removal
    "holds": pl.UInt32,
    "requeues": pl.UInt32,
    "checkpoints": pl.UInt32,
    "memory_used": pl.Float64,  # MB, the largest of its attempts
    "memory_asked": pl.Float64,  # by its last attempt that says so
    "disk_used": pl.Float64,  # KB
    "disk_asked": pl.Float64,
    "gpus": pl.Float64,  # asked for
    "cpu_s": pl.Float64,  # CPU time of all its attempts that say
    "total_s": pl.Float64,  # begin to end: the sum of its pieces
    "queued_s": pl.Float64,
    "held_s": pl.Float64,
    "prefetch_s": pl.Float64,  # it brought inputs to a node, and waited
    "stored_s": pl.Float64,  # its outputs waited in a node's store
    "delivery_s": pl.Float64,  # couriers were bringing them home
    "slot_s": pl.Float64,  # all else
    "compute_s": pl.Float64,  # all compute, good or not
    "good_compute_s": pl.Float64,  # compute of its verified result
    "good_s": pl.Float64,  # that, and what it needed
    "bad_s": pl.Float64,
    "open_s": pl.Float64,
    "transfer_s": pl.Float64,  # all input transfers
    "last_transfer_s": pl.Float64,  # the input transfer of its last attempt
}

#: One row an attempt, those that never reached 001 included, and couriers not.
ATTEMPTS: Schema = {
    "attempt": pl.UInt32,  # its row
    "job": pl.UInt32,  # row of its job
    "number": pl.UInt32,  # 1 for the job's first
    "site": pl.Categorical,
    "machine": pl.String,
    "begin": pl.Float64,
    "end": pl.Float64,
    "executed": pl.Boolean,  # reached 001, or ended by itself where the log lost it
    "arrived": pl.Boolean,  # its input transfer ended well: it reached 001, and the agent's run
    "ending": pl.String,  # "success", "open", or the `Cause` that ended it
    "cause": CAUSES,  # of what it lost
    "code": pl.Int32,  # of the 004 or 012 that ended it
    "subcode": pl.Int32,
    "reason": pl.String,
    "return_value": pl.Int32,
    "checkpoints": pl.UInt32,
    "waiting_s": pl.Float64,
    "transfer_in_s": pl.Float64,
    "starting_s": pl.Float64,
    "compute_s": pl.Float64,
    "checkpoint_s": pl.Float64,
    "transfer_out_s": pl.Float64,
    "disconnected_s": pl.Float64,
    "suspended_s": pl.Float64,
    "slot_s": pl.Float64,  # begin to end
    "good_compute_s": pl.Float64,
    "good_s": pl.Float64,
    "bad_s": pl.Float64,
    "open_s": pl.Float64,
    "received": pl.Float64,  # bytes that came with it, by HTCondor or by the agent
    "sent": pl.Float64,
    "agent_transfer": pl.Boolean,  # the agent staged its input in, within execution
    "memory_used": pl.Float64,  # MB
    "memory_asked": pl.Float64,  # the request in force: an edit changes it between attempts
    "disk_used": pl.Float64,  # KB
    "disk_asked": pl.Float64,
    "cpu_s": pl.Float64,  # CPU time, user and system; null where no event says
    "evicted": pl.Boolean,  # ended by eviction or disconnect, and not by hold or removal
    "file": pl.Categorical,  # where the event lies that ended it, and from which byte on
    "offset": pl.Int64,
}

#: One row a piece of a job's time; the pieces of a job lie end to end.
PIECES: Schema = {
    "job": pl.UInt32,
    "attempt": pl.UInt32,  # null where no slot is held
    "phase": PHASES,
    "verdict": VERDICTS,
    "cause": CAUSES,
    "begin": pl.Float64,
    "seconds": pl.Float64,
}

#: One row a hold: 012 events, with what became of them.
HOLDS: Schema = {
    "job": pl.UInt32,
    "attempt": pl.UInt32,  # that it ended; null where the job was not on a slot
    "time": pl.Float64,
    "code": pl.Int32,
    "subcode": pl.Int32,
    "reason": pl.String,
    "released": pl.Float64,  # when; null: never
    "held_s": pl.Float64,
}

#: One row an attempt that left its outputs in a node's store.
DELIVERIES: Schema = {
    "job": pl.UInt32,
    "attempt": pl.UInt32,
    "became": pl.Enum([delivery.value for delivery in Delivery]),
    "left": pl.Float64,  # when the attempt ended
    "home": pl.Float64,  # when the job ended; null: they are not home
    "couriers": pl.UInt32,  # that came for them
    "bytes": pl.Float64,
    "stored_s": pl.Float64,
    "delivery_s": pl.Float64,  # of all couriers
    "transfer_out_s": pl.Float64,  # of the courier that brought them home
}

#: One row a transfer of files that HTCondor brought to a node once for several jobs.
COMMON: Schema = {
    "cluster": pl.Int64,
    "begin": pl.Float64,
    "end": pl.Float64,  # null: the log does not tell of its end
}

#: One row a source of an input of an attempt: what the agent's records say of it.
SOURCES: Schema = {
    "job": pl.UInt32,
    "attempt": pl.UInt32,
    "source": pl.String,  # host, and port where it is not the usual one
    "bytes": pl.Float64,
    "wasted": pl.Float64,
    "failed": pl.Boolean,  # set aside in the end, or it never gave anything
    "fault": pl.String,  # the last, in words
}


#: One row an attempt: what the reason of its end means; null where none is given.
ENDS: Schema = {
    "template": pl.String,  # the reason without what differs from job to job
    "entry": pl.String,  # of the table of holds
}


@dataclass(frozen=True)
class Accounts:
    """Where every second went; `begin` and `end` bound the report."""

    jobs: pl.DataFrame
    attempts: pl.DataFrame
    pieces: pl.DataFrame
    holds: pl.DataFrame
    begin: float
    end: float
    events: int = 0
    files: list[str] = field(default_factory=list)
    skipped: list[tuple[str, Skip]] = field(default_factory=list)
    #: What lies behind a file's last complete event, and may still be being written.
    unfinished: list[tuple[str, Skip]] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    #: Files in the folders of the logs that are none.
    others: int = 0
    #: Jobs without an event since the time that was asked for.
    left_out: int = 0
    sources: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SOURCES))
    deliveries: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DELIVERIES))
    common: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COMMON))
    #: Jobs that were given files from such a transfer, as far as the log says.
    common_jobs: int = 0
    #: What the reason of each attempt's end means, in the order of attempts; None: not known yet.
    ends: pl.DataFrame | None = None
    #: What functions made with `once` have worked out.
    _derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def named_sites(self) -> pl.Series:
        """The site of each attempt; null where the log names none: a machine is its own site."""
        sites = self.attempts.select(pl.col("site", "machine").cast(pl.String))
        named = pl.when(pl.col("site").ne_missing(pl.col("machine"))).then("site")
        return sites.select(named).to_series()

    @cached_property
    def site_names(self) -> frozenset[str]:
        """The sites that the log names."""
        return frozenset(name for name in self.named_sites.unique().to_list() if name)

    @property
    def place(self) -> str:
        """What to call a place: "site", or "machine" where the log names machines alone."""
        known = self.attempts.get_column("site").count() > 0
        return "machine" if known and not self.site_names else "site"

    @cached_property
    def uses_osdf(self) -> bool:
        """Whether a reason in the log names an object or a cache of the OSDF."""
        reasons = self.attempts.get_column("reason").cast(pl.String).drop_nulls().unique()
        held = self.holds.get_column("reason").cast(pl.String).drop_nulls().unique()
        return any(bool(each.str.contains(_OSDF).any()) for each in (reasons, held))


Made = TypeVar("Made")


def once(work: Callable[[Accounts], Made]) -> Callable[[Accounts], Made]:
    """Let a function of accounts work once for each accounts; others that ask get the same.

    Args:
        work: A function of accounts alone.

    Returns:
        The function that remembers.
    """

    @wraps(work)
    def remembered(accounts: Accounts) -> Made:
        if work not in accounts._derived:
            accounts._derived[work] = work(accounts)
        made: Made = accounts._derived[work]
        return made

    return remembered


_OSDF = r"(?i)\b(osdf|stash|pelican)://|\bosdf\b|osg-htc\.org"
