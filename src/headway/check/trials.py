"""The trials: one whole run, then the same job interrupted in each way that a pool knows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headway.check.bench import Bench, TimeOver
from headway.check.evidence import Evidence, Life
from headway.check.saves import build, states
from headway.check.start import Seen, Start
from headway.node.exits import Exit

_MOST_STARTS = 1000  # of a command that leaves with a checkpoint by itself
_FIRST, _SECOND, _THIRD, _USED = 0.3, 0.2, 0.15, 0.55  # shares of the whole run
_LATER = 0.8
_LEAST_INTERVAL = 0.05
_LIVE = 6  # lines from which on they tell how far a run is


class Trials:
    """Makes the starts, one after the other, and tells each."""

    def __init__(self, bench: Bench, say: Callable[[str], None]) -> None:
        self._bench, self._say = bench, say
        self.evidence = Evidence()

    def run(self, differs: Callable[[Evidence], bool], *, quick: bool = False) -> Evidence:
        """All of it; the twin only where an interrupted run differs from the whole one."""
        found = self.evidence
        found.quick = quick
        try:
            self._whole()
            if found.whole[-1].code == Exit.OK:
                self._evicted()
                if not quick:
                    self._used()
                    self._torn()
                if differs(found):
                    self._say("another uninterrupted run, since something differed")
                    self._bench.forget()
                    found.twin = self._to_end(self._bench.new_place())
        except TimeOver:
            found.over = True
        return found

    def _whole(self) -> None:
        self._say("an uninterrupted run")
        life = self.evidence.whole
        self._bench.forget()
        self._to_end(self._bench.new_place(), life, patience=float("inf"))
        last = life[-1]
        rows = len(self.evidence.curve)
        told = "traced" if self.evidence.traced else "printed"
        self._say(f"  it {last.words()} after {last.wall:.1f} s; {rows} steps {told}")

    def _evicted(self) -> None:
        self._say("SIGTERM, a start elsewhere, a second checkpoint, kill -9, a start elsewhere")
        bench, life = self._bench, self.evidence.evicted
        bench.forget()
        place = bench.new_place()
        life.append(self._interrupt(place, _FIRST, "term"))
        if self._over(life[-1]):
            return
        place = self._next(place, life[-1])
        wanted = bench.job.checkpoint
        if wanted is not None and wanted.interval is not None:
            self.evidence.interval = min(
                wanted.interval, max(_LEAST_INTERVAL, _SECOND * self.evidence.training)
            )
            patience = self._patience()
            interval = self.evidence.interval
            life.append(bench.start(place, interval=interval, patience=patience))
        else:
            life.append(self._interrupt(place, _SECOND, "term"))
        if self._over(life[-1]):
            return
        # after a checkpoint HTCondor starts the command again where it is
        life.append(self._interrupt(place, _THIRD, "kill"))
        if not self._over(life[-1]):
            place = bench.new_place() if bench.spool.exists() else place
            self._to_end(place, life)

    def _used(self) -> None:
        self._say("kill -9, and a start in the same folder")
        life, place = self.evidence.used, self._bench.new_place()
        self._bench.forget()
        life.append(self._interrupt(place, _USED, "kill"))
        if not self._over(life[-1]):
            self._to_end(place, life)

    def _torn(self) -> None:
        """Starts from what a kill in the midst of a save would leave."""
        found = self.evidence
        chosen = found.saving = self._bench.best_save
        if chosen is None:
            return
        for state in states(chosen.changes, chosen.after):
            self._say(f"a start after a kill while {state.words.replace(' was ', ' is ', 1)}")
            self._bench.forget()
            place = self._bench.new_place()
            life: Life = []
            found.torn.append((state, life))
            first = self._bench.start(
                place,
                patience=self._patience(),
                laid=partial(build, state, chosen.changes, chosen.before, chosen.after),
            )
            life.append(first)
            if first.code == Exit.CHECKPOINT:
                self._to_end(place, life)
            self._bench.drop(place)

    def _to_end(self, place: int, life: Life | None = None, patience: float | None = None) -> Life:
        """Start until the command does not want to be started again."""
        life = [] if life is None else life
        for _ in range(_MOST_STARTS):
            limit = self._patience() if patience is None else patience
            life.append(self._bench.start(place, patience=limit))
            if life[-1].code != Exit.CHECKPOINT:
                break
        self._bench.drop(place)
        return life

    def _interrupt(self, place: int, share: float, how: str) -> Start:
        return self._bench.start(
            place, when=self._moment(share), how=how, patience=self._patience()
        )

    def _moment(self, share: float) -> Callable[[Seen], bool]:
        """When this share of the whole run is done: by steps, or else by lines, or else by time."""
        whole = self.evidence.whole
        if self.evidence.traced:
            rows = max(1, round(share * len(self.evidence.curve)))
            return lambda seen: seen.rows >= rows
        if len(whole) == 1 and len(whole[0].lines) >= _LIVE and whole[0].live(share):
            lines = max(1, round(share * len(whole[0].lines)))
            late = partial(self._time_has_come, min(_LATER, 2 * share))
            # before its first line it may still import, and die of what it would heed later
            return lambda seen: seen.lines >= lines or (seen.lines > 0 and late(seen))
        return partial(self._time_has_come, share)

    def _time_has_come(self, share: float, seen: Seen) -> bool:
        """Whether this share of the time is over, from when the command can hear SIGTERM.

        What comes before, such as imports, takes another time in each start.
        """
        whole = self.evidence.whole
        deaf = sum(start.listened or 0.0 for start in whole)
        wanted = share * (sum(start.seconds for start in whole) - deaf)
        if whole[0].listened is None:
            return seen.seconds >= wanted
        return seen.listened is not None and seen.seconds - seen.listened >= wanted

    def _next(self, place: int, start: Start) -> int:
        """Where the pool would start it next: with a checkpoint in its spool, elsewhere."""
        if start.code != Exit.CHECKPOINT:
            return place
        self._bench.drop(place)
        return self._bench.new_place()

    def _over(self, start: Start) -> bool:
        """Whether a life has ended: by success, or by a failure of its own."""
        if start.interrupted:
            return start.code == Exit.OK
        return start.code != Exit.CHECKPOINT

    def _patience(self) -> float:
        whole = sum(start.wall for start in self.evidence.whole)
        return 5 * whole + self._bench.job.grace + 30.0
