"""Never does the same twice."""

import random

import toy

training = toy.Toy()
training.noise = random.Random()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept)
toy.train(training, lambda state: toy.replace("ckpt/state.json", state), toy.Stop())
