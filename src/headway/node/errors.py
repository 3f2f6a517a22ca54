"""The root of the error tree; `headway.errors` draws the rest of it."""

from __future__ import annotations


class HeadwayError(Exception):
    """Says what happened, to what, and in `remedy` what to do next."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        #: The same in one short line, for a hold's reason; empty: the message is short enough.
        self.brief = ""

    def __str__(self) -> str:
        return f"{self.message}\n  {self.remedy}" if self.remedy else self.message


class NodeError(HeadwayError):
    """The node is not fit for the job."""


class TransferError(HeadwayError):
    """An input or output could not be moved; `retryable` says whether another try may help."""

    def __init__(self, message: str, *, retryable: bool, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.retryable = retryable


class ManifestError(TransferError):
    """A manifest is damaged, forged, of another object or from a newer Headway."""

    def __init__(self, message: str, *, retryable: bool = False, remedy: str = "") -> None:
        super().__init__(message, retryable=retryable, remedy=remedy)


class Stopped(HeadwayError):
    """The pool wants the attempt to end: an eviction, or the pool itself is gone."""
