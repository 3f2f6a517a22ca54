"""`headway cache`, and what a run on this machine has of it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab import Made, Object, Server

from headway.cache import Cache, cache_folder
from headway.node.store.folder import DAY, MARKER, Settings, create_store, hold

from .conftest import Done

Call = Callable[..., Done]
POOL = ("--pool", "local:cpus=2")
DATA = Made(300_000, seed=4)
SHA = f"sha256:{hashlib.sha256(DATA.read(0, DATA.size)).hexdigest()}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def call(headway: Call, folder: Path) -> Call:
    def call(*words: str, code: int | None = 0) -> Done:
        return headway(*words, code=code, env={"HEADWAY_CACHE": str(folder)})

    return call


def run(call: Call, tmp_path: Path, *urls: str, name: str = "job", more: str = "") -> None:
    inputs = "".join(f'[[inputs]]\nurl = "{url}"\n{more}' for url in urls)
    (tmp_path / "job.toml").write_text(
        f'name = "{name}"\nshell = true\ncommand = "sha256sum *.bin"\n{inputs}'
        '[resources]\nmemory = "50 MB"\ndisk = "10 MB"\n'
    )
    call("run", "job.toml", "--again", *POOL)


def test_the_second_run_downloads_nothing(call: Call, tmp_path: Path, folder: Path) -> None:
    with Server({"/a.bin": DATA}) as server:
        for _ in range(2):
            run(call, tmp_path, server.url("/a.bin"))
            assert SHA[7:] in call("logs").stdout
        assert len(server.ranges) == 1
        server.store["/a.bin"] = b"another version"
        run(call, tmp_path, server.url("/a.bin"))
        assert hashlib.sha256(b"another version").hexdigest() in call("logs").stdout
    assert os.stat(folder).st_mode & 0o777 == 0o700
    shown = call("cache").stdout
    assert "a.bin" in shown and "1 input, 15 B of " in shown and str(folder) in shown
    assert "until it is unused for 30 days" in shown


NEW = Made(DATA.size, seed=5)
EARLIER, LATER = "Wed, 01 Jan 2025 00:00:00 GMT", "Thu, 02 Jan 2025 00:00:00 GMT"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Object(DATA, '"1"', None), Object(NEW, '"2"', None)),
        (Object(DATA, None, EARLIER), Object(NEW, None, LATER)),
        (Object(DATA, '"1"', EARLIER), Object(NEW, '"2"', EARLIER)),
        (Object(DATA, None, EARLIER), Object(Made(DATA.size + 1, seed=5), None, EARLIER)),
    ],
    ids=["ETag", "date", "ETag of the same date", "size"],
)
def test_a_changed_object_is_noticed_by_its_version(
    call: Call, tmp_path: Path, before: Object, after: Object
) -> None:
    """Whatever the server tells of it; unchanged, it is asked about and not fetched."""
    with Server({}) as server:
        for content, fetched in ((before, 1), (before, 1), (after, 2), (after, 2)):
            server.store["/a.bin"] = content
            run(call, tmp_path, server.url("/a.bin"))
            data = content.content.read(0, content.content.size)
            assert hashlib.sha256(data).hexdigest() in call("logs").stdout
            assert len(server.ranges) == fetched
        url = server.url("/a.bin")
    [kept] = json.loads(call("cache", "--json").stdout)["inputs"]
    assert (kept["file"], kept["urls"], kept["bytes"]) == ("a.bin", [url], after.content.size)
    assert kept["wanted_by"] == "url" and kept["stays"] == "until it is unused for 30 days"


def test_it_is_on_unless_it_is_switched_off(headway: Call, tmp_path: Path) -> None:
    with Server({"/a.bin": DATA}) as server:
        home = {"XDG_CACHE_HOME": str(tmp_path / "home")}
        for env in ({"HEADWAY_CACHE": "off"}, {**home, "HEADWAY_CACHE": ""}):
            run(lambda *words, env=env: headway(*words, env=env), tmp_path, server.url("/a.bin"))
    kept = tmp_path / "home" / "headway" / "inputs"
    assert (kept / MARKER).exists() and not (tmp_path / "cache").exists()
    done = headway("cache", code=2, env={"HEADWAY_CACHE": "off"})
    assert "HEADWAY_CACHE=off switches the cache off" in done.stderr
    assert "1 input" in headway("cache", env={**home, "HEADWAY_CACHE": ""}).stdout


def test_list_pin_and_clean(call: Call, tmp_path: Path) -> None:
    contents = {f"/{name}.bin": Made(1000, seed=n) for n, name in enumerate("abc")}
    with Server(contents) as server:
        run(call, tmp_path, *(server.url(path) for path in contents))
    found = json.loads(call("cache", "--json").stdout)
    assert sorted(each["file"] for each in found["inputs"]) == ["a.bin", "b.bin", "c.bin"]
    assert found["bytes"] == 3000 and found["quota"] > 0
    by_file = {each["file"]: each for each in found["inputs"]}
    assert by_file["a.bin"]["wanted_by"] == "url" and not by_file["a.bin"]["pinned"]
    sizes = json.loads(call("cache", "size", "--json").stdout)
    assert sizes == {key: found[key] for key in ("folder", "bytes", "quota", "keep_free", "age")}

    assert call("cache", "pin", "a.bin").stdout == "pinned a.bin\n"
    assert "pinned: it stays until it is unpinned" in call("cache").stdout
    some = by_file["b.bin"]["id"].partition("-")[2][:8]
    assert call("cache", "clean", some).stdout == "removed 1 input, 1 kB\n"
    assert call("cache", "clean", "--older", "1h").stdout == "removed 0 inputs, 0 B\n"
    assert call("cache", "clean").stdout == "removed 1 input, 1 kB\n"
    assert [each.file for each in Cache().kept()] == ["a.bin"]
    call("cache", "unpin", server.url("/a.bin"))
    done = json.loads(call("cache", "clean", "--json").stdout)
    assert done == {"action": "clean", "inputs": [by_file["a.bin"]["id"]], "in_use": []}
    assert call("cache").stdout.startswith("0 inputs, 0 B of ")


def test_what_a_job_reads_in_place_stays(call: Call, tmp_path: Path, folder: Path) -> None:
    with Server({"/a.bin": DATA}) as server:
        run(call, tmp_path, server.url("/a.bin"))
    [kept] = Cache().kept()
    reader = hold(str(next(folder.glob("u*/inputs/*"))), shared=True)
    assert reader is not None
    done = call("cache", "clean", code=1)
    assert done.stdout == "removed 0 inputs, 0 B\n"
    assert "a.bin stays: a job is reading it" in done.stderr
    reader.release()
    assert call("cache", "clean", kept.id).stdout == "removed 1 input, 300 kB\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("prune",), "there is no action 'prune'"),
        (("pin",), "pin needs an input"),
        (("list", "x"), "list takes no input"),
        (("size", "--older", "1d"), "--older does not go with size"),
        (("clean", "nothing.bin"), "the cache has nothing called 'nothing.bin'"),
        (("clean", "--older", "soon"), "--older"),
    ],
)
def test_a_wrong_command_line(call: Call, words: tuple[str, ...], said: str) -> None:
    assert said in call("cache", *words, code=2).stderr


def test_a_cache_that_others_can_write_to_is_not_used(
    call: Call, tmp_path: Path, folder: Path
) -> None:
    create_store(str(folder), Settings(shared_account=False))
    folder.chmod(0o777)
    assert "others can write to it" in call("cache", code=2).stderr
    with Server({"/a.bin": DATA}) as server:
        run(call, tmp_path, server.url("/a.bin"))
    assert list(folder.glob("u*")) == []


def test_an_age_in_words(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", "relative")
        assert cache_folder() == Path.cwd() / "relative"
    create_store(str(folder), Settings(shared_account=False))
    from tests.node.store.keeping import keep

    from headway.node.store.folder import Store

    keep(Store(str(folder)), "sha256-12", used=time.time() - 25.5 * DAY)
    cache = Cache()
    [one] = cache.kept()
    assert cache.stays(one) == "until it is unused for 30 days, 4 days from now"
    assert one.wanted_by == "checksum"
