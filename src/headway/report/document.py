"""The report as a whole: accounts, what is worked out from them, and the forms it comes in."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.report import figures
from headway.report.export import FORMAT, MOST_JOBS, plain, rows, tables
from headway.report.load import Loaded
from headway.text import many

if TYPE_CHECKING:
    import polars as pl

    from headway.report.accounts import Accounts
    from headway.report.compare import Comparison
    from headway.report.findings.finding import Finding


logger = logging.getLogger(__name__)


class Report:
    """Where every second of slot time went; what is not asked for is not worked out.

    `headway.report.report` makes one.

    Attributes:
        name: What it is of: the logs or runs that were named.
        accounts: The tables that all figures are made from.
        records: What the agent's attempt records add, one row a record; see `report.records`.
        notes: What a reader should know about what is in the report and what is not.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.name = loaded.name
        self.accounts: Accounts = loaded.accounts
        self.records: pl.DataFrame = loaded.records
        self.notes = loaded.notes

    @cached_property
    def totals(self) -> figures.Totals:
        """What all jobs together came to and cost."""
        return figures.totals(self.accounts)

    @cached_property
    def losses(self) -> list[figures.Loss]:
        """Badput by cause, the costliest first."""
        return figures.losses(self.accounts)

    @cached_property
    def sites(self) -> list[figures.SiteFigures]:
        """One row a site, the one with the most slot time first."""
        return figures.sites(self.accounts)

    @cached_property
    def findings(self) -> list[Finding]:
        """What cost most, why, and the lines to change; the costliest first."""
        from headway.report.findings import find

        begin = time.perf_counter()
        found = find(self.accounts)
        logger.info("%d findings in %.2f s", len(found), time.perf_counter() - begin)
        return found

    def groups(self, by: str) -> list[figures.GroupFigures]:
        """The same figures for parts of the report.

        Args:
            by: "site", "user", "cluster", "code" (of holds) or "hour" (UTC).

        Returns:
            One row a group: hours in their order, all else by slot time.

        Raises:
            ValueError: `by` is none of these.
        """
        return figures.groups(self.accounts, by)

    @cached_property
    def tables(self) -> dict[str, pl.DataFrame]:
        """jobs, attempts, pieces, holds and losses, and records where there are any."""
        return tables(self.accounts, self.records)

    def compare(self, other: Report, *more: Report, names: Sequence[str] = ()) -> Comparison:
        """What got better from this report to the other, and to each further one.

        Args:
            other: The report to compare with.
            more: Further ones; each is compared with this one.
            names: What the runs are called, this one first; else each has its report's name.

        Returns:
            Every figure of all runs, how it differs, and whether by more than chance.
        """
        from headway.report.compare import compare

        runs = (self, other, *more)
        found = compare(*(run.accounts for run in runs), names=names or [run.name for run in runs])
        return replace(found, notes=tuple(note for run in runs for note in run._caveats()))

    def _caveats(self) -> list[str]:
        """The notes, and what could not be read, where there is no room to say more of it."""
        found, accounts = list(self.notes), self.accounts
        if accounts.skipped:
            lost = sum(skip.length for _, skip in accounts.skipped)
            places = many(len(accounts.skipped), "place")
            found.append(f"{lost:,} bytes at {places} of {self.name} were skipped: no event")
        if accounts.unfinished:
            found.append(f"the last event of {self.name} is not complete: still being written?")
        if accounts.unread:
            number, why = many(len(accounts.unread), "file"), accounts.unread[0][1]
            found.append(f"{number} of {self.name} not read: {why}")
        return found

    def html(self) -> str:
        """The report as one HTML page.

        Returns:
            The page; it needs no other file and no network.
        """
        from headway.report.page import render

        return render(
            self.accounts,
            self.totals,
            self.losses,
            self.sites,
            self.findings,
            title=self.name,
            generated=time.time(),
            notes=self.notes,
        )

    def text(self, width: int = 80, *, everything: bool = False, by: str | None = None) -> str:
        """The summary of `headway report` as plain text.

        Args:
            width: Columns that a line may take, 40 to 120.
            everything: Whether to show every finding with its evidence.
            by: Adds a table of `groups`.

        Returns:
            The lines, each with its newline.
        """
        from headway.report.terminal import plain as unstyled
        from headway.report.terminal import summary

        return unstyled(summary(self, width=width, everything=everything, by=by))

    def json(self, by: str | None = None) -> dict[str, Any]:
        """The document of `headway report --json`; docs/commands/report.md has its keys.

        Args:
            by: Adds the figures of `groups`.

        Returns:
            A dictionary of JSON types.
        """
        accounts = self.accounts
        few = accounts.jobs.height <= MOST_JOBS
        found = {
            "format": FORMAT,
            "name": self.name,
            "begin": accounts.begin,
            "end": accounts.end,
            "events": accounts.events,
            "files": list(accounts.files),
            "notes": list(self.notes),
            "totals": self.totals.as_dict(),
            "losses": [loss.as_dict() for loss in self.losses],
            "place": accounts.place,
            "sites": [site.as_dict() for site in self.sites],
            "by": by,
            "groups": [group.as_dict() for group in self.groups(by)] if by else None,
            "findings": [finding.as_dict() for finding in self.findings],
            "jobs": rows(accounts.jobs.drop("job")) if few else None,
            "records": rows(self.records.drop("job")) if few else None,
            "skipped": [
                {"file": file, "offset": skip.offset, "bytes": skip.length, "why": skip.why}
                for file, skip in accounts.skipped
            ],
            "unfinished": [
                {"file": file, "offset": rest.offset, "bytes": rest.length}
                for file, rest in accounts.unfinished
            ],
            "unread": [{"file": file, "why": why} for file, why in accounts.unread],
            "others": accounts.others,
        }
        document: dict[str, Any] = plain(found)
        return document
