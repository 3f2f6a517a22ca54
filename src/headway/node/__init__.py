"""The version of the node half, as it stands in records and in what it says to servers."""

from __future__ import annotations

VERSION = "0.1.0"
