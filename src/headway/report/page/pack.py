"""Columns packed small: whole numbers as byte planes, deflated, in base64; texts by number."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.report.page.markup import text

# "<" alone would do against "</script>" and "<!--"; the rest is for other readers of the file.
_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def json_text(document: Any) -> str:
    """JSON that may stand inside a script element, whatever strings it holds."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


@dataclass
class Packed:
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
