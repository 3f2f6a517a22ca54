"""Evidence: what the events of an attempt say about it beside how it ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import polars as pl

from headway.events.columnar.columns import Columns, Floats, Ints, Longs
from headway.events.event import EventType
from headway.events.kind import Kind
from headway.report.walk import Walk


class Texts:
    """The strings of the columns."""

    def __init__(self, columns: Columns) -> None:
        self.strings = columns.strings
        self._column = pl.Series([*columns.strings, None], dtype=pl.String)

    def of(self, places: Ints | Longs) -> pl.Series:
        """The texts at these places; -1 is null."""
        found = np.where(places < 0, len(self.strings), places).astype(np.uint32)
        # A copy: else each text would keep all texts of the columns in memory.
        return self._column.gather(pl.Series(found)) + ""


class About:
    """What events say about their attempt: where it was, and what it used."""

    def __init__(self, columns: Columns, walk: Walk) -> None:
        rows, count = walk.rows, int(walk.attempt.max(initial=-1)) + 1
        self._attempt = walk.attempt
        self.site = self._last(columns.site[rows], count)
        self.slot = self._last(columns.slot[rows], count)
        self.host = self._last(columns.host[rows], count)
        self.user = np.full(len(walk.first), -1, np.int64)
        user = columns.user[rows]
        named = np.flatnonzero(user >= 0)
        self.user[walk.job[named]] = user[named]
        self._usage(columns, walk, count)

    def _last(self, values: Ints, count: int) -> Longs:
        found = np.full(count, -1, np.int64)
        said = np.flatnonzero(values >= 0)
        said = said[self._attempt[said] >= 0]
        found[self._attempt[said]] = values[said]
        return found

    def _usage(self, columns: Columns, walk: Walk, count: int) -> None:
        attempt = np.full(len(columns), -1, np.int64)
        attempt[walk.rows] = walk.attempt
        # The bytes of a line that is not the agent's own count for nothing.
        others = walk.rows[walk.kind == Kind.OTHER]
        attempt[others[columns.number[others] == EventType.GENERIC]] = -1
        owner = attempt[columns.usage.row]
        mine = owner >= 0
        self._of, usage = owner[mine], columns.usage

        again = np.bincount(self._of, minlength=count) > 1
        repeats = again[self._of]

        def largest(values: Floats) -> Floats:
            found = np.full(count, np.nan)
            found[self._of] = values[mine]
            # Slow, so only where an attempt has been measured more than once.
            np.fmax.at(found, self._of[repeats], values[mine][repeats])
            return found

        self.memory_used = largest(usage.memory_used)
        self.memory_asked = largest(usage.memory_asked)
        self.disk_used, self.disk_asked = largest(usage.disk_used), largest(usage.disk_asked)
        self.gpus = largest(usage.gpus_asked)
        self.cpu_s, self.cpus = largest(usage.cpu_seconds), largest(usage.cpus_used)
        self.sent = largest(usage.sent)
        staged = largest(usage.staged)
        self.staged = ~np.isnan(staged)
        self.received = np.fmax(largest(usage.received), 0) + np.where(self.staged, staged, 0)
        self.received[np.isnan(largest(usage.received)) & ~self.staged] = np.nan


class Places:
    """The sites and machines of attempts, of some after the other.

    The machine is what stands behind the last @ of its slot, or its host. Where no event names the
    site, it is the only one that the machine is ever at, or the machine itself.
    """

    def __init__(self) -> None:
        self._machines: defaultdict[str | None, int] = defaultdict()
        self._sites: defaultdict[str, int] = defaultdict()
        for names in (self._machines, self._sites):
            names.default_factory = names.__len__
        self._machine: list[Ints] = []
        self._site: list[Ints] = []

    def add(self, texts: Texts, about: About) -> None:
        """Note where these attempts were."""
        used, place = distinct(np.where(about.slot >= 0, about.slot, about.host))
        slots = texts.of(used)
        names = slots.set(slots == _SEVERAL, None).str.extract(r"([^@]*)\z").to_list()
        self._machine.append(np.array([self._machines[name] for name in names], np.int32)[place])
        used, place = distinct(about.site)
        sites = [self._sites[texts.strings[at]] if at >= 0 else -1 for at in used.tolist()]
        self._site.append(np.array(sites, np.int32)[place])

    def columns(self) -> tuple[pl.Series, pl.Series]:
        """Site and machine of each attempt that was noted."""
        machine = np.concatenate([np.empty(0, np.int32), *self._machine])
        site = np.concatenate([np.empty(0, np.int32), *self._site])
        known = site >= 0
        only = np.full(len(self._machines), -1, np.int32)
        only[machine[known]] = site[known]
        moves = known & (only[machine] != site)
        only[machine[moves]] = -1
        if None in self._machines:
            only[self._machines[None]] = -1
        # A machine without a site is its own: it stands behind the sites.
        names = [*self._sites, *self._machines]
        own = machine + len(self._sites)
        found = np.where(known, site, only[machine])
        found = np.where(found < 0, own, found)
        return _named(names, found).cast(pl.Categorical), _named(names, own)


def _named(names: Sequence[str | None], places: Longs | Ints) -> pl.Series:
    return pl.Series(names, dtype=pl.String).gather(pl.Series(places.astype(np.uint32)))


#: What the 001 of a parallel universe job says, which is on several machines.
_SEVERAL = "MPI_job"


def distinct(places: Ints | Longs) -> tuple[Longs, Longs]:
    """The places that occur, -1 among them, and for each which of these it is."""
    # As np.unique says, but without sorting: places are small numbers.
    occurs = np.zeros(int(places.max(initial=-1)) + 2, bool)
    occurs[places + 1] = True
    return np.flatnonzero(occurs) - 1, np.cumsum(occurs)[places + 1] - 1
