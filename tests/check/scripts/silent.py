"""Neither traces nor prints; loses its momentum."""

import toy

# without steps it is interrupted by time, which a busy machine must not stretch
toy.PACED = True
training = toy.Toy()
kept = toy.load("ckpt/state.json")
if kept:
    training.restore({**kept, "momentum": 0.0})
toy.train(
    training, lambda state: toy.replace("ckpt/state.json", state), toy.Stop(), tell=lambda **_: None
)
