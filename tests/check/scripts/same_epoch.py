"""Trains the interrupted epoch from its beginning, with weights that have seen part of it."""

import toy

training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept)
    training.batch = 0
toy.train(training, lambda state: toy.replace("ckpt/state.json", state), toy.Stop())
