"""Resumes at the epoch after the one that was interrupted."""

import toy

training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept)
    training.epoch, training.batch = kept["epoch"] + 1, 0
toy.train(training, lambda state: toy.replace("ckpt/state.json", state), toy.Stop())
