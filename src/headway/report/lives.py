"""Many lives at once: the automaton of `events.life` as a table, walked for all jobs together."""

from __future__ import annotations

import numpy as np

from headway.events.columnar.columns import Longs
from headway.events.kind import Kind
from headway.events.life import Life, step
from headway.report.codes import Codes

_KINDS = 32
_EFFECTS = 256
#: With fewer jobs left than this, one after the other is quicker.
_FEW = 32
_UNKNOWN = -1


class Lives:
    """Every step that was made once is a look into a table."""

    def __init__(self) -> None:
        #: The states that were met; a cell is a place in it times 256 plus the step's effect.
        self.met: list[Life] = [Life()]
        self._places = {self.met[0]: 0}
        self._table = np.full(64 * _KINDS, _UNKNOWN, np.int64)

    def walk(self, kinds: Codes, first: Longs) -> Longs:
        """The cell after each event; the events of a job lie together, and begin at `first`.

        Takes the first event of all jobs, then the second, and so on.
        """
        cells = np.empty(len(kinds), np.int64)
        lengths = np.diff(np.append(first, len(kinds)))
        order = np.argsort(-lengths, kind="stable")
        begin = first[order]
        longer = len(first) - np.searchsorted(
            np.sort(lengths), np.arange(1, lengths.max(initial=0) + 1)
        )
        place = np.zeros(len(first), np.int64)
        for number, jobs in enumerate(longer.tolist()):
            if jobs < _FEW:
                for job in range(jobs):
                    rest = slice(begin[job] + number, begin[job] + lengths[order[job]])
                    cells[rest] = self._walk_one(int(place[job]), kinds[rest].tobytes())
                break
            at = begin[:jobs] + number
            found = self._look_up(place[:jobs] * _KINDS + kinds[at])
            cells[at] = found
            place[:jobs] = found // _EFFECTS
        return cells

    def _look_up(self, keys: Longs) -> Longs:
        found = self._table[keys]
        missing = found == _UNKNOWN
        if missing.any():
            for key in np.unique(keys[missing]).tolist():
                self._step(key)
            found = self._table[keys]
        return found

    def _walk_one(self, place: int, kinds: bytes) -> list[int]:
        known: dict[int, int] = {}
        found = []
        for kind in kinds:
            key = place * _KINDS + kind
            cell = known.get(key)
            if cell is None:
                cell = int(self._table[key])
                if cell == _UNKNOWN:
                    cell = self._step(key)
                known[key] = cell
            found.append(cell)
            place = cell // _EFFECTS
        return found

    def _step(self, key: int) -> int:
        after, effect = step(self.met[key // _KINDS], Kind(key % _KINDS))
        place = self._places.setdefault(after, len(self.met))
        if place == len(self.met):
            self.met.append(after)
            if len(self.met) * _KINDS > len(self._table):
                more = np.full(len(self._table), _UNKNOWN, np.int64)
                self._table = np.append(self._table, more)
        cell = place * _EFFECTS + int(effect)
        self._table[key] = cell
        return cell
