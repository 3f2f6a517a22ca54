"""A job that reads while its data arrives, on a real HTCondor: evicted, and gone on with."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from pathlib import Path

from tests.lab import Filed, Held, Rate, Server

from headway.events import Outcome
from headway.node.transfer.manifest import digest_of, make_manifest

from .harness import Pool
from .places import CondorPlace
from .together import beside_others

READER = """
import hashlib, headway.files, json, os, signal, sys
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
os.makedirs("ckpt", exist_ok=True)
seen, begin = [], 0
if os.path.exists("ckpt/place.json"):
    seen, begin = json.load(open("ckpt/place.json"))
files = headway.files.stream("data.tar", seed=3, begin=begin)
for name, class_name, data in files:
    assert hashlib.sha256(data).hexdigest()[:16] in name, name
    seen.append(name)
    if stop:
        with open("ckpt/new", "w") as file:
            json.dump([seen, files.position], file)
        os.replace("ckpt/new", "ckpt/place.json")
        sys.exit(85)
json.dump(seen, open("seen.json", "w"))
"""
JOB = """
name = "stream"
command = "python3 reader.py"
files = ["reader.py"]
outputs = ["seen.json"]
grace = "20 s"
[checkpoint]
paths = ["ckpt"]
[[inputs]]
url = "%s"
manifest = "%s"
mode = "stream"
[resources]
memory = "64 MB"
disk = "40 MB"
"""


def write_tar(path: Path, count: int) -> None:
    dice = random.Random(4)
    with tarfile.open(path, "w") as tar:
        for place in range(count):
            data = dice.randbytes(60_000)
            digest = hashlib.sha256(data).hexdigest()[:16]
            member = tarfile.TarInfo(f"class{place * 8 // count}/{digest}.bin")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@beside_others(15)
def test_an_evicted_stream_goes_on_at_the_exact_sample(condor_pool: Pool) -> None:
    data = condor_pool.user_dir() / "data.tar"
    write_tar(data, 160)
    manifest = make_manifest(str(data), chunk_size=1 << 16)
    content = Filed(data)
    objects = {"/data.tar": content, "/data.tar.headway": Held(manifest)}
    place = CondorPlace(condor_pool)
    place.write({"reader.py": READER})
    # half a minute for all of it, until the job has been evicted in the midst of it
    with Server(objects, [Rate(300_000, scope="server")]) as server:
        run = place.start(JOB % (server.url("/data.tar"), digest_of(manifest)))
        place.wait(run, lambda state: state.phase == "run" and server.sent > 400_000)
        place.headway("evict", run.label)
        place.wait(run, lambda state: state.evictions == 1)
        server.faults = []
        place.settle(run)
    content.close()
    state = run.jobs[0]
    assert state.outcome is Outcome.SUCCESS and state.evictions == 1, place.story()
    seen = json.loads((run.outputs(0) / "seen.json").read_text())
    assert len(seen) == len(set(seen)) == 160
    records = [json.loads((a / "record.json").read_text()) for a in run.folder.attempts(0)]
    first, last = sorted(records, key=lambda each: float(each["segments"][0]["begin"]))
    assert 0 < first["inputs"][0]["bytes"] < content.size
    assert first["inputs"][0]["mode"] == last["inputs"][0]["mode"] == "stream"
