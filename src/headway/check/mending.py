"""How to mend a broken promise: what to do, and the lines to write."""

from __future__ import annotations

_LOOP = """\
from headway.checkpoint import Checkpoint  # on the worker nothing needs to be installed for it

checkpoint = Checkpoint("{path}")
kept = checkpoint.load(model=model, optimizer=optimizer, scheduler=scheduler, data=data)
step = kept["step"] if kept else 0
while step < steps:
    …  # one step
    step += 1
    checkpoint.tick(model=model, optimizer=optimizer, scheduler=scheduler, data=data, step=step)"""

_MENDS = {
    "runs": "Run the command by hand in an empty folder with its inputs, and look at its stderr.",
    "outputs": "Write every declared output at the end of the training, also when the start that"
    " gets there\nfound nothing left to train.",
    "sigterm": "Save the state and leave with {code} when SIGTERM comes. In Python:\n\n" + _LOOP,
    "sigterm-slow": "Look at should_stop() more often, at each batch, not at each epoch; or give"
    ' it more time in\njob.toml, which a pool may shorten:\n\ngrace = "{longer} s"',
    "exit-code": "Something between the agent and the program does not pass the exit code on. Let"
    " the wrapper become\nthe program:\n\nexec python3 train.py\n\nor, where lines must follow it,"
    " let the shell outlive the signal and keep the code:\n\ntrap : TERM\npython3 train.py\n"
    "code=$?\n…\nexit $code",
    "paths": 'Name in job.toml what the command really writes:\n\n[checkpoint]\npaths = ["{path}"]',
    "interval": "Leave with {code} when HEADWAY_CHECKPOINT_INTERVAL seconds are over: tick() of"
    " headway.checkpoint\ndoes. Or let the agent ask for it by a signal that the command"
    ' handles:\n\n[checkpoint]\nsignal = "SIGTERM"',
    "resume": "Load the checkpoint at the start, if there is one, and go on behind the step that"
    " it was saved after:\n\n" + _LOOP,
    "curve": "Save and load all that the next step depends on: the model, the optimizer, the"
    " scheduler, the random\nnumber generators (headway.checkpoint keeps Python's, NumPy's and"
    " torch's by itself) and the number of\nsteps done, all after the same step:\n\n" + _LOOP,
    "order": "Save where the sampler is, or make its order follow from seed and epoch alone and"
    " skip what is done:\n\ngenerator = torch.Generator().manual_seed(seed + epoch)\n"
    "order = torch.randperm(len(data), generator=generator)[batches_done * batch_size:]\n\n"
    "A generator or a data set with a state can be saved as it is:\n\n"
    "checkpoint.tick(model=model, generator=generator, data=data, step=step)",
    "seed": "Two uninterrupted runs differ: seed everything that is random, then check again:\n\n"
    "random.seed(0); numpy.random.seed(0); torch.manual_seed(0)",
    "trace": "Let the command tell each step (it costs nothing outside of a check):\n\n"
    "from headway.checkpoint import trace\n\ntrace(step=step, loss=loss, samples=indices)",
    "atomic": "Write under another name, then put it in place, and all that belongs together into"
    " one file:\n\nwith open(path + '.tmp', 'wb') as file:\n    torch.save(state, file)\n"
    "    file.flush()\n    os.fsync(file.fileno())\nos.replace(path + '.tmp', path)\n\n"
    "headway.checkpoint does, and keeps the one before:\n\n"
    'Checkpoint("{path}").save(model=model, step=step)',
    "used-folder": "Expect files of an earlier start: os.makedirs(…, exist_ok=True), open(…, 'w')"
    " instead of 'x', and no\nguard that gives up because a folder is there.",
    "cost": "Save less often, or less: an interval of at least {longer} s would make the saving"
    ' less than a tenth:\n\n[checkpoint]\ninterval = "{longer} s"',
}


def mend(name: str, *, path: str = "ckpt", code: int = 85, longer: float = 0.0) -> str:
    """What to do about a broken promise; `path`: of the checkpoint, `longer`: in seconds."""
    text = _MENDS[name]
    for word, value in (("path", path), ("code", str(code)), ("longer", f"{longer:.0f}")):
        text = text.replace("{" + word + "}", value)
    return text
