"""A training in small: a weight, a sampler, random noise, and all that a resume depends on."""

import json
import os
import random
import signal
import sys
import time

EPOCHS, BATCHES, BATCH = 4, 8, 4
PAUSE = 0.03  # seconds of a step; enough to be interrupted in time on a busy machine
PACED = False  # all steps together take their time, however late the machine wakes one of them


class Toy:
    """What is trained; `state` holds everything that the next step depends on."""

    def __init__(self):
        self.epoch = self.batch = 0
        self.weight, self.momentum = 0.0, 0.0
        self.noise = random.Random(7)
        self.due = None  # when the step that is being made ends

    def order(self):
        return random.Random(100 + self.epoch).sample(range(1000), BATCHES * BATCH)

    def step(self, samples):
        """One step; returns the loss."""
        now = time.monotonic()
        self.due = (self.due if PACED and self.due else now) + PAUSE
        time.sleep(max(0.0, self.due - now))
        wanted = sum(samples) / len(samples) / 1000 + self.noise.gauss(0, 0.1)
        self.momentum = 0.9 * self.momentum + (wanted - self.weight)
        self.weight += 0.1 * self.momentum
        self.batch += 1
        return (wanted - self.weight) ** 2

    def state(self):
        version, words, gauss = self.noise.getstate()
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "weight": self.weight,
            "momentum": self.momentum,
            "noise": [version, words, gauss],
        }

    def restore(self, state):
        for name in ("epoch", "batch", "weight", "momentum"):
            setattr(self, name, state[name])
        version, words, gauss = state["noise"]
        self.noise.setstate((version, tuple(words), gauss))


class Stop:
    """Whether SIGTERM came, or the interval is over."""

    def __init__(self):
        self.asked = False
        limit = os.environ.get("HEADWAY_CHECKPOINT_INTERVAL")
        self.deadline = time.monotonic() + float(limit) if limit else float("inf")
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, *_):
        self.asked = True

    def __bool__(self):
        return self.asked or time.monotonic() > self.deadline


def trace(**values):
    """The convention of `headway check`, without headway."""
    if os.environ.get("HEADWAY_TRACE"):
        with open(os.environ["HEADWAY_TRACE"], "a") as file:
            file.write(json.dumps(values) + "\n")


def replace(path, state):
    """Write under another name, then put in place."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
    os.replace(path + ".tmp", path)


def load(path):
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def train(toy, save, stop=None, order=None, tell=trace):
    """Train from where the toy is; leaves with 85 when it is asked to."""
    while toy.epoch < EPOCHS:
        samples = (order or Toy.order)(toy)
        while toy.batch < BATCHES:
            chosen = samples[toy.batch * BATCH : (toy.batch + 1) * BATCH]
            loss = toy.step(chosen)
            tell(epoch=toy.epoch, step=toy.batch, loss=loss, samples=chosen)
            if stop:
                save(toy.state())
                sys.exit(85)
        toy.epoch, toy.batch = toy.epoch + 1, 0
    with open("model.json", "w") as file:
        json.dump({"weight": toy.weight, "seconds": time.monotonic()}, file)
