"""Redirects: where an answer sends us, if we may go there."""

from __future__ import annotations

from urllib.parse import urljoin

from headway.node.transfer.source import Fault
from headway.node.transfer.urls import split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.exchange import Reply

MOST = 5
_CODES = (301, 302, 303, 307, 308)


def onward(reply: Reply, url: str) -> str:
    """The next URL; Fault when the answer is no redirect, or leads away from the network or TLS."""
    if reply.status not in _CODES:
        from headway.node.transfer.exchange import refusal

        raise refusal(reply)
    return followed(url, reply.get("Location"))


def followed(url: str, location: str) -> str:
    """Where a redirect leads; Fault when that is away from the network or from TLS."""
    target = joined(url, location)
    scheme = split(target).scheme
    if scheme == "file":
        words = "it redirects to a file of this node, which is refused"
        raise Fault(words, retryable=False, phase="first byte")
    if split(url).scheme == "https" and scheme != "https":
        words = "it redirects from https to http, which is refused"
        raise Fault(words, retryable=False, phase="first byte")
    return target


def joined(url: str, location: str) -> str:
    """The URL that a Location means, seen from another; Fault when it is none."""
    try:
        if not location:
            raise ValueError("no address")
        target = urljoin(url, location)
        split(target)
    except ValueError as error:
        words = f"it redirects to nowhere: {error}"
        raise Fault(words, retryable=False, phase="first byte") from None
    return target
