"""What many reasons mean: each kind of them is looked up once in the table of holds."""

from __future__ import annotations

import polars as pl

from headway.holds import classify

#: A reason's kind shows in its beginning; one line of a hostile log may be megabytes.
LONGEST = 600

# In this order: what stays readable first, then what differs from job to job.
_MASKS = (
    # Nor is one error of the system another one.
    (r"(?i)\b(errno)[ :=]+(\d{1,3})\b", "${1}_$2"),
    # A 404 is another thing than a 503: the digits of an HTTP status stay.
    (r"(?i)\b(returned|status|http/\S+|code|error)([ :=]+)([45]\d\d)\b", "$1 HTTP_$3"),
    (
        r"(?i)\b([45]\d\d)\b(:? (?:page|not|no|forbidden|bad|internal|service|gateway|too)\b)",
        "HTTP_$1$2",
    ),
    (r"<[0-9a-fA-F.:\[\]]+(?::\d+)?[^>\s]*>", "HOST"),
    (r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s,;|)'\"]*", "URL"),
    (r"\b[\w.-]+@[\w.@-]+", "SLOT"),
    (r"(^|[\s'\"(=:])/[^\s,;|)'\"]+", "${1}PATH"),
    (r"\b(?:[A-Za-z0-9][\w-]*\.){2,}[A-Za-z]{2,}(?::\d+)?\b", "HOST"),
    (r"\b[0-9a-fA-F]{8,}\b", "N"),
    (r"\b\d[\w.:+-]*", "N"),
)


def masked(reason: pl.Expr) -> pl.Expr:
    """The reason without what differs from job to job: numbers, hosts, paths, ids."""
    text = reason.fill_null("").str.slice(0, LONGEST)
    for pattern, put in _MASKS:
        text = text.str.replace_all(pattern, put)
    return text.str.replace_all(r"\s+", " ").str.strip_chars(" |.")


def with_template(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `template` to a frame with a `reason`; each different reason is looked at once.

    Args:
        frame: Rows with a reason each, or null.

    Returns:
        The rows in their order; a reason that was null is empty.
    """
    frame = frame.with_columns(pl.col("reason").cast(pl.String).fill_null(""))
    kinds, template = frame.select("reason").unique(), masked(pl.col("reason"))
    half = kinds.height // 2
    # Two halves, which polars works on at the same time.
    parts = (each.lazy().with_columns(template=template) for each in (kinds[:half], kinds[half:]))
    kinds = pl.concat(pl.collect_all(list(parts)))
    return frame.join(kinds, on="reason", how="left", maintain_order="left")


_KIND = ["code", "subcode", "template"]


def with_cause(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `template` and `cause`, the id of the table's entry, to a frame with codes and reasons.

    Args:
        frame: Rows with `code`, `subcode` and `reason`.

    Returns:
        The rows in their order. One reason of each kind is classified, however many rows there are.
    """
    frame = with_template(frame)
    # The same one, in whatever order they come.
    kinds = frame.group_by(_KIND, maintain_order=True).agg(pl.col("reason").min())
    causes = [
        classify(code, subcode, reason).id
        for code, subcode, reason in kinds.select("code", "subcode", "reason").iter_rows()
    ]
    kinds = kinds.select(_KIND).with_columns(cause=pl.Series(causes, dtype=pl.String))
    return frame.join(kinds, on=_KIND, how="left", nulls_equal=True, maintain_order="left")
