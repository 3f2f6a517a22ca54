"""Writes its checkpoint over the one before."""

import json
import os

import toy


def save(state):
    os.makedirs("ckpt", exist_ok=True)
    with open("ckpt/state.json", "w") as file:
        json.dump(state, file)


training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept)
toy.train(training, save, toy.Stop())
