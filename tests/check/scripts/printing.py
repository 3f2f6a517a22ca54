"""Keeps every promise but one if told so, and only prints: at once, or from a buffer."""

import sys

import toy

if "--buffered" in sys.argv:
    # it is interrupted by time, which a busy machine must not stretch
    toy.PACED = True


def tell(epoch, step, loss, samples):
    at_once = "--buffered" not in sys.argv
    line = f"epoch {epoch + 1}/{toy.EPOCHS} batch {step} loss={loss:.6f} seconds=1.{step}"
    print(line, flush=at_once)


training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept if "--broken" not in sys.argv else {**kept, "momentum": 0.0})
toy.train(training, lambda state: toy.replace("ckpt/state.json", state), toy.Stop(), tell=tell)
