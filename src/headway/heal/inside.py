"""Healing a run from within `headway run`: in a thread, which begins when a job is first held."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from headway.errors import HeadwayError, PoolError
from headway.pool import Pool, RunFolder

if TYPE_CHECKING:
    from headway.heal.healer import Healer

_TICK = 0.3
_TROUBLE = 30.0  # seconds after the pool did not answer


class Inside:
    """Heals the jobs of one run within their own budget, while somebody watches them."""

    def __init__(self, folder: RunFolder, pool: Pool) -> None:
        #: What it has to say, oldest first; taken out by whoever shows it.
        self.notes: deque[str] = deque()
        self._folder = folder
        self._pool = pool
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._unseen = 0  # holds that no look has seen yet
        self._busy = False
        self._told: dict[str, str] = {}

    def poke(self) -> None:
        """A job of the run was held."""
        with self._lock:
            if self._stop.is_set():
                return
            self._unseen += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="heal", daemon=True)
                self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a job that looks held for good may yet be released."""
        with self._lock:
            return self._unseen > 0 or self._busy

    def close(self) -> None:
        """End it; an act that is under way is settled by whoever heals this run next."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(0.5)

    def _work(self) -> None:
        try:
            self._heal()
        except HeadwayError as error:
            self.notes.append(f"held jobs are not healed: {error.message}")
        except Exception as error:  # whatever it is, the run goes on
            words = f"{type(error).__name__}: {error}"
            self.notes.append(f"held jobs are not healed, by a bug in headway: {words}")
        finally:
            with self._lock:
                self._stop.set()
                self._unseen, self._busy = 0, False

    def _heal(self) -> None:
        # Loaded only now: most runs never have a job held.
        from headway.heal.healer import Healer
        from headway.heal.places import audit_of_run, rules_of_run
        from headway.heal.queue import queue_of_run
        from headway.heal.rules import Rules

        self._folder.check_own()
        rules = rules_of_run(self._folder, Rules())
        queue = queue_of_run(self._folder, self._pool)
        healer = Healer(queue, audit_of_run(self._folder), rules, do=True)
        try:
            while not self._stop.is_set():
                seen = self._unseen
                if healer.has_news() or seen or time.monotonic() >= healer.due:
                    self._look(healer, seen)
                self._stop.wait(_TICK)
        finally:
            healer.close()

    def _look(self, healer: Healer, seen: int) -> None:
        busy = False
        try:
            for decision in healer.look():
                if decision.intent is not None and self._told.get(decision.id) != decision.why:
                    self._told[decision.id] = decision.why
                    job = f"{self._folder.label}.{decision.case.held.key.proc}"
                    self.notes.append(f"heal: {decision.verb.value} {job}: {decision.why}")
            busy = healer.busy
        except PoolError:
            healer.due = time.monotonic() + _TROUBLE
        with self._lock:
            self._unseen -= seen
            self._busy = busy
