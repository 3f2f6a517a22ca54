"""The transfer engine: `fetch` one file from its sources, `put` one file to its destination.

Use what this module exports; the modules behind it may change. Messages never show the query or
the user information of a URL: use `shown`. A full disk is a NoSpaceError, a request to stop is
Stopped, and every other failure is a TransferError that says whether another try may help.
"""

from __future__ import annotations

from headway.node.transfer.checksum import prove
from headway.node.transfer.fetch import fetch
from headway.node.transfer.options import Fetched, Snapshot, SourceState
from headway.node.transfer.upload import Sent, put
from headway.node.transfer.urls import shown

__all__ = ["Fetched", "Sent", "Snapshot", "SourceState", "fetch", "prove", "put", "shown"]
