"""A clock that is off, or that is set while a transfer runs: nothing waits for it."""

from __future__ import annotations

import time
from email.utils import formatdate
from pathlib import Path

import pytest
from tests.lab import Authority, Director, Headers, Made, Rate, Server, Silent, Status

from headway.node.errors import TransferError
from headway.node.transfer import fetch
from headway.node.transfer.heads import retry_after

from .federation import clean, jwt

pytestmark = pytest.mark.usefixtures(clean.__name__, "quick")
__all__ = ["clean"]

HOURS = 5 * 3600.0
CONTENT = Made(4 << 20, seed=5)
ODD = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


class Clock:
    """The wall clock of this process, and how far it is off."""

    def __init__(self) -> None:
        self.true = time.time
        self.off = 0.0

    def __call__(self) -> float:
        return self.true() + self.off


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "time", made)
    return made


@pytest.mark.parametrize("step", [HOURS, -HOURS])
@pytest.mark.parametrize("beside", [True, False], ids=["beside a healthy source", "alone"])
def test_a_step_while_bytes_flow(step: float, beside: bool, clock: Clock, tmp_path: Path) -> None:
    """It neither looks like a stall nor hides one, and patience is neither over nor renewed."""
    steps = []

    def set_clock(done: int, total: int | None) -> None:
        clock.off = step if not clock.off else 0.0
        steps.append(clock.off)

    pace = Rate(3 << 20, scope="server")
    begin = time.monotonic()
    with (
        Server({"/a": CONTENT}, [pace, Silent(2 << 20).connections(1)]) as sick,
        Server({"/a": CONTENT}, [pace]) as healthy,
    ):
        urls = [sick.url("/a"), healthy.url("/a")][: 2 if beside else 1]
        fetch(urls, str(tmp_path / "a"), patience=20, progress=set_clock)
        assert sick.sent + healthy.sent < 1.05 * CONTENT.size + (1 << 20)
    assert CONTENT.fault(tmp_path / "a") is None
    assert len(steps) >= 2
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("step", [HOURS, -HOURS])
def test_patience_is_not_a_matter_of_the_clock(step: float, clock: Clock, tmp_path: Path) -> None:
    def set_clock(done: int, total: int | None) -> None:
        clock.off += step

    begin = time.monotonic()
    with (
        Server({"/a": CONTENT}, [Silent(1 << 20, scope="server")]) as server,
        pytest.raises(TransferError) as caught,
    ):
        fetch([server.url("/a")], str(tmp_path / "a"), patience=2, progress=set_clock)
    assert 2 <= time.monotonic() - begin < 12
    assert "nothing came for 2 s" in caught.value.message


@pytest.mark.parametrize("step", [HOURS, -HOURS])
def test_a_date_to_wait_for_is_the_servers(step: float, clock: Clock, tmp_path: Path) -> None:
    """A server that says when to come back says what time it has."""
    clock.off = step
    now = clock.true()
    busy = Status(
        503, retry_after=formatdate(now + 1, usegmt=True), headers=(("Date", formatdate(now)),)
    )
    begin = time.monotonic()
    with Server({"/a": CONTENT}, [busy.once()]) as server:
        fetch([server.url("/a")], str(tmp_path / "a"), patience=10)
    assert CONTENT.fault(tmp_path / "a") is None
    assert time.monotonic() - begin < 4


@pytest.mark.parametrize("step", [HOURS, -HOURS])
def test_a_step_between_two_processes(step: float, clock: Clock, tmp_path: Path) -> None:
    """A journal speaks of bytes and of the object, never of the time."""
    half = [Silent(2 << 20, scope="server")]
    with Server({"/a": CONTENT}, half) as server:
        with pytest.raises(TransferError):
            fetch([server.url("/a")], str(tmp_path / "a"), patience=0.5, keep=True)
        clock.off = step
        server.faults, before = [], server.sent
        fetch([server.url("/a")], str(tmp_path / "a"))
        assert server.sent - before == 2 << 20
    assert CONTENT.fault(tmp_path / "a") is None


def test_a_token_expires_by_the_directors_clock(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = Authority.get().good
    monkeypatch.setenv("BEARER_TOKEN", jwt("storage.read:/"))
    date = Headers((("Date", formatdate(clock.true(), usegmt=True)),))
    with (
        Server({"/lab/a": CONTENT}, tls=tls) as cache,
        Director("/lab", [cache], require_token=True, faults=[date]) as it,
    ):
        clock.off = HOURS  # by this one the token would have expired
        fetch([it.pelican_url("/a")], str(tmp_path / "a"))
    assert CONTENT.fault(tmp_path / "a") is None


def test_retry_after(clock: Clock) -> None:
    date = formatdate(ODD, usegmt=True)
    assert retry_after("120") == 120
    assert retry_after("Sun, 06 Nov 1994 08:49:47 GMT", date) == 10
    assert retry_after("Sun, 06 Nov 1994 08:40:00 GMT", date) == 0
    for text in ("", "soon", "-5", "9" * 50, "Sun, 99 Nov 1994 08:49:37 GMT"):
        assert retry_after(text, date) == 0
    clock.off = ODD - clock.true()
    assert 9 < retry_after("Sun, 06 Nov 1994 08:49:47 GMT") <= 10


def test_no_interval_is_made_of_the_wall_clock() -> None:
    """Only dates of others, and those written for people, may be compared with it."""
    from headway.node import transfer

    folder = Path(transfer.__file__).parent
    users = {path.name for path in folder.glob("*.py") if "time.time()" in path.read_text()}
    assert users == {"heads.py", "tokens.py"}
