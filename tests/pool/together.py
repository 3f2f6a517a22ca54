"""Tests that wait for jobs most of their time wait together: their bodies run in threads.

class Promises:
    def it_runs(self, pool: Pool) -> None: ...

@pytest.fixture(scope="module")
def together(request: pytest.FixtureRequest, condor_pool: Pool) -> Iterator[Together]:
    with begun(request, "test_kept", lambda name: partial(getattr(Promises(), name), condor_pool)):
        ...

@pytest.mark.parametrize("promise", promises(Promises))
def test_kept(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

HANDS = 4  # two cores: more of them would only make each other late


class Together:
    """Bodies under way, by the id of the test that waits for each."""

    def __init__(self, under_way: dict[str, Future[None]]) -> None:
        self._under_way = under_way

    def wait(self, request: pytest.FixtureRequest) -> None:
        """Until the body of this test has ended; what it raised is raised here."""
        self._under_way[request.node.nodeid].result()


@contextmanager
def begun(
    request: pytest.FixtureRequest, test: str, body: Callable[[str], Callable[[], None]]
) -> Iterator[Together]:
    """Begin the bodies of those items of the module's test that this session runs."""
    with ThreadPoolExecutor(HANDS) as hands:
        under_way = {}
        for item in request.session.items:
            if not isinstance(item, pytest.Function) or item.module is not request.module:
                continue
            if item.originalname == test:
                promise = item.callspec.params["promise"]
                under_way[item.nodeid] = hands.submit(body(str(promise)))
        try:
            yield Together(under_way)
        finally:
            hands.shutdown(cancel_futures=True)


def promises(of: type) -> list[str]:
    """The names of a class's public methods, in their order."""
    return [name for name in vars(of) if not name.startswith("_")]
