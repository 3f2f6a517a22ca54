"""Reads a tar file while it arrives; `--forget` leaves the place in it out of the checkpoint."""

import json
import sys
import time

import headway.files
from headway.checkpoint import Checkpoint, trace

forget = "--forget" in sys.argv
checkpoint = Checkpoint("ckpt")
kept = checkpoint.load() or {"step": 0, "position": 0, "weight": 0.0}
step, weight = kept["step"], kept["weight"]
files = headway.files.stream("train.tar", seed=3, begin=0 if forget else kept["position"])
for name, _, data in files:
    if step == 80:
        break
    step += 1
    weight = 0.9 * weight + sum(data[:64])
    time.sleep(0.01)
    trace(step=step, loss=weight, samples=[name])
    checkpoint.tick(step=step, position=files.position, weight=weight)
with open("model.json", "w") as file:
    json.dump(weight, file)
