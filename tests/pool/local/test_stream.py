"""A job that trains while its data arrives: job.toml to record, on the local pool."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile

from tests.lab import Filed, Held, Rate, Server

from headway.events import Outcome
from headway.node.transfer.manifest import digest_of, make_manifest

from .house import SMALL, House

CLASSES, EACH = 10, 16
READER = """
import hashlib, headway.files, json
files = headway.files.stream("data.tar", seed=5)
names, classes = [], []
for name, class_name, data in files:
    assert hashlib.sha256(data).hexdigest()[:16] in name, name
    names.append(name)
    classes.append(class_name)
with open("seen.json", "w") as file:
    json.dump({"names": names, "first": len(set(classes[:40]))}, file)
"""
JOB = """
name = "stream"
command = "python3 reader.py"
files = ["reader.py"]
outputs = ["seen.json"]
[[inputs]]
url = "%s"
manifest = "%s"
mode = "stream"
"""


def write_tar(house: House) -> None:
    dice = random.Random(1)
    with tarfile.open(house.folder / "data.tar", "w") as tar:
        for place in range(CLASSES * EACH):
            data = dice.randbytes(40_000 + place)
            digest = hashlib.sha256(data).hexdigest()[:16]
            member = tarfile.TarInfo(f"class{place // EACH}/{digest}.bin")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def test_a_job_reads_while_its_data_arrives(house: House) -> None:
    write_tar(house)
    house.write(READER, "reader.py")
    manifest = make_manifest(str(house.folder / "data.tar"), chunk_size=1 << 16)
    content = Filed(house.folder / "data.tar")
    objects = {"/data.tar": content, "/data.tar.headway": Held(manifest)}
    with Server(objects, [Rate(1 << 20, scope="server")]) as server:
        run = house.run(JOB % (server.url("/data.tar"), digest_of(manifest)) + SMALL)
        assert server.sent < 1.1 * content.size + len(manifest)
    content.close()
    assert run.jobs[0].outcome is Outcome.SUCCESS
    seen = json.loads((run.outputs(0) / "seen.json").read_text())
    assert len(seen["names"]) == len(set(seen["names"])) == CLASSES * EACH
    assert seen["first"] >= 5  # in the order of the file it would be 3
    [record] = run.folder.path.glob("jobs/0/attempts/*/record.json")
    [told] = json.loads(record.read_text())["inputs"]
    end = content.size % (1 << 16)  # of the archive, after its last file: nobody asks for it
    assert told["proof"] == "manifest" and told["bytes"] in (content.size, content.size - end)
    lines = run.folder.events.read_text()
    assert "phase=run state=progress" in lines and "file=data.tar" in lines
    report = house.headway("report", str(run.folder.path)).stdout
    assert "streamed in while the command ran" in " ".join(report.split())
