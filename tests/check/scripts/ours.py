"""Keeps every promise by headway.checkpoint."""

import random
import time

from headway.checkpoint import Checkpoint, trace

checkpoint = Checkpoint("ckpt")
random.seed(1)
kept = checkpoint.load() or {"step": 0, "weight": 0.0, "order": []}
step, weight, order = kept["step"], kept["weight"], kept["order"]
while step < 30:
    order = order or random.sample(range(100), 40)
    samples, order = order[:4], order[4:]
    weight += 0.1 * (sum(samples) / 400 - weight) + random.gauss(0, 0.01)
    time.sleep(0.015)
    step += 1
    trace(step=step, loss=(1 - weight) ** 2, samples=samples)
    checkpoint.tick(step=step, weight=weight, order=order)
with open("model.json", "w") as file:
    file.write(repr(weight))
