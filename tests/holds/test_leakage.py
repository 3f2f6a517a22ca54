"""No advice knows anything of what came after its hold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.report.study import write

from headway.events import Event, read_log
from headway.holds.advise import advise
from headway.holds.history import History
from headway.holds.hold import Hold

from . import logs_made as made

Logs = dict[str, list[Event]]
NOW = made.BEGIN + 10**9


def study(folder: Path) -> Logs:
    return {path.name: read_log(path).events for path in write(folder)}


def busy(seed: int) -> Logs:
    """Two logs of jobs that are held, released, started and removed at random, within an hour.

    Many events share a second, and now and then a log's clock jumps.
    """
    chance = random.Random(seed)
    logs: Logs = {"a.log": [], "b.log": []}
    for number, events in enumerate(logs.values()):
        at, jump = 0.0, 0.0
        for proc in range(12):
            # Both logs have a cluster 2, of two access points.
            cluster = chance.choice((1, 2)) + number
            events.append(made.submitted(proc, float(number), cluster=cluster))
        clusters = {event.proc: event.cluster for event in events}
        for _ in range(150):
            at += chance.choice((0, 0, 1, 7, 60))
            jump = chance.choice((jump, jump, jump, 0.0, -300.0, 900.0))
            proc = chance.randrange(12)
            when, cluster = at + jump, clusters[proc]
            kind = chance.randrange(6)
            reason = chance.choice((made.RESET, made.NOT_FOUND))
            events.append(
                (
                    made.transferring(proc, when, cluster),
                    made.executing(proc, when, chance.choice(("A", "B")), cluster),
                    made.held(proc, when, reason, cluster=cluster),
                    made.held(proc, when, reason, cluster=cluster),
                    made.released(proc, when, cluster),
                    chance.choice(
                        (made.ended(proc, when, 0, cluster), made.ended(proc, when, 1, cluster))
                    ),
                )[kind]
            )
    return logs


def read(logs: Logs, folder: Path) -> History:
    """As from files, where logs are merged."""
    paths = [made.written(folder / name, events) for name, events in logs.items()]
    return History.from_logs(paths, now=NOW)


def after(hold: Hold, events: Sequence[Event], own: bool) -> int:
    """Where in a log that begins which follows the hold."""
    if own:
        return 1 + next(
            place
            for place in range(len(events) - 1, -1, -1)
            if (events[place].cluster, events[place].proc) == (hold.cluster, hold.proc)
            and events[place].number == 12
            and events[place].time == hold.time
        )
    return next((n for n, event in enumerate(events) if event.time > hold.at.moment), len(events))


def perturbed(hold: Hold, logs: Logs, folder: Path, chance: random.Random) -> Logs:
    """The logs with all that follows the hold cut off, doubled, thinned out, shuffled, added to."""
    made_logs: Logs = {}
    for name, events in logs.items():
        cut = after(hold, events, str(folder / name) == hold.log)
        before, rest = events[:cut], list(events[cut:])
        way = chance.randrange(5)
        if way == 0:
            rest = []
        elif way == 1:
            chance.shuffle(rest)
        elif way == 2:
            rest = rest * 2
        elif way == 3:
            rest = [event for event in rest if chance.random() < 0.5]
        else:
            late = max((event.time for event in events), default=made.BEGIN) - made.BEGIN + 1
            rest += [
                event
                for proc in range(30)
                for event in made.went(proc, late + proc, chance.choice((1, 2, hold.cluster)))
            ]
        # What follows in another log must follow in time too, or it is not after the hold.
        made_logs[name] = before + [
            event for event in rest if event.time > hold.at.moment or str(folder / name) == hold.log
        ]
    return made_logs


@pytest.mark.parametrize("source", ["study", *range(6)])
def test_perturbing_all_that_follows_a_hold_changes_nothing(
    source: str | int, tmp_path: Path
) -> None:
    logs = study(tmp_path) if isinstance(source, str) else busy(source)
    whole = read(logs, tmp_path)
    holds = sorted(whole.every_hold(), key=lambda hold: hold.at)
    chance = random.Random(7)
    chosen = holds if len(holds) < 12 else chance.sample(holds, 12)
    assert len(chosen) >= 10
    told = {str(hold.at): advise(hold, whole).as_json() for hold in chosen}
    for hold in chosen:
        again = read(perturbed(hold, logs, tmp_path, chance), tmp_path)
        same = [
            h for h in again.every_hold() if (h.cluster, h.proc, h.at) == (*hold.job[1:], hold.at)
        ]
        assert same and advise(same[0], again).as_json() == told[str(hold.at)]


def test_the_test_would_notice(tmp_path: Path) -> None:
    """What lies before a hold does change the answer."""
    good = [event for proc in range(1, 9) for event in made.released_and(proc, proc * 200.0, True)]
    asked = [made.submitted(0, 4000), *made.tried(0, 4001)]
    alone = read({"a.log": asked}, tmp_path).held()
    informed = read({"a.log": [*good, *asked]}, tmp_path)
    first = advise(alone[0], read({"a.log": asked}, tmp_path))
    second = advise(informed.held()[0], informed)
    assert first.probability is not None and second.probability is not None
    assert second.probability > first.probability and second.cases >= 8
