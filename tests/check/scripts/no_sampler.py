"""Draws its samples from a generator whose state is not saved."""

import random

import toy

sampler = random.Random(3)
training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore(kept)
toy.train(
    training,
    lambda state: toy.replace("ckpt/state.json", state),
    toy.Stop(),
    order=lambda _: sampler.sample(range(1000), toy.BATCHES * toy.BATCH),
)
