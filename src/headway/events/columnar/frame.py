"""Events as a data frame, for those who want to ask their own questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headway.events.columnar.columns import NONE, Columns, Ints
from headway.events.kind import Kind

if TYPE_CHECKING:
    import polars as pl


def frame(columns: Columns) -> pl.DataFrame:
    """A row for each event; what an event does not have is null, `file` its file's name."""
    import polars as pl

    strings = pl.Series(columns.strings, dtype=pl.String)
    kinds = pl.Series([kind.name.lower() for kind in Kind], dtype=pl.String)
    files = pl.Series(columns.files, dtype=pl.String)

    def number(values: Ints) -> pl.Series:
        return pl.Series(values).replace(NONE, None)

    def text(places: Ints) -> pl.Series:
        # The last place, -1, is for no text.
        return strings.extend_constant(None, 1).gather(
            np.where(places < 0, len(columns.strings), places)
        )

    return pl.DataFrame(
        {
            "number": columns.number,
            "cluster": columns.cluster,
            "proc": columns.proc,
            "subproc": columns.subproc,
            "time": pl.Series(columns.time).cast(pl.Datetime("us", "UTC")),
            "kind": kinds.gather(columns.kind),
            "code": number(columns.code),
            "subcode": number(columns.subcode),
            "return_value": number(columns.value),
            "signal": number(columns.signal),
            "site": text(columns.site),
            "slot": text(columns.slot),
            "host": text(columns.host),
            "user": text(columns.user),
            "text": text(columns.text),
            "file": files.gather(columns.file),
            "offset": columns.offset,
        }
    )
