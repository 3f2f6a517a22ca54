"""Tests that wait for jobs most of their time wait together: their bodies run in threads.

class Promises:
    def it_runs(self, pool: Pool) -> None: ...

@at_the_same_time(lambda pool, promise: getattr(Promises(), promise)(pool))
@pytest.mark.parametrize("promise", promises(Promises))
def test_kept(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)

All of the session's begin when the first of them is asked for; conftest.py puts these tests, the
longest first, before those that kill daemons, or fill the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from .harness import Pool

HANDS = 6  # two cores: more of them would only make each other late
MARK = "at_the_same_time"
Body = Callable[[Pool, str], None]


class Together:
    """Bodies under way, by the id of the test that waits for each."""

    def __init__(self, under_way: dict[str, Future[None]]) -> None:
        self._under_way = under_way

    def wait(self, request: pytest.FixtureRequest) -> None:
        """Until the body of this test has ended; what it raised is raised here."""
        self._under_way[request.node.nodeid].result()


def at_the_same_time(body: Body, *, seconds: int = 5) -> pytest.MarkDecorator:
    """Make `body` the body of a test, which gets the pool and the parameter `promise`, if any.

    `seconds` is roughly what it takes: the longest begin first, so that none is waited for alone.
    """
    marked = getattr(pytest.mark, MARK)
    return marked.with_args(body, seconds=seconds)  # type: ignore[no-any-return]


def beside_others(seconds: int = 5) -> Callable[[Callable[[Pool], None]], Callable[..., None]]:
    """Make a test of a body that takes nothing but the pool."""

    def make(body: Callable[[Pool], None]) -> Callable[..., None]:
        @at_the_same_time(lambda pool, _: body(pool), seconds=seconds)
        def test(together: Together, request: pytest.FixtureRequest) -> None:
            together.wait(request)

        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(test, name, getattr(body, name))
        return test

    return make


@contextmanager
def begun(items: list[pytest.Item], pool: Pool) -> Iterator[Together]:
    """Begin the bodies of those items that have one, in their order."""
    bodies = {item: mark for item in items if (mark := item.get_closest_marker(MARK)) is not None}
    with ThreadPoolExecutor(HANDS) as hands:
        under_way = {
            item.nodeid: hands.submit(partial(mark.args[0], pool, _promise(item)))
            for item, mark in bodies.items()
        }
        try:
            yield Together(under_way)
        finally:
            hands.shutdown(cancel_futures=True)


def _promise(item: Any) -> str:
    return str(item.callspec.params["promise"]) if hasattr(item, "callspec") else ""


def promises(of: type) -> list[str]:
    """The names of a class's public methods, in their order."""
    return [name for name in vars(of) if not name.startswith("_")]
