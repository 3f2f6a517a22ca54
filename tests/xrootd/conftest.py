"""One house for all tests of this folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.xrootd.house import House, missing


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    why = missing()
    if why and os.environ.get("HEADWAY_XROOTD") == "require":
        pytest.fail(why)
    if why:
        pytest.skip(why)
    # not pytest's folder, which is closed to the user that XRootD runs as
    with tempfile.TemporaryDirectory(prefix="headway-xrootd-") as folder:
        made = House(Path(folder))
        try:
            made.open()
            yield made
        finally:
            made.close()
