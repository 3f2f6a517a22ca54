"""Neither traces nor prints; loses its momentum."""

import toy

toy.EPOCHS = 10  # without steps it is interrupted by time, which needs some
training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore({**kept, "momentum": 0.0})
toy.train(
    training,
    lambda state: toy.replace("ckpt/state.json", state),
    toy.Stop(),
    tell=lambda **_: None,
)
