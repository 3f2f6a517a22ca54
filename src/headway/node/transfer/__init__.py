"""The transfer engine: `fetch` one file from its sources, `put` one file to its destination.

The face is this module; what lies behind it may change. Messages never show a query or user
information of a URL: use `shown`. A full disk is a NoSpaceError, a wish to stop is Stopped, every
other failure is a TransferError that says whether another try may help.
"""

from __future__ import annotations

from headway.node.transfer.checksum import prove
from headway.node.transfer.fetch import fetch
from headway.node.transfer.options import Fetched, Snapshot, SourceState
from headway.node.transfer.upload import Sent, put
from headway.node.transfer.urls import shown

__all__ = ["Fetched", "Sent", "Snapshot", "SourceState", "fetch", "prove", "put", "shown"]
