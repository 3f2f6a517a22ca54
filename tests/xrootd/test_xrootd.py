"""Objects through a real XRootD origin and XCache, with a director before them."""

from __future__ import annotations

import json
import os

import pytest
from tests.xrootd.house import CACHE, ORIGIN, House

from headway.node.transfer.discovery import FAST, SLOW

DATA = os.urandom(8_000_000)


@pytest.fixture
def stored(house: House) -> str:
    house.put("a", DATA)
    return house.url("a")


def told(house: House, *arguments: str, code: int = 0, **env: str) -> dict[str, object]:
    done = house.run("-m", "headway", *arguments, "--json", env=env)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{house.logs()}"
    answer = json.loads(done.stdout.splitlines()[-1] if code else done.stdout)
    assert isinstance(answer, dict)
    return answer


def listed(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def test_sources_are_measured(house: House, stored: str) -> None:
    sources = listed(told(house, "sources", stored)["sources"])
    assert [(each["name"], each["kind"]) for each in sources] == [
        (f"127.0.0.1:{CACHE}", "cache"),
        (f"127.0.0.1:{ORIGIN}", "origin"),
    ]
    rates = [float(str(each["rate"])) for each in sources]
    # a busy machine can make one of them slow, which is then said
    slow = [rate < min(SLOW * max(rates), FAST) for rate in rates]
    assert [each["state"] for each in sources] == [
        "slow" if is_slow else "well" for is_slow in slow
    ]
    assert not all(slow) and all(each["size"] == len(DATA) for each in sources)


def test_fetch_through_the_cache(house: House, stored: str) -> None:
    code = (
        "import sys; from headway.node.transfer import fetch\n"
        "got = fetch([sys.argv[1]], sys.argv[2], size=int(sys.argv[3]))\n"
        "print(got.url)"
    )
    target = house.folder / "got"
    done = house.run("-c", code, stored, str(target), str(len(DATA)))
    assert done.returncode == 0, f"{done.stderr}\n{house.logs()}"
    assert f":{CACHE}/" in done.stdout
    assert target.read_bytes() == DATA


def test_a_download_is_proven_by_xrootds_own_digest(house: House) -> None:
    """Nothing is declared; the origin tells a digest, in XRootD's own form of it."""
    house.put("large", DATA * 3)
    got = told(house, "fetch", house.url("large"), "--direct", "-o", "by-digest")
    assert (got["bytes"], got["proof"]) == (3 * len(DATA), "digest")
    assert (house.folder / "by-digest").read_bytes() == DATA * 3


@pytest.mark.parametrize("size", [0, 1, 1000, len(DATA)])
@pytest.mark.parametrize("direct", [True, False])
def test_an_object_whose_size_nobody_has_declared(house: House, size: int, direct: bool) -> None:
    """The first request asks for more than there is, and XRootD 5.5 does not cut it off."""
    name = f"small-{size}-{direct}"
    house.put(name, DATA[:size])
    got = told(house, "fetch", house.url(name), "-o", name, *(["--direct"] if direct else []))
    assert got["bytes"] == size
    assert (house.folder / name).read_bytes() == DATA[:size]


@pytest.mark.parametrize("how", ["option", "URL"])
def test_directread_goes_past_the_cache(house: House, how: str) -> None:
    house.put(f"direct-{how}", DATA)
    url = house.url(f"direct-{how}")
    words = [url, "--direct"] if how == "option" else [f"{url}?directread"]
    got = told(house, "fetch", *words, "-o", f"past-{how}")
    assert [(each["host"], each["bytes"]) for each in listed(got["sources"])] == [
        (f"127.0.0.1:{ORIGIN}", len(DATA))
    ]
    assert (house.folder / f"past-{how}").read_bytes() == DATA
    assert not list((house.folder / "cache").rglob(f"direct-{how}*"))


def test_the_origin_brings_the_rest_when_the_cache_is_killed(house: House) -> None:
    code = (
        "import json, os, sys; from headway.node.transfer import fetch\n"
        "url, path, cache = sys.argv[1:]\n"
        "killed = []\n"
        "def saw(now):\n"
        "    if now.bytes and not killed:\n"
        "        killed.append(now.bytes)\n"
        "        os.kill(int(cache), 9)\n"
        "got = fetch([url], path, watch=saw)\n"
        "told = {each.host: each.bytes for each in got.snapshot.sources}\n"
        "print(json.dumps({'killed': killed, 'seconds': got.seconds, 'sources': told}))"
    )
    house.put("rest", DATA * 4)
    with house.slow_cache(4_000_000) as cache:
        done = house.run("-c", code, house.url("rest"), "rest", str(cache))
    assert done.returncode == 0, f"{done.stderr}\n{house.logs()}"
    got = json.loads(done.stdout)
    gave = [got["sources"][f"127.0.0.1:{port}"] for port in (CACHE, ORIGIN)]
    assert 0 < got["killed"][0] <= gave[0] < 4 * len(DATA)  # it was in the middle
    assert sum(gave) == 4 * len(DATA) and got["seconds"] < 20
    assert (house.folder / "rest").read_bytes() == DATA * 4


def test_put_is_whole_and_proven_by_the_origins_digest(house: House) -> None:
    (house.folder / "model").write_bytes(DATA[:3_000_000])
    sent = told(house, "put", "model", house.url("out/model"))
    assert (sent["bytes"], sent["proof"]) == (3_000_000, "digest")
    folder = house.objects / "out"
    assert [path.name for path in folder.iterdir()] == ["model"]  # moved, nothing left beside it
    assert (folder / "model").read_bytes() == DATA[:3_000_000]
    (house.folder / "model").write_bytes(b"other")
    refused = told(house, "put", "model", house.url("out/model"), code=2)
    assert "already" in json.dumps(refused)
    assert (folder / "model").read_bytes() == DATA[:3_000_000]
    told(house, "put", "model", house.url("out/model"), "--overwrite")
    assert (folder / "model").read_bytes() == b"other"


def test_a_killed_put_leaves_no_half_object(house: House) -> None:
    """XRootD keeps what came of a broken put; it must not be under the final name."""
    code = (
        "import os, sys; from headway.node.transfer.upload import Delivery\n"
        "done = lambda far, total: os.kill(os.getpid(), 9) if far else None\n"
        "Delivery(sys.argv[1], sys.argv[2]).put(progress=done)"
    )
    (house.folder / "model").write_bytes(DATA)
    done = house.run("-c", code, "model", house.url("killed/model"))
    assert done.returncode == -9, done.stderr
    assert not (house.objects / "killed" / "model").exists()
    left = [path.stat().st_size for path in (house.objects / "killed").iterdir()]
    assert left and left[0] < len(DATA)  # the half object is there, under another name
    told(house, "put", "model", house.url("killed/model"))
    assert (house.objects / "killed" / "model").read_bytes() == DATA


def test_an_object_that_is_not_there(house: House) -> None:
    sources = told(house, "sources", house.url("none"), code=1)
    assert "404" in json.dumps(sources)
