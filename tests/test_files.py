"""Programs without a framework read what is in a tar file, whole or arriving."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.stream.arriving import Arriving
from tests.node.transfer.made_tars import make_nested

import headway.files
from headway.node.transfer.manifest import make_manifest

CLASSES = {f"n{c}": {f"{i}.txt": f"{c}.{i}".encode() * 2000 for i in range(30)} for c in range(5)}
EXPECTED = {
    (f"n{c}/{i}.txt", f"n{c}", CLASSES[f"n{c}"][f"{i}.txt"]) for c in range(5) for i in range(30)
}
CONTENT = make_nested(CLASSES)
CHUNK = 1 << 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "train.tar").write_bytes(CONTENT)
    return tmp_path / "train.tar"


def published(path: Path) -> None:
    Path(f"{path}.headway").write_bytes(make_manifest(str(path), chunk_size=CHUNK))


def test_all_of_it_in_any_order(path: Path) -> None:
    plain = list(headway.files.stream(str(path)))
    assert [name for name, _, _ in plain] == [f"n{c}/{i}.txt" for c in range(5) for i in range(30)]
    shuffled = list(headway.files.stream(str(path), seed=1))
    assert set(shuffled) == set(plain) == EXPECTED
    assert shuffled != plain
    assert shuffled == list(headway.files.stream(str(path), seed=1))
    assert shuffled != list(headway.files.stream(str(path), seed=1, epoch=1))


@pytest.mark.parametrize("seed", [None, 3])
def test_going_on(path: Path, seed: int | None) -> None:
    published(path)
    whole = list(headway.files.stream(str(path), seed=seed))
    files = headway.files.stream(str(path), seed=seed)
    had = [next(files) for _ in range(37)]
    assert files.position == 37
    rest = headway.files.stream(str(path), seed=seed, begin=files.position)
    assert had + list(rest) == whole


def test_ranks_share_it(path: Path) -> None:
    published(path)
    shares = [list(headway.files.stream(str(path), seed=3, rank=r, ranks=4)) for r in range(4)]
    assert [len(share) for share in shares] == [38, 38, 37, 37]
    assert {each for share in shares for each in share} == EXPECTED
    with pytest.raises(headway.files.DataError, match="there is no rank"):
        headway.files.stream(str(path), rank=4, ranks=4)


def test_by_name_and_number(path: Path) -> None:
    files = headway.files.Files(str(path), only="n3/*")
    assert len(files) == 30 and files.classes == ("n3",)
    assert files[2] == files["n3/2.txt"] == ("n3/2.txt", "n3", b"3.2" * 2000)
    assert files[-1][0] == "n3/29.txt"
    assert list(files.names())[:2] == ["n3/0.txt", "n3/1.txt"]
    with pytest.raises(KeyError):
        files["n2/2.txt"]
    with pytest.raises(IndexError):
        files[30]


def test_records(path: Path) -> None:
    whole = path.with_name("x.bin")
    whole.write_bytes(bytes(range(100)))
    assert list(headway.files.stream(str(whole), record=50)) == [
        ("x.bin[0]", None, bytes(range(50))),
        ("x.bin[1]", None, bytes(range(50, 100))),
    ]


def test_while_it_arrives(path: Path) -> None:
    """In the order that the reader has told, so that it waits no longer than it must."""
    published(path)
    whole = list(headway.files.stream(str(path), seed=5))
    path.unlink()
    with Arriving(path, CONTENT, CHUNK, pause=0.01, hold=9, strict=True) as arriving:
        files = headway.files.stream(str(path), seed=5)
        first = next(files)
        assert not arriving.whole()
        arriving.release()
        assert [first, *files] == whole
        assert files.waited > 0


@pytest.mark.parametrize("seed", [None, 5])
def test_without_a_manifest_as_it_arrives(path: Path, seed: int | None) -> None:
    path.unlink()
    with Arriving(path, CONTENT, CHUNK, hold=12) as arriving:
        files = headway.files.stream(str(path), seed=seed, buffer=20)
        other = headway.files.stream(str(path), seed=seed, buffer=20, begin=60)
        had = [next(files)]
        assert not arriving.whole()
        arriving.release()
        had += files
        assert set(had) == EXPECTED and len(had) == 150
        assert (had == sorted(had, key=lambda f: CONTENT.find(f[2]))) == (seed is None)
        assert list(other) == had[60:]


def test_a_failure_is_told_in_the_fetchers_words(path: Path) -> None:
    from headway.errors import TransferError

    published(path)
    path.unlink()
    arriving = Arriving(path, CONTENT, CHUNK)
    arriving.bring(0)
    arriving.arrival.fail("no cache has it", retryable=True)
    with pytest.raises(TransferError, match="no cache has it"):
        list(headway.files.stream(str(path), seed=1))
    arriving.arrival.close()
