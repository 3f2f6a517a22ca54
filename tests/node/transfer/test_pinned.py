"""The pinned manifest: fetched by the engine, believed for its digest alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.lab import Answer, Fault, Flip, Held, Made, Rate, Server, Status
from tests.lab.answer import Case

from headway.errors import HeadwayError
from headway.node.errors import ManifestError, Stopped
from headway.node.transfer import fetch
from headway.node.transfer import manifest as module
from headway.node.transfer.fetch import pinned_manifest
from headway.node.transfer.manifest import MAX_MANIFEST, digest_of, make_manifest

CONTENT = Made(3 << 20, seed=8)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("published") / "a.tar"
    CONTENT.write(path).close()
    return make_manifest(str(path), chunk_size=1 << 20)


def test_a_forged_manifest_is_passed_over_and_the_chunks_are_proven(
    tmp_path: Path, manifest: bytes
) -> None:
    held = {"/a.tar": CONTENT, "/a.tar.headway": Held(manifest)}
    with (
        Server(held, [Flip(200).on("/a.tar.headway"), Flip(5).on("/a.tar")]) as forger,
        Server(held) as well,
    ):
        urls = [forger.url("/a.tar", query="sig=x"), well.url("/a.tar")]
        found = pinned_manifest(urls, digest_of(manifest).upper(), folder=str(tmp_path))
        assert (found.size, found.chunks) == (CONTENT.size, 3)
        assert list(tmp_path.iterdir()) == []
        assert any(r.target == "/a.tar.headway?sig=x" for r in forger.requests)
        got = fetch(urls, str(tmp_path / "a.tar"), manifest=found)
        assert got.proof == "manifest"
        assert CONTENT.fault(tmp_path / "a.tar") is None


def test_what_can_be_wrong_is_said_with_what_to_do(tmp_path: Path, manifest: bytes) -> None:
    pin = digest_of(manifest)
    with pytest.raises(ManifestError, match="64 hex digits"):
        pinned_manifest(["https://h/a"], "sha256:12", folder=str(tmp_path))
    with Server({"/a": CONTENT, "/a.headway": Held(b"x" * 999)}) as it:
        with pytest.raises(ManifestError, match=r"a\.headway did not arrive.*sha256 is") as wrong:
            pinned_manifest([it.url("/a")], pin, folder=str(tmp_path))
        assert "headway publish" in wrong.value.remedy
        it.faults = [Status(404)]
        with pytest.raises(ManifestError, match="404") as absent:
            pinned_manifest(
                [it.url("/a")], pin, folder=str(tmp_path), grace=0.3, absence_is_final=True
            )
        assert not absent.value.retryable
        assert "next to the object" in absent.value.remedy
        with pytest.raises(Stopped):
            pinned_manifest([it.url("/a")], pin, folder=str(tmp_path), should_stop=lambda: True)
    with Server({"/a.headway": Made(MAX_MANIFEST + 1, seed=1)}) as it:
        with pytest.raises(ManifestError, match="too large"):
            pinned_manifest([it.url("/a")], pin, folder=str(tmp_path))
        assert it.sent < MAX_MANIFEST
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class Unsized(Fault):
    """Do not say how long it is."""

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.forget_range()
        answer.length = None
        return True


def test_a_manifest_that_does_not_say_its_size_is_bounded(
    tmp_path: Path, manifest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_MANIFEST", 1 << 20)
    endless = {"/a.headway": Made(1 << 30, seed=1)}
    with Server(endless, [Unsized(), Rate(8 << 20)]) as it:
        with pytest.raises(ManifestError, match="too large"):
            pinned_manifest([it.url("/a")], digest_of(manifest), folder=str(tmp_path))
        assert it.sent < 16 << 20
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/..", "/%2e%2e%2f..%2fx", "/a%2Fb", "/" + "n" * 300, "/%00", ""])
def test_no_url_leads_out_of_the_folder(tmp_path: Path, manifest: bytes, path: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with Server(faults=[Status(200, body=manifest)]) as it:
        url = f"http://{it.address[0]}:{it.address[1]}{path}"
        try:
            found = pinned_manifest([url], digest_of(manifest), folder=str(inside))
            assert found.size == CONTENT.size
        except HeadwayError:
            pass
    assert [each.name for each in tmp_path.iterdir()] == ["inside"]
    assert list(inside.iterdir()) == []
