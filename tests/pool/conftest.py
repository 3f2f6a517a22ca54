"""Fixtures for tests on a real HTCondor pool.

HEADWAY_POOL=require makes a missing pool a failure instead of a skip, HEADWAY_POOL=skip leaves the
pool alone. One process runs all pool tests: give them a run of their own, `-m pool -n 0`. (xdist's
`--dist loadgroup` would do, but silently does nothing on pytest 9.2: pytest-xdist issue 1386.)
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.lab import Authority

from headway.cli.wrap import write_plugin

from .harness import STALL, Pool, PoolUnavailable
from .together import MARK, Together, begun

PROPERTY = "real pool"
session_pool = Pool()
outcomes: Counter[str] = Counter()


@pytest.fixture(scope="session")
def condor_pool() -> Iterator[Pool]:
    """The session's pool: started by the first test that asks for it, gone at the end."""
    mode = os.environ.get("HEADWAY_POOL", "")
    if mode not in ("", "require", "skip"):
        pytest.fail(f"HEADWAY_POOL is require or skip, not {mode}", pytrace=False)
    if mode == "skip":
        pytest.skip("HEADWAY_POOL=skip")
    with only_worker():
        try:
            session_pool.start()
        except PoolUnavailable as reason:
            refuse = pytest.fail if mode == "require" else pytest.skip
            raise refuse.Exception(f"no real pool: {reason}") from None
        try:
            yield session_pool
        finally:
            session_pool.stop()


@pytest.fixture(scope="session")
def transfer_sites(condor_pool: Pool) -> Pool:
    """The pool with sites for jobs that say `WantsSite`.

    The administrators of three have put in Headway's plugin: ADMIN; CUTS, where the starter gives
    a transfer STALL s; WATCHES, where it is shown often enough that the plugin lives. STOCK gives
    STALL s to HTCondor's own plugin.
    """
    plugin = condor_pool.home / "headway-plugin"
    write_plugin(plugin)
    # it looks every second, not every 20 s
    looks = "STARTER_XFER_LAST_ALIVE_DELAY = 1;STARTER_XFER_LAST_ALIVE_INTERVAL = 1"
    cut = f"STARTER_FILE_XFER_STALL_TIMEOUT = {STALL};{looks}"
    ours = f"FILETRANSFER_PLUGINS = {plugin}"
    condor_pool.add_sites(
        {
            # it asks the shadow whether to go on, as a real one does
            "ADMIN": f"{ours};GUIDANCE_MUMS_THE_WORD = False",
            "CUTS": f"{ours};{cut}",
            "WATCHES": f"{ours};{cut};MY_POPEN_KEEPALIVE_INTERVAL = 1",
            "STOCK": cut,
        }
    )
    return condor_pool


@pytest.fixture
def four_sites(condor_pool: Pool) -> Pool:
    """The pool before further sites are started: tests with this fixture come first."""
    return condor_pool


@pytest.fixture(scope="session")
def together(request: pytest.FixtureRequest, transfer_sites: Pool) -> Iterator[Together]:
    """Tests that wait at the same time."""
    Authority.get()  # once, before threads ask for it
    with begun(request.session.items, transfer_sites) as under_way:
        yield under_way


@contextmanager
def only_worker() -> Iterator[None]:
    """Fail where xdist has given pool tests to two workers: each would start a pool."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        yield
        return
    path = Path(f"/tmp/hwpool-{os.getuid()}-{run}.lock")
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = "xdist gave pool tests to two workers; run them with -n 0"
            raise pytest.fail.Exception(reason, pytrace=False) from None
        yield
        path.unlink()


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker of xdist where xdist is not installed."""
    config.addinivalue_line("markers", "xdist_group(name): tests that one worker runs")
    config.addinivalue_line("markers", f"{MARK}(body, seconds): its body runs beside others")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that use the pool; later than here, xdist would not see its mark."""
    if "condor_pool" in getattr(item, "fixturenames", ()):
        item.add_marker("pool")
        item.add_marker(pytest.mark.xdist_group("pool"))
        item.user_properties.append((PROPERTY, ""))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First what needs the four sites alone, then all that waits together, then the rest."""
    places = [place for place, item in enumerate(items) if item.get_closest_marker("pool")]
    ours = sorted((items[place] for place in places), key=_turn)
    for place, item in zip(places, ours, strict=True):
        items[place] = item


def _turn(item: pytest.Item) -> tuple[int, int]:
    if "four_sites" in getattr(item, "fixturenames", ()):
        return 0, 0
    mark = item.get_closest_marker(MARK)
    return (1, -mark.kwargs["seconds"]) if mark else (2, 0)  # in the order in which they begin


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note in the report, which may travel between processes, what the test ran on."""
    if (PROPERTY, "") in item.user_properties and call.when == "call":
        item.user_properties.append((PROPERTY, session_pool.version))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what became of the tests that use the pool."""
    seen = [str(value) for name, value in report.user_properties if name == PROPERTY]
    if not seen:
        return
    if report.skipped and isinstance(report.longrepr, tuple):
        outcomes["{} SKIPPED: " + report.longrepr[2].removeprefix("Skipped: ")] += 1
    elif report.when == "call":
        outcomes[f"HTCondor {seen[-1]}, {{}} ran"] += 1
    elif report.when == "setup" and report.failed:
        outcomes["{} FAILED in set-up"] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say whether the real pool was tried, where nobody can miss it."""
    for line, count in outcomes.items():
        tests = f"{count} test{'s' * (count != 1)}"
        terminalreporter.write_line("real pool: " + line.replace("{}", tests))
    if "HEADWAY_POOL_KEEP" in os.environ and session_pool.home.name:
        terminalreporter.write_line(f"real pool: logs are in {session_pool.home}")
