"""Gives up where it has been before."""

import os

import toy

os.mkdir("logs")
training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept)
toy.train(training, lambda state: toy.replace("ckpt/state.json", state), toy.Stop())
