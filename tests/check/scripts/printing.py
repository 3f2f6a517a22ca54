"""Keeps every promise but one if told so, and only prints."""

import sys

import toy


def tell(epoch, step, loss, samples):
    print(
        f"epoch {epoch + 1}/{toy.EPOCHS} batch {step} loss={loss:.6f} seconds=1.{step}", flush=True
    )


training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept if "--broken" not in sys.argv else {**kept, "momentum": 0.0})
toy.train(training, lambda state: toy.replace("ckpt/state.json", state), toy.Stop(), tell=tell)
