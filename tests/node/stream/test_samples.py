"""The samples are those that unpacking would give, however the index comes about."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import tracemalloc
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from tests.node.conftest import wait
from tests.node.stream.arriving import Arriving
from tests.node.transfer.made_tars import make_nested, make_tar

from headway.node.stream.samples import Choice, DataError, Samples, samples_of
from headway.node.stream.source import SampleSource
from headway.node.transfer.manifest import publish
from headway.node.transfer.tar import Builder, Index

NESTED = {
    "n02": {"a.JPEG": b"first", "b.jpeg": b"second" * 200, "notes.txt": b"hm", "empty.jpeg": b""},
    "n01": {"a.JPEG": b"third" * 999, "c.jpg": b"4"},
}
AS_FILES = {
    f"{folder}/{name}": data
    for folder, files in NESTED.items()
    for name, data in files.items()
    if data
}


def opened(
    tmp_path: Path, content: bytes, *, manifest: bool = True, **choice: object
) -> SampleSource:
    path = tmp_path / "t.tar"
    path.write_bytes(content)
    if manifest:
        publish(str(path))
    return SampleSource(str(path), Choice(**choice))  # type: ignore[arg-type]


def contents(source: SampleSource) -> dict[str, bytes]:
    samples = source.samples
    names = [samples.name(number) for number in range(len(samples))]
    return dict(zip(names, source.read(range(len(samples))), strict=True))


@pytest.mark.parametrize("manifest", [True, False])
def test_a_nested_tar(tmp_path: Path, manifest: bool) -> None:
    source = opened(tmp_path, make_nested(NESTED), manifest=manifest)
    assert contents(source) == AS_FILES
    samples = source.samples
    assert samples.classes == ("n01", "n02")  # by name, not as they come
    assert list(samples.labels) == [1, 1, 1, 0, 0]
    assert [samples.class_name(number) for number in (0, 4)] == ["n02", "n01"]
    assert samples.find("n01/c.jpg") == 4
    with pytest.raises(KeyError):
        samples.find("c.jpg")


@pytest.mark.parametrize("manifest", [True, False])
def test_a_plain_tar_has_a_class_for_each_folder(tmp_path: Path, manifest: bool) -> None:
    content = make_tar({f"./x/{n}": d for n, d in AS_FILES.items()})
    source = opened(tmp_path, content, manifest=manifest)
    assert contents(source) == {f"x/{name}": data for name, data in AS_FILES.items()}
    assert list(source.samples.labels) == [1, 1, 1, 0, 0]


def test_links_and_empty_members_are_no_samples(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind in (("a", tarfile.SYMTYPE), ("b", tarfile.LNKTYPE), ("c", tarfile.DIRTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "../../etc/passwd"
            archive.addfile(entry)
        entry = tarfile.TarInfo("d")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"yes"))
        archive.addfile(tarfile.TarInfo("e"))
    assert contents(opened(tmp_path, made.getvalue())) == {"d": b"yes"}


def test_only_some(tmp_path: Path) -> None:
    source = opened(tmp_path, make_nested(NESTED), only=("*.jpeg", "*.jpg"))
    assert set(contents(source)) == set(AS_FILES) - {"n02/notes.txt"}
    with pytest.raises(
        DataError, match=r"no samples: none of its 6 members .* that matches \*\.png"
    ):
        opened(tmp_path, make_nested(NESTED), only="*.png")


def test_the_classes_are_those_of_the_samples(tmp_path: Path) -> None:
    content = make_tar({"data/README": b"read me", "data/n1/a.jpg": b"1", "data/n0/b.jpg": b"2"})
    assert opened(tmp_path, content, only="*.jpg").samples.classes == ("n0", "n1")


def test_classes_can_be_told(tmp_path: Path) -> None:
    source = opened(tmp_path, make_nested(NESTED), classes=["n02", "other", "n01"])
    assert list(source.samples.labels) == [0, 0, 0, 2, 2]
    with pytest.raises(DataError, match="not in `classes`: n02"):
        opened(tmp_path, make_nested(NESTED), classes=["n01"])


def test_a_sample_without_a_class_among_others(tmp_path: Path) -> None:
    content = make_tar({"README": b"read me", "n1/a.jpg": b"1", "n0/b.jpg": b"2"})
    assert len(opened(tmp_path, content).samples) == 3
    with pytest.raises(DataError, match=r"README in .* has no class"):
        opened(tmp_path, content, labelled=True)
    assert len(opened(tmp_path, make_tar({"a": b"1"}), labelled=True).samples) == 1


RECORDS = {"cifar/data_batch_1.bin": bytes(range(30)), "cifar/data_batch_2.bin": b"x" * 20}


@pytest.mark.parametrize("manifest", [True, False])
def test_records(tmp_path: Path, manifest: bool) -> None:
    content = make_tar({"cifar/readme.html": b"<html>", **RECORDS})
    source = opened(tmp_path, content, manifest=manifest, only="*data_batch*", record=10)
    samples = source.samples
    assert len(samples) == 5
    assert source.read([4, 0, 1]) == [b"x" * 10, bytes(range(10)), bytes(range(10, 20))]
    assert samples.name(4) == "cifar/data_batch_2.bin[1]"
    assert samples.find("cifar/data_batch_1.bin[2]") == 2
    for name in ("cifar/data_batch_1.bin[3]", "cifar/data_batch_1.bin", "x[1]", "[", "]"):
        with pytest.raises(KeyError):
            samples.find(name)
    with pytest.raises(DataError, match=r"readme\.html has 6 bytes, which is not a multiple"):
        assert opened(tmp_path, content, record=10).samples


@pytest.mark.parametrize("manifest", [True, False])
def test_records_without_a_tar(tmp_path: Path, manifest: bool) -> None:
    source = opened(tmp_path, bytes(range(40)), manifest=manifest, record=10)
    assert source.read([3]) == [bytes(range(30, 40))]
    assert source.samples.name(3) == "t.tar[3]"


@pytest.mark.parametrize("record", [None, 10])
@pytest.mark.parametrize("manifest", [True, False])
def test_a_compressed_tar_is_refused_kindly(
    tmp_path: Path, record: int | None, manifest: bool
) -> None:
    with pytest.raises(DataError, match="compressed with gzip") as refused:
        assert opened(
            tmp_path, gzip.compress(make_tar(RECORDS)), manifest=manifest, record=record
        ).samples
    assert "gunzip" in refused.value.remedy


def test_anything_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a tar file"):
        assert opened(tmp_path, b"hello" * 999, manifest=False).samples
    with pytest.raises(DataError, match="is a damaged tar file: it ends within"):
        assert opened(tmp_path, make_tar(RECORDS)[:1900], manifest=False).samples


def test_of_two_members_with_the_same_name_the_last_is_found(tmp_path: Path) -> None:
    content = make_tar({"a": b"old", "b": b"1"})[: 4 * 512] + make_tar({"a": b"new"})
    source = opened(tmp_path, content)
    assert len(source.samples) == 3
    assert source.read([source.samples.find("a")]) == [b"new"]


names = st.text("ab0", min_size=1, max_size=3).map(lambda text: f"{text}.jpg")
files = st.dictionaries(names, st.binary(max_size=1500), min_size=1, max_size=5)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(st.dictionaries(st.text("xyz", min_size=1, max_size=3), files, min_size=1, max_size=5))
def test_three_ways_to_the_same_samples(
    tmp_path: Path, classes: dict[str, dict[str, bytes]]
) -> None:
    """By the manifest, by the headers, and as they arrive."""
    expected = {f"{c}/{n}": data for c, f in classes.items() for n, data in f.items() if data}
    if not expected:
        return
    content = make_nested(classes)
    by_manifest = opened(tmp_path, content)
    told = Choice(classes=sorted(classes), labelled=True)
    (tmp_path / "t.tar.headway").unlink()
    by_headers = SampleSource(str(tmp_path / "t.tar"), told)
    assert contents(by_manifest) == contents(by_headers) == expected
    assert by_manifest.samples.offsets == by_headers.samples.offsets
    places = list(by_headers.as_it_arrives())
    assert [each.offset for each in places] == list(by_headers.samples.offsets)
    assert [each.label for each in places] == list(by_headers.samples.labels)
    assert [each.name for each in places] == list(expected)
    assert {each.name: each.class_name for each in places} == {
        name: name.partition("/")[0] for name in expected
    }


def test_headers_are_read_as_they_arrive(tmp_path: Path) -> None:
    content = make_nested({f"n{c}": {f"{i}": bytes(3000) for i in range(9)} for c in range(3)})
    arriving = Arriving(tmp_path / "t.tar", content, 4096, hold=1)
    arriving.bring(0)
    source = SampleSource(str(tmp_path / "t.tar"), Choice())
    assert not source.indexed
    places = source.as_it_arrives()
    assert next(places).name == "n0/0"  # nobody has brought more than the first chunk

    def more() -> None:
        wait(arriving.arrival.wishes)  # until the reader waits
        arriving.release()

    with arriving, ThreadPoolExecutor(1) as other:
        other.submit(more)
        assert len(list(places)) == 26
        assert source.object.waited > 0
        assert len(source.samples) == 27


def test_without_a_manifest_classes_must_be_told(tmp_path: Path) -> None:
    source = opened(tmp_path, make_nested(NESTED), manifest=False, labelled=True)
    with pytest.raises(DataError, match="are known only when all of it is here"):
        list(source.as_it_arrives())
    source.choice = Choice(classes=["n02"], labelled=True)
    with pytest.raises(DataError, match="not in `classes`: n01"):
        list(source.as_it_arrives())


def test_a_damaged_nested_tar_as_it_goes(tmp_path: Path) -> None:
    inner = bytearray(make_tar({"a": b"1", "b": b"2"}))
    inner[1024:1536] = b"?" * 512
    source = opened(tmp_path, make_tar({"n1.tar": bytes(inner)}), manifest=False)
    with pytest.raises(DataError, match=r"n1\.tar is a damaged tar file"):
        list(source.as_it_arrives())


def test_no_name_leads_out_of_its_folder(tmp_path: Path) -> None:
    content = make_tar({"x/...tar": make_tar({"a": b"1"}), "y/..tar": make_tar({"b": b"2"})})
    source = opened(tmp_path, content, manifest=False)
    names = [place.name for place in source.as_it_arrives()]
    assert names == ["x/...tar/a", "y/..tar/b"]


def test_a_copy_for_another_process(tmp_path: Path) -> None:
    source = opened(tmp_path, make_nested(NESTED))
    size = len(pickle.dumps(source))
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read([0, 4]) == [b"first", b"4"]
    assert copy.place(4).startswith("n01/c.jpg (1 bytes at byte ")
    assert size < 3000


def index_of(count: int, classes: int) -> tuple[Index, int]:
    builder = Builder()
    offset = 512
    for number in range(count):
        name = b"n%05d/n%05d_%d.JPEG" % (number % classes, number % classes, number)
        builder.add(name, offset, 900, b"n%05d" % (number % classes))
        offset += 1536
    sections = {name: memoryview(data) for name, data in builder.sections()}
    return Index(count, offset, sections), offset


def test_a_million_samples_are_columns(tmp_path: Path) -> None:
    count = 40_000
    index, _ = index_of(count, 100)
    (tmp_path / "t").write_bytes(b"x")
    thing = SampleSource(str(tmp_path / "t"), Choice(record=1)).object
    tracemalloc.start()
    try:
        samples = samples_of(thing, Choice(), index)
        kept, most = tracemalloc.get_traced_memory()
        assert kept < 20 * count
        assert most < 40 * count
        assert samples.name(count - 1) == "n00099/n00099_39999.JPEG"
        assert samples.find("n00017/n00017_39917.JPEG") == 39_917
        assert tracemalloc.get_traced_memory()[0] < 60 * count
    finally:
        tracemalloc.stop()


def columns(sizes: Sequence[int]) -> Samples:
    empty = array("Q", [0]) * len(sizes)
    return Samples(empty, array("I", sizes), array("i", sizes), (), lambda: map(str, sizes))


@given(st.lists(st.text(min_size=1).filter(lambda t: "\0" not in t), min_size=1, unique=True))
def test_names_are_found(names: list[str]) -> None:
    try:
        [name.encode("utf-8", "surrogateescape") for name in names]
    except UnicodeEncodeError:
        return
    samples = columns(range(len(names)))
    samples._all_names = lambda: names
    for number, name in enumerate(names):
        assert samples.name(number) == name
        assert samples.find(name) == number
