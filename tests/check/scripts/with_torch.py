"""A training with torch; `--forget` leaves the optimizer out of the checkpoint."""

import sys
import time

import torch

from headway.checkpoint import Checkpoint, trace

torch.set_num_threads(1)
torch.manual_seed(0)
data = torch.randn(64, 4)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
things = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
if "--forget" in sys.argv:
    del things["optimizer"]
checkpoint = Checkpoint("ckpt")
kept = checkpoint.load(**things)
step = kept["step"] if kept else 0
while step < 40:
    time.sleep(0.015)  # long enough to be interrupted
    chosen = torch.randint(0, 64, (8,))
    loss = (model(data[chosen]).squeeze() - data[chosen].sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    step += 1
    trace(step=step, loss=loss, samples=chosen)
    checkpoint.tick(step=step, **things)
torch.save(model.state_dict(), "model.json")
