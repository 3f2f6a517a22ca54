"""Saves after each epoch, and dies of SIGTERM as programs do, or with `--deaf` does not hear it."""

import signal
import sys

import toy

if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept)


def order(training):
    toy.replace("ckpt/state.json", training.state())
    return toy.Toy.order(training)


toy.train(training, None, order=order)
