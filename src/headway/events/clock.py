"""The clock of a log: which time a header's date means when it has neither year nor zone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone, tzinfo
from typing import NamedTuple

_DAY = 86400
_WEEK = 7 * _DAY
_YEAR = 365.2425 * _DAY
#: How many years back the first date of a log may be moved.
_TRIES = 5
_MEMORY = 4096
#: Seconds by which clocks of node and access point differ, and within which an event is written.
_CLOSE = 60


class Clock:
    """Turns the dates in the headers of one log into times, in the order of the log.

    How every reader of logs uses it:

    1. Make `Clock(mtime)` with the log's modification time.
    2. For each event in order, call `seconds(minute, zone)`. It gives the epoch of the beginning of
       that minute; the reader adds seconds and fraction. `minute` is the header's `MM/DD HH:MM` or
       `YYYY-MM-DD HH:MM` (or with `T`), `zone` its `Z` or `+hh:mm` or None. None means that there
       is no such date: the event is skipped, and the clock stays as it was. A reader may ask once
       for neighbours that are equal: a second call in a row changes nothing.
    3. For each event whose body has a UTC time (see `utc_hint`), call `hint(at, utc)` with the
       event's own time as this clock gave it, in any order. Of the hints of one UTC day of `utc`,
       only the one with the smallest `at - utc` counts.
       For each 028 whose date has no year and whose body has one (see `ad_time`), call
       `year_hint(at, time)`. Only the first counts.
    4. At the end of the log, call `again()`. It gives None, or the clock with which to read the log
       once more from its start, because a hint contradicts the zone or year that this one assumed.

    A reader that cannot begin again (a follower) calls `onward()` instead: the times that it has
    already given stay as they are.

    Without a year, the first date is put as late as possible, but not after `reference` plus a day
    (for zones), or not after `latest` where that is given. No date is put more than a week before
    the one that precedes it. Where dates with a year follow, those without one end there.

    Without a zone, dates are this machine's local time with its daylight saving rules; the hour
    that occurs twice in autumn counts as its first run. Where hints contradict that, the whole log
    has one offset; if they show two offsets an hour apart, it is the zone of America or Europe that
    has both. A log from elsewhere whose hints all lie on one side of a change of daylight saving
    time is read an hour wrong on the other side.
    """

    def __init__(
        self, reference: float, zone: tzinfo | None = None, *, latest: float | None = None
    ) -> None:
        #: Whether a date without a year has been seen.
        self.yearless = False
        #: What dates without a zone are read in; None: this machine's zone.
        self.zone = zone
        self._reference = reference
        # Where the search for the year of the first date begins.
        self._latest = reference + _DAY if latest is None else latest
        self._tries = _TRIES if latest is None else 0
        # Whether a date with a year has been seen; of a log that begins without, the last
        # date before the first one with a year, and that one.
        self._dated = False
        self._turn: tuple[float, float] | None = None
        self._first: float | None = None
        self._last: float | None = None
        self._known: dict[tuple[bytes, bytes | None], float] = {}
        self._hints: dict[int, Hint] = {}
        # Years to add, as the first ad tells.
        self._years_off: int | None = None
        self._fresh = False

    def seconds(self, minute: bytes, zone: bytes | None) -> float | None:
        """The epoch of the beginning of this minute, or None if there is no such date."""
        key = (minute, zone)
        found = self._known.get(key)
        if found is None or (minute[2] == 0x2F and not self._follows(found)):
            try:
                found = self._find(minute.decode(), zone)
            except (ValueError, OverflowError, OSError):
                return None
            if len(self._known) > _MEMORY:
                self._known.clear()
            self._known[key] = found
        if self._first is None:
            self._first = found
        self._last = found
        return found

    def hint(self, at: float, utc: float) -> None:
        """Note that an event which this clock puts at `at` tells of something at `utc`."""
        day = int(utc // _DAY)
        known = self._hints.get(day)
        if known is None or at - utc < known.at - known.utc:
            self._hints[day] = Hint(at, utc)
            self._fresh = True

    def year_hint(self, at: float, time: float) -> None:
        """Note that the ad of an event which this clock puts at `at` says `time`, read as UTC."""
        if self._years_off is None:
            local = datetime.fromtimestamp(at, self.zone).replace(tzinfo=timezone.utc)
            self._years_off = round((time - local.timestamp()) / _YEAR)

    def again(self) -> Clock | None:
        """The clock to read the whole log with once more, or None if this one did it right."""
        if self._first is None or self._last is None or not self._tries:
            return None
        if self._turn:
            before, dated = self._turn
            if years := math.floor((dated + _WEEK - before) / _YEAR):
                return self._anew(self.zone, self._shifted(years), self._tries - 1)
        if self._hints:
            zone, years = judge(self._hints.values(), self.zone, self.yearless)
            if zone is self.zone and not years:
                return None
            return self._anew(zone, self._shifted(years) if self.yearless else None, 0)
        if self._years_off is not None:
            years = self._years_off
            return self._anew(self.zone, self._shifted(years), 0) if years else None
        if self.yearless and self._last > self._reference + _DAY:
            # The first date was put as late as possible: the last one shows that it was too late.
            return self._anew(self.zone, self._latest - 366 * _DAY, self._tries - 1)
        return None

    def _anew(self, zone: tzinfo | None, latest: float | None, tries: int) -> Clock:
        clock = Clock(self._reference, zone, latest=latest)
        clock._tries = tries
        return clock

    def _shifted(self, years: int) -> float:
        """The latest time of the first date so many years on: only its own year fits before it."""
        assert self._first is not None
        return self._first + (years + 0.5) * _YEAR

    @property
    def sure(self) -> bool:
        """Whether the year is known: from dates, hints, or a modification time close to the end."""
        known = self._dated or self._hints or self._years_off is not None
        if not self.yearless or known or self._last is None:
            return True
        return abs(self._last - self._reference) <= _DAY

    def year(self, minute: bytes) -> int:
        """The year of the first date of a log, as its zone has it; see `seconds`."""
        found = self.seconds(minute, None)
        if found is None:
            raise ValueError("there is no such date")
        return datetime.fromtimestamp(found, self.zone).year

    def passed(self, last: float, dated: bool, turn: tuple[float, float] | None) -> None:
        """Note that the reader itself has worked out the dates from the first to this one.

        Args:
            last: When the last of them is.
            dated: Whether one of them has a year.
            turn: Where the log begins without, the last before the first with one, and that one.
        """
        self._last, self._dated, self._turn = last, dated, turn

    def onward(self) -> Clock:
        """The clock for the rest of the log: this one, or one that follows the hints."""
        if not self._fresh or self._last is None:
            return self
        self._fresh = False
        zone, years = judge(self._hints.values(), self.zone, self.yearless)
        if zone is self.zone and not years:
            return self
        clock = Clock(self._reference, zone)
        clock.yearless = self.yearless
        clock._first = self._first
        clock._last = self._last + years * _YEAR
        return clock

    def _find(self, text: str, zone: bytes | None) -> float:
        offset = self.zone if zone is None else _zone(zone)
        if text[2] != "/":
            found = _epoch(text, offset)
            if self.yearless and not self._dated and self._last is not None:
                self._turn = self._last, found
            self._dated = True
            return found
        # Nine years always hold a 29 February.
        if self._last is None:
            year = datetime.fromtimestamp(self._latest, timezone.utc).year
            earlier = _years(text, range(year + 1, year - 9, -1), offset)
            found = next(at for at in earlier if at <= self._latest)
        else:
            year = datetime.fromtimestamp(self._last, timezone.utc).year
            later = _years(text, range(year - 1, year + 9), offset)
            found = next(at for at in later if at >= self._earliest())
        self.yearless = True
        return found

    def _earliest(self) -> float:
        # Writers get out of order by seconds; a week back can only be another year.
        return float("-inf") if self._last is None else self._last - _WEEK

    def _follows(self, at: float) -> bool:
        # What was found before is still the first such date that is not too early.
        earliest = self._earliest()
        return earliest <= at < earliest + 365 * _DAY


class Hint(NamedTuple):
    """An event's time as a clock gave it, and the UTC time of something that it tells of."""

    at: float
    utc: float


_UTC = re.compile(
    rb"\n\tJob terminated (?:of its own accord|by [^\n]{1,256}?) "
    rb"at (\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z"
)


def utc_hint(event: bytes) -> float | None:
    """The epoch of the UTC time in the lines of a 005 event, None where they have none.

    Of 005 only: in other events the line may be a user's words.
    """
    at = event.rfind(b"\n\tJob terminated ")
    return _utc_time(_UTC.match(event, at)) if at >= 0 else None


_AD_TIME = re.compile(rb'\nEventTime = "(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)')


def ad_time(event: bytes) -> float | None:
    """The time in the job's ad that a 028 event brings, as if it were UTC; None where it has none.

    It is the header's date once more, with the year.
    """
    return _utc_time(_AD_TIME.search(event))


def _utc_time(match: re.Match[bytes] | None) -> float | None:
    """The epoch of six numbers from year to second, in UTC."""
    if not match:
        return None
    try:
        return datetime(*map(int, match.groups()), tzinfo=timezone.utc).timestamp()  # type: ignore[misc,arg-type]
    except ValueError:
        return None


def judge(hints: Iterable[Hint], zone: tzinfo | None, yearless: bool) -> tuple[tzinfo | None, int]:
    """The zone of a log, and the years to add to its dates, given what `zone` made of them.

    An event is written when or after what it tells of happened, mostly within seconds, but a slow
    transfer may lie between. So a zone gains with each hint that is close, and loses with each
    that lies in the future; the assumed zone stays unless another one does better.
    """
    found = sorted(hints, key=lambda hint: hint.utc)
    years = round((found[0].utc - found[0].at) / _YEAR) if yearless and found else 0
    pairs = [(local, utc) for at, utc in found if (local := _local(at, zone, years))]
    candidates = [zone, *_candidates(pairs)]
    # max takes the first of equals.
    return max(candidates, key=lambda candidate: _score(pairs, candidate)), years


def _score(pairs: Iterable[tuple[datetime, float]], zone: tzinfo | None) -> int:
    score = 0
    for local, utc in pairs:
        late = local.replace(tzinfo=zone).timestamp() - utc
        score += (abs(late) <= _CLOSE) - (late < -_CLOSE)
    return score


def _candidates(pairs: Iterable[tuple[datetime, float]]) -> Iterator[tzinfo]:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # hardly ever needed

    votes: Counter[int] = Counter()
    for local, utc in pairs:
        ahead = local.replace(tzinfo=timezone.utc).timestamp() - utc + _CLOSE
        votes[max((offset for offset in _OFFSETS if offset * 900 <= ahead), default=0)] += 1
    for offset, _ in votes.most_common(2):
        yield timezone(timedelta(minutes=15 * offset))
    for standard, name in _SUMMERS.items():
        if standard * 4 in votes and standard * 4 + 4 in votes:
            with suppress(ZoneInfoNotFoundError):  # a machine without the zone database
                yield ZoneInfo(name)


#: The offsets from UTC that some place has, in quarters of an hour.
_OFFSETS = (*range(-48, 60, 4), *(-38, -14, 14, 18, 22, 23, 26, 35, 38, 42, 51))
#: A zone with daylight saving time for each standard offset, in hours.
_SUMMERS = {
    -8: "America/Los_Angeles",
    -7: "America/Denver",
    -6: "America/Chicago",
    -5: "America/New_York",
    0: "Europe/London",
    1: "Europe/Berlin",
    2: "Europe/Helsinki",
}


def _local(at: float, zone: tzinfo | None, years: int) -> datetime | None:
    try:
        local = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
        return local.replace(year=local.year + years)
    except (ValueError, OverflowError, OSError):  # 29 February
        return None


def _years(text: str, years: range, zone: tzinfo | None) -> Iterator[float]:
    for year in years:
        try:
            yield _epoch(f"{year:04d}-{text[:2]}-{text[3:]}", zone)
        except ValueError:
            continue
    raise ValueError("no year has this date")


def _epoch(text: str, zone: tzinfo | None) -> float:
    return datetime(  # naive where the log names no zone: local time, as HTCondor writes it
        int(text[:4]),
        int(text[5:7]),
        int(text[8:10]),
        int(text[11:13]),
        int(text[14:16]),
        tzinfo=zone,
    ).timestamp()


def _zone(text: bytes) -> tzinfo:
    if text == b"Z":
        return timezone.utc
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[:1] == b"-" else minutes))
