"""Live checks: whether the object, the file or the site that stopped a job is well now.

Checks run in parallel, each with a short time-out. The URLs and paths come from a log, and anybody
can write a log. So a check never sends a token, a password or a signed query, not even after a
redirect, and never contacts a host in a private network unless HEADWAY_MAY_ASK names it. It asks
for a few bytes of few objects on few servers, once for each object.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.holds.advice import enough_now
from headway.holds.evidence import MINUTES
from headway.holds.history import History
from headway.holds.hold import Cut, Hold, meaning_of
from headway.holds.table import BEFORE_START, HoldMeaning
from headway.text import many

_log = logging.getLogger(__name__)
#: Seconds for all checks together, and for one source.
PATIENCE = 8.0
_EACH = 3.0
_SAMPLE = 1024
_MOST_OBJECTS, _MOST_SOURCES = 20, 8
_STALE = 14 * 86400.0  # a job that was held earlier has left every queue
_WORKERS = 8
_SCHEMES = ("osdf://", "stash://", "pelican://", "https://", "http://")
# looking there mounts, or wakes, something; /dev/shm has plain files
_MAPPED = re.compile(r"/(?:net|proc|sys|dev(?!/shm/))/")
_NOW = Cut(float("inf"))
_FOLDER_CODES = (7, 9, 22)  # HTCondor makes the file, so its folder must be there


@dataclass(frozen=True)
class CheckResults:
    """What the checks found; None: not checked, or it cannot be told from here."""

    object_there: bool | None = None
    file_there: bool | None = None
    #: Whether no such hold has come for 15 minutes, while other jobs got past.
    quiet: bool | None = None
    request_enough: bool | None = None
    #: Whether other jobs have started at the site since.
    site_well: bool | None = None
    words: tuple[str, ...] = ()


#: Whether a thing is there, and a sentence about it.
LookResult = tuple[bool | None, str]
Look = Callable[[str], LookResult]


def check(
    holds: Sequence[Hold],
    history: History,
    *,
    now: float | None = None,
    offline: bool = False,
    here: bool = False,
    look: Look | None = None,
) -> list[CheckResults]:
    """Check what stopped these jobs; `here`: this machine is their access point.

    `offline` asks nobody and looks at no file: only the history tells what happened since.
    """
    now = time.time() if now is None else now
    meanings = [meaning_of(hold) for hold in holds]
    seen: Mapping[str, LookResult] = {}
    if not offline:
        wanted = [
            hold.values["url"]
            for hold, meaning in zip(holds, meanings, strict=True)
            if "object" in meaning.checks
            and now - hold.time < _STALE
            and askable(hold.values.get("url", ""))
        ]
        seen = look_at(wanted, look or see)
    return [
        _check_one(hold, meaning, history, now, seen, None if offline else here)
        for hold, meaning in zip(holds, meanings, strict=True)
    ]


def _check_one(
    hold: Hold,
    meaning: HoldMeaning,
    history: History,
    now: float,
    seen: Mapping[str, LookResult],
    here: bool | None,
) -> CheckResults:
    nothing: LookResult = (None, "")
    object_there, about_object = seen.get(hold.values.get("url", ""), nothing)
    on_disk = here is not None and bool({"file", "folder"} & set(meaning.checks))
    file_there, about_file = _file(hold, meaning, bool(here)) if on_disk else nothing
    by_time = "quiet" in meaning.checks
    quiet, about_time = _quiet(hold, meaning, history, now) if by_time else nothing
    words = [about_object, about_file, about_time]
    enough = "request" in meaning.checks and enough_now(hold, meaning.raises)
    if enough:
        words.append("The request is by now larger than what the job used.")
    started = _since(history, ("past start", hold.site), hold) if hold.site else 0
    if started and meaning.elsewhere:
        words.append(f"The site answers: {many(started, 'job')} started there since this hold.")
    well = bool(started) or None
    said = tuple(filter(None, words))
    return CheckResults(object_there, file_there, quiet, enough or None, well, said)


def _since(history: History, key: tuple[object, ...], hold: Hold) -> int:
    return round(history.total(key, _NOW)[0] - history.total(key, hold.at)[0])


def _quiet(
    hold: Hold, meaning: HoldMeaning, history: History, now: float
) -> tuple[bool | None, str]:
    step = "start" if meaning.step in BEFORE_START else "end"
    past = _since(history, (f"past {step}",), hold)
    after = _since(history, ("holds", hold.template), hold) - 1  # itself
    recent = round(history.total(("holds", hold.template), _NOW, now - MINUTES)[0])
    recent -= hold.at.moment >= now - MINUTES
    if recent > 0:
        return False, f"{many(recent, 'other hold')} for the same reason in the last 15 minutes."
    if past and now - hold.at.moment >= MINUTES:
        more = "came since" if not after else "came in the last 15 minutes"
        return True, f"{many(past, 'job')} got past this step since, and no such hold {more}."
    return None, ""


def _file(hold: Hold, meaning: HoldMeaning, here: bool) -> tuple[bool | None, str]:
    path = hold.values.get("path", "")
    if not path.startswith("/") or _MAPPED.match(os.path.normpath(path)):
        return None, ""
    if "folder" in meaning.checks or hold.code in _FOLDER_CODES:
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
    """Whether a URL from a log may be asked for.

    One with a user name or a query may not: they can be somebody's secret, and without them it is
    the URL of another object. The options of a federation's director are no such query.
    """
    if not url.lower().startswith(_SCHEMES) or len(url) >= 2000 or not url.isprintable():
        return False
    from headway.node.transfer.federation import OPTIONS

    address, _, query = url.partition("#")[0].partition("?")
    if "@" in address.partition("://")[2].partition("/")[0]:
        return False
    return not query or all(part in OPTIONS for part in query.split("&"))


def look_at(urls: Iterable[str], look: Look, patience: float = PATIENCE) -> dict[str, LookResult]:
    """What the sources of each object answer; an object that takes too long is left out."""
    wanted = list(dict.fromkeys(urls))[:_MOST_OBJECTS]
    if not wanted:
        return {}
    import threading

    found: dict[str, LookResult] = {}
    left = wanted[::-1]

    def work() -> None:
        while left:
            try:
                url = left.pop()
            except IndexError:  # another thread was faster
                return
            found[url] = look(url)
            _log.debug("asked for %s: %s", url, found[url][1] or "no answer")

    number = min(_WORKERS, len(wanted))
    threads = [threading.Thread(target=work, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    left.clear()
    return dict(found)


def see(url: str) -> LookResult:
    """Ask each source for the first bytes, without a token, so that a refusal says nothing."""
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
            guarded.append(offer.name)  # some answer "not found" to those without a token
        elif health.fault.absent:
            absent.append(offer.name)
        else:
            faults.append(health.fault)
    if len(faults) == len(offers) and all(fault.settled for fault in faults):
        return None, f"The object could not be asked for: {faults[0].words}."
    if well:
        more = f" and {len(well) - 1} more" if len(well) > 1 else ""
        return True, f"Asked just now: the object answers at {well[0]}{more}."
    if absent and len(absent) == len(offers):
        return False, f"Asked just now: none of its {len(offers)} sources has the object."
    if guarded:
        return None, (
            f"Asked just now without a token, because a check never sends one: {guarded[0]} wants"
            " one, so it cannot be told whether the object is there."
        )
    if absent:
        some = f"{len(absent)} of {len(offers)}"
        return None, f"Asked just now: {some} sources do not have the object."
    return None, "Asked just now: no source of the object answered."
