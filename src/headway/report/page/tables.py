"""The page's tables: every job while there is room, and the attempts of those that tell most."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.report.accounts import Accounts
from headway.report.enums import JobOutcome
from headway.report.numbers import count
from headway.report.page.charts import text
from headway.text import many

# "<" alone would do against "</script>" and "<!--"; the rest is for other readers of the file.
_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def json_text(document: Any) -> str:
    """JSON that may stand inside a script element, whatever strings it holds."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


@dataclass
class PackedTable:
    """A table on its way into the page: `about` says how to read `blocks`."""

    rows: int
    about: list[dict[str, Any]] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)

    def number(self, name: str, values: npt.NDArray[Any], *, delta: bool = False) -> None:
        """A column of whole numbers from 0 to 2³²−1; as differences also below 0."""
        whole = np.ascontiguousarray(values).astype(np.int64)
        if delta:
            # In 32 bits, where they may wrap around; small ones of either sign stay small.
            steps = np.diff(whole, prepend=np.int64(0)).astype(np.int32)
            whole = ((steps << 1) ^ (steps >> 31)).astype(np.uint32).astype(np.int64)
        else:
            whole = np.clip(whole, 0, 2**32 - 1)
        top = int(whole.max()) if len(whole) else 0
        width = 1 if top < 1 << 8 else 2 if top < 1 << 16 else 4
        planes = whole.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T
        self.about.append({"name": name, "width": width, "delta": delta})
        self.blocks.append(np.ascontiguousarray(planes).tobytes())

    def words(self, name: str, values: pl.Series, *, limit: int = 400) -> None:
        """A column of texts as numbers and the list of what they stand for; 0 is "not known"."""
        coded = values.cast(pl.String).rename("text").to_frame()
        distinct = coded["text"].drop_nulls().unique(maintain_order=True)
        table = pl.DataFrame(
            {"text": distinct, "code": np.arange(1, len(distinct) + 1, dtype=np.uint32)}
        )
        codes = coded.join(table, on="text", how="left", maintain_order="left")["code"]
        self.number(name, codes.fill_null(0).to_numpy())
        self.about[-1]["words"] = ["", *(text(word, limit) for word in distinct)]

    def enum(self, name: str, values: pl.Series) -> None:
        """A column of an enumeration, as its place in it plus one; 0 is "none"."""
        self.number(name, values.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1)

    def payload(self) -> str:
        """All columns, deflated as one, in base64."""
        squeeze = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        body = b"".join([*(squeeze.compress(block) for block in self.blocks), squeeze.flush()])
        return base64.b64encode(body).decode("ascii")


#: Attempts and their pieces are kept for so many jobs, with so many pieces in all.
DETAILED_JOBS, DETAILED_PIECES = 20_000, 300_000
#: Base64 characters that the table of jobs may take; a file of 15 MB leaves room for the rest.
JOBS_BUDGET = 12_500_000
#: More rows than this are not tried: they would not fit.
MOST_ROWS = 2_000_000
#: Bytes of different reasons, machines or users that one column may bring.
WORDS_BUDGET = 1_000_000
_OTHER = "(one of many; see --csv)"
_FINEST = 100_000  # with more jobs than this, times are whole seconds


@dataclass(frozen=True)
class Tables:
    """What the browser needs: `about` as JSON, the payloads as base64, `note` for people."""

    about: dict[str, Any]
    payloads: dict[str, str]
    note: str


def tables(accounts: Accounts) -> Tables:
    """Jobs, attempts and pieces, packed; the note says what was left out, if anything was."""
    jobs = accounts.jobs.with_row_index("index")
    origin = float(np.floor(accounts.begin if len(jobs) else 0.0))
    tick = _tick(accounts)
    main = _main_causes(accounts)
    jobs = jobs.join(main, on="job", how="left", maintain_order="left")

    kept = jobs if len(jobs) <= MOST_ROWS else _most_telling(jobs, MOST_ROWS)
    packed = _jobs(kept, origin, tick)
    payload = packed.payload()
    while len(payload) > JOBS_BUDGET and len(kept) > 1000:
        room = int(len(kept) * JOBS_BUDGET / len(payload) * 0.95)
        kept = _most_telling(jobs, room)
        packed = _jobs(kept, origin, tick)
        payload = packed.payload()

    detailed = _detailed(kept, accounts)
    where = kept["job"].to_frame().with_row_index("place")
    attempts, pieces, counts = _details(detailed, where, accounts, origin, tick)
    return Tables(
        {
            "origin": origin,
            "tick": tick,
            "jobs": {"rows": packed.rows, "columns": packed.about},
            "attempts": {"rows": attempts.rows, "columns": attempts.about},
            "pieces": {"rows": pieces.rows, "columns": pieces.about},
            "details": {"rows": counts.rows, "columns": counts.about},
            "all": len(jobs),
        },
        {
            "jobs": payload,
            "attempts": attempts.payload(),
            "pieces": pieces.payload(),
            "details": counts.payload(),
        },
        _note(len(jobs), len(kept), len(detailed)),
    )


def _note(every: int, kept: int, detailed: int) -> str:
    """What the file leaves out, and where it is."""
    if detailed == every:
        return ""
    choice = (
        "those that did not succeed and lost most, then those that succeeded and lost most, "
        "then an even sample of the rest"
    )
    parts = []
    if kept < every:
        parts.append(f"The table has {count(kept)} of {many(every, 'job')}: {choice}.")
    parts.append(
        f"Attempts and the timeline are kept for {count(detailed)} of {many(every, 'job')}"
        + (f": {choice}." if kept == every else ", chosen in the same way.")
    )
    parts.append(
        "Totals, losses, sites and charts count every job; --csv and --parquet have them all."
    )
    return " ".join(parts)


def _tick(accounts: Accounts) -> float:
    """The unit of time: a second where the log knows none finer, or where there is no room."""
    begins = accounts.pieces["begin"]
    if len(accounts.jobs) > _FINEST or accounts.end - accounts.begin > 1e7:
        return 1.0
    return 1.0 if bool((begins == begins.floor()).all()) else 0.01


def _main_causes(accounts: Accounts) -> pl.DataFrame:
    """For each job that lost slot time, the cause that cost it most."""
    lost = accounts.pieces.lazy().filter((pl.col("verdict") == "bad") & (pl.col("seconds") > 0))
    return (
        lost.group_by("job", "cause")
        .agg(pl.col("seconds").sum())
        .sort("seconds", "cause", descending=[True, False])
        .group_by("job", maintain_order=True)
        .agg(pl.col("cause").first())
        .collect()
    )


def _most_telling(jobs: pl.DataFrame, room: int) -> pl.DataFrame:
    """Half for jobs that did not succeed, a quarter for costly successes, then an even sample."""
    ranked = jobs.select("index", "outcome", "bad_s").sort("bad_s", descending=True)
    failed = ranked.filter(pl.col("outcome") != JobOutcome.SUCCESS.value)["index"].head(room // 2)
    costly = ranked.filter((pl.col("outcome") == JobOutcome.SUCCESS.value) & (pl.col("bad_s") > 0))[
        "index"
    ].head(room // 4)
    chosen = np.zeros(len(jobs), dtype=bool)
    chosen[failed.to_numpy()] = True
    chosen[costly.to_numpy()] = True
    rest = np.flatnonzero(~chosen)
    left = min(room - int(chosen.sum()), len(rest))
    if left > 0:
        chosen[rest[np.linspace(0, len(rest) - 1, left).astype(np.int64)]] = True
    return jobs.filter(pl.Series(chosen))


def _detailed(kept: pl.DataFrame, accounts: Accounts) -> pl.DataFrame:
    """The jobs whose attempts the file keeps, few enough for the timeline."""
    renumbered = kept.drop("index").with_row_index("index")
    chosen = renumbered
    if len(kept) > DETAILED_JOBS:
        chosen = _most_telling(renumbered, DETAILED_JOBS)
    jobs = _of(accounts.pieces, chosen, accounts)["job"].to_numpy()
    numbers = np.bincount(jobs, minlength=len(accounts.jobs))[chosen["job"].to_numpy()]
    if numbers.sum() > DETAILED_PIECES:
        # A job with thousands of attempts must not take the place of all others.
        order = np.argsort(numbers, kind="stable")
        fits = np.zeros(len(chosen), dtype=bool)
        fits[order[numbers[order].cumsum() <= DETAILED_PIECES]] = True
        chosen = chosen.filter(pl.Series(fits))
    return chosen


def _of(frame: pl.DataFrame, jobs: pl.DataFrame, accounts: Accounts) -> pl.DataFrame:
    """The rows of a table that belong to these jobs; a job's number is its row."""
    if len(jobs) == len(accounts.jobs):
        return frame
    wanted = np.zeros(len(accounts.jobs), dtype=bool)
    wanted[jobs["job"].to_numpy()] = True
    return frame.filter(pl.Series(wanted[frame["job"].to_numpy()]))


def _jobs(jobs: pl.DataFrame, origin: float, tick: float) -> PackedTable:
    packed = PackedTable(len(jobs))

    def length(name: str) -> npt.NDArray[np.int64]:
        return _ticks(jobs[name], tick)

    packed.number("cluster", _whole(jobs["cluster"], 0), delta=True)
    packed.number("proc", _whole(jobs["proc"], 0), delta=True)
    if jobs["log"].n_unique() > 1:
        packed.words("log", _common(jobs["log"]))
    if "row" in jobs.columns:
        packed.words("params", _common(jobs["row"]))
    packed.words("user", _common(jobs["user"]))
    packed.words("site", _common(jobs["site"]))
    packed.enum("outcome", jobs["outcome"])
    packed.enum("cause", jobs["cause"])
    packed.number("begin", _ticks(jobs["begin"] - origin, tick), delta=True)
    # Compute and transfers make up most of slot time: what remains is small, and packs well.
    packed.number("compute", length("compute_s"))
    packed.number("transfer", length("transfer_s"))
    packed.number("slot", length("slot_s") - length("compute_s") - length("transfer_s"), delta=True)
    packed.number("bad", length("bad_s"))
    for name in ("attempts", "stalls", "evictions", "holds"):
        packed.number(name, _whole(jobs[name], 0))
    packed.number("code", _whole(jobs["hold_code"], -1) + 1)
    packed.number("return", _returned(jobs["return_value"]))
    packed.words("reason", _common(jobs["hold_reason"]))
    return packed


def _details(
    detailed: pl.DataFrame, where: pl.DataFrame, accounts: Accounts, origin: float, tick: float
) -> tuple[PackedTable, PackedTable, PackedTable]:
    """Attempts and pieces of the detailed jobs, in the order of the jobs, and how many of each."""
    order = detailed.select("job").join(where, on="job", how="left", maintain_order="left")
    tries = _of(accounts.attempts, detailed, accounts)
    tries = tries.join(order, on="job", how="inner").sort("place", "number")
    parts = _of(accounts.pieces, detailed, accounts)
    parts = parts.join(order, on="job", how="inner").sort("place", "begin", maintain_order=True)
    numbers = tries.select("attempt", "number")
    parts = parts.join(numbers, on="attempt", how="left", maintain_order="left")

    attempts = PackedTable(len(tries))
    attempts.words("site", _common(tries["site"]))
    attempts.words("machine", _common(tries["machine"]))
    attempts.number("begin", _ticks(tries["begin"] - origin, tick), delta=True)
    for name in ("slot", "transfer_in", "compute", "transfer_out", "bad"):
        attempts.number(name, _ticks(tries[f"{name}_s"], tick))
    attempts.words("ending", tries["ending"])
    attempts.enum("cause", tries["cause"])
    attempts.number("code", _whole(tries["code"], -1) + 1)
    attempts.number("subcode", _whole(tries["subcode"], -1) + 1, delta=True)
    attempts.number("return", _returned(tries["return_value"]))
    attempts.words("reason", _common(tries["reason"]))

    pieces = PackedTable(len(parts))
    pieces.number("attempt", _whole(parts["number"], 0))
    pieces.enum("phase", parts["phase"])
    pieces.enum("verdict", parts["verdict"])
    pieces.enum("cause", parts["cause"])
    # Ends are rounded, not lengths, so that pieces still lie end to end.
    begins = _ticks(parts["begin"] - origin, tick)
    pieces.number("seconds", _ticks(parts["begin"] - origin + parts["seconds"], tick) - begins)

    counts = PackedTable(len(order))
    counts.number("row", order["place"].to_numpy(), delta=True)
    for name, frame in (("attempts", tries), ("pieces", parts)):
        number = frame.group_by("place").agg(pl.len())
        joined = order.join(number, on="place", how="left", maintain_order="left")
        counts.number(name, joined["len"].fill_null(0).to_numpy())
    return attempts, pieces, counts


def _common(values: pl.Series) -> pl.Series:
    """The texts that fit the budget, commonest first; the others by one name for them all."""
    values = values.cast(pl.String).rename("text")
    if values.n_unique() * 400 <= WORDS_BUDGET:
        return values
    counts = (
        values.drop_nulls().to_frame().group_by("text").len().sort("len", "text", descending=True)
    )
    sizes = counts["text"].str.len_bytes().clip(0, 400).cum_sum()
    known = counts.filter(sizes <= WORDS_BUDGET)["text"]
    frame = values.to_frame().with_columns(
        pl.when(pl.col("text").is_null() | pl.col("text").is_in(known.implode()))
        .then(pl.col("text"))
        .otherwise(pl.lit(_OTHER))
    )
    return frame["text"]


def _ticks(values: pl.Series, tick: float) -> npt.NDArray[np.int64]:
    numbers = values.cast(pl.Float64).fill_null(0.0).fill_nan(0.0).to_numpy()
    ticks: npt.NDArray[np.int64] = np.clip(np.rint(numbers / tick), 0, 2**32 - 1).astype(np.int64)
    return ticks


def _whole(values: pl.Series, missing: int) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = values.cast(pl.Int64).fill_null(missing).to_numpy()
    return numbers


def _returned(values: pl.Series) -> npt.NDArray[np.int64]:
    """0 for not known, else the value and 1; values that no command returns count as unknown."""
    numbers = _whole(values, -1)
    return np.where((numbers >= 0) & (numbers < 2**31), numbers + 1, 0)
