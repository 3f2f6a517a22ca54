"""Live checks: what can be looked at now, where a look decides. Everything here asks the world.

Each check has a short time-out, and they run side by side. The URLs and paths are a log's words,
and anybody can write a log. So a look never carries a token, a password or a signed query, wherever
it is redirected; it asks no host of a private network unless HEADWAY_MAY_ASK names it, for a few
bytes, of few objects and few servers, and for each object once, however many jobs want it.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.holds.advice import enough_now
from headway.holds.evidence import MINUTES, jobs
from headway.holds.evidence import holds as holds_words
from headway.holds.history import History
from headway.holds.hold import Cut, Hold, meaning_of
from headway.holds.table import BEFORE_START, HoldMeaning

_log = logging.getLogger(__name__)
#: Seconds that all checks together may take, and that one source may.
PATIENCE = 8.0
_EACH = 3.0
_SAMPLE = 1024
_MOST_OBJECTS, _MOST_SOURCES = 20, 8
_STALE = 14 * 86400.0  # a job that was held earlier has left every queue
_WORKERS = 8
_SCHEMES = ("osdf://", "stash://", "pelican://", "https://", "http://")
# a look there mounts, or wakes, something; /dev/shm has plain files
_MAPPED = re.compile(r"/(?:net|proc|sys|dev(?!/shm/))/")
_NOW = Cut(float("inf"))
_FOLDER_CODES = (7, 9, 22)  # a file that HTCondor makes: its folder must be there


@dataclass(frozen=True)
class CheckResults:
    """What the checks found; None: not looked at, or not to be told from here."""

    object_there: bool | None = None
    file_there: bool | None = None
    #: No such hold has come for 15 minutes, while others got past.
    quiet: bool | None = None
    request_enough: bool | None = None
    #: Others have started at the site since.
    site_well: bool | None = None
    words: tuple[str, ...] = ()


#: What a look at an object gave: whether it is there, and a sentence.
LookResult = tuple[bool | None, str]
Looker = Callable[[str], LookResult]


def check(
    holds: Sequence[Hold],
    history: History,
    *,
    now: float | None = None,
    offline: bool = False,
    here: bool = False,
    look: Looker | None = None,
) -> list[CheckResults]:
    """Look at what stopped these jobs; `here`: this machine is their access point.

    `offline` asks nobody and only reads what the history has learnt since the holds.
    """
    now = time.time() if now is None else now
    entries = [meaning_of(hold) for hold in holds]
    seen: Mapping[str, LookResult] = {}
    if not offline:
        wanted = [
            hold.values["url"]
            for hold, entry in zip(holds, entries, strict=True)
            if "object" in entry.checks
            and now - hold.time < _STALE
            and askable(hold.values.get("url", ""))
        ]
        seen = look_at(wanted, look or see)
    return [
        _found(hold, entry, history, now, seen, None if offline else here)
        for hold, entry in zip(holds, entries, strict=True)
    ]


def _found(
    hold: Hold,
    entry: HoldMeaning,
    history: History,
    now: float,
    seen: Mapping[str, LookResult],
    here: bool | None,
) -> CheckResults:
    words: list[str] = []
    there, said = seen.get(hold.values.get("url", ""), (None, ""))
    words += [said] if said else []
    file_there = None
    if {"file", "folder"} & set(entry.checks) and here is not None:
        file_there, said = _file(hold, entry, here)
        words += [said] if said else []
    quiet = None
    if "quiet" in entry.checks:
        quiet, said = _quiet(hold, entry, history, now)
        words += [said] if said else []
    enough = enough_now(hold, entry.raises) if "request" in entry.checks else None
    if enough:
        words.append("The request is by now larger than what the job used.")
    started = _since(history, ("past start", hold.site), hold) if hold.site else 0
    if started and entry.elsewhere:
        words.append(
            f"The site answers: {started:,} {jobs(started)} started there since this hold."
        )
    return CheckResults(
        there, file_there, quiet, enough or None, bool(started) or None, tuple(words)
    )


def _since(history: History, key: tuple[object, ...], hold: Hold) -> int:
    return round(history.total(key, _NOW)[0] - history.total(key, hold.at)[0])


def _quiet(hold: Hold, entry: HoldMeaning, history: History, now: float) -> tuple[bool | None, str]:
    step = "start" if entry.step in BEFORE_START else "end"
    past = _since(history, (f"past {step}",), hold)
    after = _since(history, ("holds", hold.template), hold) - 1  # itself
    recent = round(history.total(("holds", hold.template), _NOW, now - MINUTES)[0])
    recent -= hold.at.moment >= now - MINUTES
    if recent > 0:
        return False, f"{holds_words(recent)} for the same reason in the last 15 minutes."
    if past and now - hold.at.moment >= MINUTES:
        more = "came since" if not after else "came in the last 15 minutes"
        return True, f"{past:,} {jobs(past)} got past this step since, and no such hold {more}."
    return None, ""


def _file(hold: Hold, entry: HoldMeaning, here: bool) -> tuple[bool | None, str]:
    path = hold.values.get("path", "")
    if not path.startswith("/") or _MAPPED.match(os.path.normpath(path)):
        return None, ""
    if "folder" in entry.checks or hold.code in _FOLDER_CODES:
        folder = os.path.dirname(path)
        good = os.path.isdir(folder) and os.access(folder, os.W_OK)
        what = "Its folder"
    elif hold.code == 14:
        good, what = os.path.isdir(path), "The folder"
    else:
        good, what = os.access(path, os.R_OK), "The file"
    if good:
        return True, f"{what} is there by now."
    # On any other machine than the access point the path means nothing.
    return (False, f"{what} is still not there, or may not be used.") if here else (None, "")


def askable(url: str) -> bool:
    """Whether a URL of a log is one that may be asked for.

    One with a user name or a query is not: they may be somebody's secret, and without them it
    would be another object's URL. What a federation's director understands is none.
    """
    if not url.lower().startswith(_SCHEMES) or len(url) >= 2000 or not url.isprintable():
        return False
    from headway.node.transfer.federation import OPTIONS

    address, _, query = url.partition("#")[0].partition("?")
    if "@" in address.partition("://")[2].partition("/")[0]:
        return False
    return not query or all(part in OPTIONS for part in query.split("&"))


def look_at(urls: Iterable[str], look: Looker, patience: float = PATIENCE) -> dict[str, LookResult]:
    """What each object's sources answer, side by side; what takes too long is left out."""
    wanted = list(dict.fromkeys(urls))[:_MOST_OBJECTS]
    if not wanted:
        return {}
    import threading

    found: dict[str, LookResult] = {}
    left = list(reversed(wanted))

    def work() -> None:
        while left:
            try:
                url = left.pop()
            except IndexError:
                return
            found[url] = look(url)
            _log.debug("asked for %s: %s", url, found[url][1] or "no answer")

    threads = [
        threading.Thread(target=work, daemon=True) for _ in range(min(_WORKERS, len(wanted)))
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    left.clear()
    return dict(found)


def see(url: str) -> LookResult:
    """Whether the sources of an object have it, by asking each for its first bytes.

    Nobody is shown a token, so a refusal says nothing about the object.
    """
    from headway.node.errors import HeadwayError
    from headway.node.transfer.discovery import examine
    from headway.node.transfer.federation import sources_of
    from headway.node.transfer.source import Fault

    if not askable(url):
        return None, ""
    deadline = time.monotonic() + PATIENCE - 1

    def stop() -> bool:
        return time.monotonic() > deadline

    try:
        offers = sources_of([url], origins=True, anonymous=True, should_stop=stop)
    except Fault as fault:
        if fault.absent:
            return False, f"Asked just now: {fault.words}."
        return None, f"The object could not be asked for: {fault.words}."
    except (HeadwayError, OSError, ValueError):
        return None, ""
    well: list[str] = []
    absent: list[str] = []
    guarded: list[str] = []
    faults: list[Fault] = []
    offers = offers[:_MOST_SOURCES]
    for offer in offers:
        if stop():
            break
        try:
            health = examine(offer, should_stop=stop, sample=_SAMPLE, limit=_EACH, public=True)
        except (HeadwayError, OSError, ValueError):
            continue
        if health.fault is None:
            well.append(offer.name)
        elif health.status in (401, 403) or (health.fault.absent and offer.withheld):
            guarded.append(offer.name)  # some say "not found" to whoever may not know
        elif health.fault.absent:
            absent.append(offer.name)
        else:
            faults.append(health.fault)
    if len(faults) == len(offers) and all(fault.settled for fault in faults):
        return None, f"The object could not be asked for: {faults[0].words}."
    return _seen(well, absent, guarded, len(offers))


def _seen(
    well: Sequence[str], absent: Sequence[str], guarded: Sequence[str], asked: int
) -> LookResult:
    if well:
        more = f" and {len(well) - 1} more" if len(well) > 1 else ""
        return True, f"Asked just now: the object answers at {well[0]}{more}."
    if absent and len(absent) == asked:
        return False, f"Asked just now: none of its {asked} sources has the object."
    if guarded:
        return None, (
            f"Asked just now without a token, which a look never carries: {guarded[0]} wants one, "
            "so it cannot be told whether the object is there."
        )
    if absent:
        return None, f"Asked just now: {len(absent)} of {asked} sources do not have the object."
    return None, "Asked just now: no source of the object answered."
