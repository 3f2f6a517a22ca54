"""Which sources are put together, when their versions may differ where nobody looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab import (
    NO_DIGESTS,
    Authority,
    Content,
    Digests,
    Director,
    Made,
    Object,
    Patched,
    Rate,
    Server,
    Silent,
)

from headway.node.errors import TransferError
from headway.node.transfer import fetch
from headway.node.transfer.source import Identity

from .federation import clean

pytestmark = pytest.mark.usefixtures(clean.__name__, "quick")
__all__ = ["clean"]

MB = 1 << 20
SIZE = 24 * MB
OLD = Made(SIZE, seed=31)
NEW = Patched(Patched(OLD, 3 * MB, 4 * MB), 13 * MB, 18 * MB)
MONDAY, TUESDAY = "Mon, 06 Jan 2025 00:00:00 GMT", "Tue, 07 Jan 2025 00:00:00 GMT"
PACE = [Rate(16 * MB)]


def of_one_version(path: Path) -> bool:
    return OLD.fault(path) is None or NEW.fault(path) is None


@pytest.mark.parametrize(
    ("etags", "dates"),
    [
        (('"1"', '"2"'), (MONDAY, TUESDAY)),
        (('"1"', '"2"'), (None, TUESDAY)),
        (('"1"', '"2"'), (None, None)),
        ((None, '"2"'), (MONDAY, TUESDAY)),
        ((None, None), (MONDAY, TUESDAY)),
    ],
)
def test_mirrors_whose_validators_differ_are_not_mixed(
    etags: tuple[str | None, str | None], dates: tuple[str | None, str | None], tmp_path: Path
) -> None:
    path = tmp_path / "o"
    one, other = (Object(c, e, d) for c, e, d in zip((OLD, NEW), etags, dates, strict=True))
    with Server({"/a": one}, PACE) as first, Server({"/a": other}, PACE) as second:
        got = fetch([first.url("/a"), second.url("/a")], str(path))
    assert of_one_version(path)
    refused = [s for s in got.snapshot.sources if s.state == "refused"]
    assert len(refused) == 1 and "another version" in refused[0].words


def test_what_one_mirror_gave_is_not_completed_by_one_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "o"
    half = [Silent(after=10 * MB, scope="server")]
    old = Object(OLD, modified=MONDAY)
    with Server({"/a": old}, half) as server, pytest.raises(TransferError):
        fetch([server.url("/a")], str(path), patience=0.5, keep=True)
    with Server({"/a": Object(NEW, modified=TUESDAY)}) as server:
        fetch([server.url("/a")], str(path))
    assert NEW.fault(path) is None


def test_a_mirror_that_may_have_another_version_is_a_reserve(tmp_path: Path) -> None:
    path = tmp_path / "o"
    dies = [Silent(after=SIZE // 2, scope="server")]
    with (
        Server({"/a": Object(OLD, modified=MONDAY)}, dies) as first,
        Server({"/a": Object(NEW, modified=TUESDAY)}) as second,
    ):
        fetch([first.url("/a"), second.url("/a")], str(path), patience=10)
    assert NEW.fault(path) is None


@pytest.mark.parametrize(
    ("etags", "dates", "more"),
    [
        (('"1"', '"1"'), (MONDAY, TUESDAY), ""),
        (('"1"', '"2"'), (MONDAY, MONDAY), ""),
        ((None, '"2"'), (MONDAY, MONDAY), ""),
        ((None, None), (None, None), ""),
        (('"1"', '"2"'), (MONDAY, TUESDAY), "checksum"),
        (('"1"', '"2"'), (MONDAY, TUESDAY), "caches"),
    ],
)
def test_sources_of_one_version_are_put_together(
    etags: tuple[str | None, str | None],
    dates: tuple[str | None, str | None],
    more: str,
    tmp_path: Path,
) -> None:
    """By what they say, by a proof to come, or because one director has named them."""
    path = tmp_path / "o"
    tls = Authority.get().good
    one, other = (Object(OLD, e, d) for e, d in zip(etags, dates, strict=True))
    with (
        Server({"/lab/a": one}, PACE, tls=tls) as first,
        Server({"/lab/a": other}, PACE, tls=tls) as second,
        Director("/lab", [first, second]) as director,
    ):
        urls = [each.url("/lab/a") for each in (first, second)]
        checksum = OLD.checksum() if more == "checksum" else None
        fetch(
            [director.pelican_url("/a")] if more == "caches" else urls, str(path), checksum=checksum
        )
        assert min(first.sent, second.sent) > 2 * MB
    assert OLD.fault(path) is None


def test_the_caches_of_a_director_go_on_with_each_others_bytes(tmp_path: Path) -> None:
    path = tmp_path / "o"
    tls = Authority.get().good
    half = [Silent(after=SIZE // 2, scope="server")]
    with (
        Server({"/lab/a": Object(OLD, '"1"', MONDAY)}, half, tls=tls) as first,
        Server({"/lab/a": Object(OLD, '"2"', TUESDAY)}, tls=tls) as second,
        Director("/lab", [first]) as director,
    ):
        url = director.pelican_url("/a")
        with pytest.raises(TransferError):
            fetch([url], str(path), patience=0.5, keep=True)
        director.caches = [second]
        fetch([url], str(path))
        assert second.sent < SIZE // 2 + 2 * MB
    assert OLD.fault(path) is None


@pytest.mark.parametrize("same", [True, False])
def test_a_servers_own_digest_binds_or_parts_them(same: bool, tmp_path: Path) -> None:
    """What a server promises of the whole is held against the whole."""
    path = tmp_path / "o"
    other: Content = OLD if same else NEW
    with (
        Server({"/a": Object(OLD, '"1"', MONDAY)}, PACE, digests=Digests()) as first,
        Server({"/a": Object(other, '"2"', TUESDAY)}, PACE, digests=NO_DIGESTS) as second,
    ):
        fetch([first.url("/a"), second.url("/a")], str(path))
    assert of_one_version(path)


def test_what_validators_say() -> None:
    about = Identity(9, '"1"', MONDAY)
    assert about.disputes(Identity(9, '"2"', TUESDAY))
    assert about.disputes(Identity(9, '"2"'))
    assert about.disputes(Identity(9, "", TUESDAY))
    assert not about.disputes(Identity(9, '"1"', TUESDAY))
    assert not about.disputes(Identity(9, '"2"', MONDAY))
    assert not about.disputes(Identity(9))
