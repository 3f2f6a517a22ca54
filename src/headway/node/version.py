"""The version of the node half, as it stands in records and in what it says to servers."""

VERSION = "0.1.0"
