"""Does not save the random number generator."""

import toy

training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore({**kept, "noise": toy.Toy().state()["noise"]})
toy.train(training, lambda state: toy.replace("ckpt/state.json", state), toy.Stop())
