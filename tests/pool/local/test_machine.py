"""What this machine has, and who has taken what from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.errors import PoolError
from headway.pool.local import machine
from headway.pool.local.machine import (
    Claim,
    Gpu,
    MachineClaims,
    ResourceRequest,
    Site,
    parse_sites,
    take,
)

from .house import SOURCE

GPUS = tuple(Gpu(f"GPU-{n}", memory=(n + 1) * 10 * 2**30, capability=7.0 + n) for n in range(3))
SITE = Site("here", cpus=4, memory=1000, disk=1000, gpus=GPUS, whole_machine=True)

HOLDER = """
import sys
from pathlib import Path
from headway.pool.local.machine import MachineClaims, ResourceRequest, Site
site = Site("here", cpus=4, memory=1000, disk=1000, whole_machine=True)
ledger, held = MachineClaims(Path(sys.argv[1])), []
for line in sys.stdin:
    claim = ledger.claim(site, ResourceRequest(1, 10, 10), held)
    if claim:
        held.append((site, claim))
    print(int(bool(claim)), flush=True)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("claim\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize(
    "request_",
    [
        ResourceRequest(3, 1, 1),
        ResourceRequest(1, 600, 1),
        ResourceRequest(1, 1, 600),
        ResourceRequest(1, 1, 1, gpus=3),
    ],
)
def test_what_does_not_fit_is_not_taken(request_: ResourceRequest) -> None:
    taken = [Claim("here", 2, 500, 500, ("GPU-1",))]
    assert take(SITE, request_, taken) is None
    assert take(SITE, request_, []) is not None


def test_gpus_are_chosen_by_memory_and_capability_and_given_once() -> None:
    asked = ResourceRequest(1, 1, 1, gpus=1, gpu_memory=15 * 2**30, gpu_capability=7.5)
    first = take(SITE, asked, [])
    assert first is not None and first.gpus == ("GPU-1",)
    second = take(SITE, asked, [first])
    assert second is not None and second.gpus == ("GPU-2",)
    assert take(SITE, asked, [first, second]) is None


def test_sites_share_out_the_real_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_real_gpus", lambda: GPUS)
    first, second = parse_sites("site=A,gpus=1,cpus=1;site=B,cpus=1,simulate-gpus=1", tmp_path)
    assert [gpu.id for gpu in first.gpus] == ["GPU-0"]
    assert [gpu.id for gpu in second.gpus] == ["GPU-1", "GPU-2", "GPU-B-0"]
    with pytest.raises(PoolError, match="has 1 left"):
        parse_sites("site=A,gpus=2;site=B,gpus=2", tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpus=0", "cpus must be a whole number from 1 up, not '0'"),
        ("cpus=-1", "not '-1'"),
        ("cpus=many", "not 'many'"),
        ("simulate-gpus=-2", "simulate-gpus must be"),
        ("cpus", "'cpus' has no value"),
        ("cores=3", "unknown key 'cores'"),
        ("memory=8", "8"),
        ("memory=-8GB", "8GB"),
        ("site=A;site=A", "two sites are called 'A'"),
        ('site=a"b', "is not the name of a site"),
    ],
)
def test_wrong_sites_are_told(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(PoolError) as error:
        parse_sites(text, tmp_path)
    assert words in error.value.message
    assert error.value.remedy


def test_many_processes_take_no_more_than_there_is(tmp_path: Path) -> None:
    holders = [holder(tmp_path / "ledger") for _ in range(3)]
    try:
        for _ in range(4):  # all ask at the same time, four times over
            for process in holders:
                tell(process)
        granted = [sum(hear(process) for _ in range(4)) for process in holders]
        assert sum(granted) == 4
        # One who dies gives back what it had, though it never said so.
        dead = next(n for n, count in enumerate(granted) if count)
        holders[dead].send_signal(signal.SIGKILL)
        holders[dead].wait()
        ledger = MachineClaims(tmp_path / "ledger")
        site = Site("here", cpus=4, memory=1000, disk=1000, whole_machine=True)
        assert ledger.claim(site, ResourceRequest(granted[dead], 10, 10), []) is not None
        assert ledger.claim(site, ResourceRequest(granted[dead] + 1, 10, 10), []) is None
        ledger.close()
    finally:
        for process in holders:
            process.kill()
            process.communicate()


def test_a_share_tells_others_only_of_its_gpus(tmp_path: Path) -> None:
    share = Site("share", cpus=4, memory=1000, disk=1000, gpus=GPUS[:1])
    one, two = MachineClaims(tmp_path / "ledger"), MachineClaims(tmp_path / "ledger")
    assert one.claim(share, ResourceRequest(4, 1000, 1000, gpus=1), []) is not None
    whole = two.claim(SITE, ResourceRequest(4, 1000, 1000, gpus=2), [])
    assert whole is not None and whole.gpus == ("GPU-1", "GPU-2")
    assert two.claim(share, ResourceRequest(1, 1, 1, gpus=1), []) is None
    one.close()
    assert two.claim(share, ResourceRequest(1, 1, 1, gpus=1), []) is not None
    two.close()
    assert [path.name for path in (tmp_path / "ledger").iterdir()] == ["lock"]


def test_a_damaged_ledger_file_does_no_harm(tmp_path: Path) -> None:
    ledger = MachineClaims(tmp_path)
    (tmp_path / "claims-x.json").write_text("{")
    (tmp_path / "claims-y.json").write_text(json.dumps([{"site": "here", "cpus": 4}]))
    assert ledger.claim(SITE, ResourceRequest(4, 1, 1), []) is not None
    ledger.close()


def test_a_ledger_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PoolError, match="cannot be written"):
        MachineClaims(tmp_path / "file" / "ledger")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(PoolError, match="not a folder of yours"):
        MachineClaims(tmp_path / "link")
