"""A loop under backup whose state is more than its parameters: a schedule, momentum, dropout, BatchNorm, readers.

own_loop_survives.py OUT OPTIONS
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

from farandole import OwnLoop

noise = np.random.default_rng(0)
X, Y = noise.standard_normal((60, 5)).astype(np.float32), noise.standard_normal((60, 2)).astype(np.float32)


class Rows:
    """A Dataset, which two worker processes of each rank read ahead."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        return X[number], Y[number]


out, options = Path(sys.argv[1]), json.loads(sys.argv[2])
with OwnLoop("backup", out=out, wait_timeout=30, device="cpu", backup_every=4, **options) as loop:
    model = loop.share(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2)))
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), every=2)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 9], gamma=0.3)
    loop.keep(schedule)
    seen = []
    for x, y in loop.batches(Rows(), 20, epochs=8, loader={"num_workers": 2}):
        seen.append(loop.step)
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        loop.log(loss, lr=schedule.get_last_lr()[0])
state = hashlib.sha256(b"".join(each.numpy().tobytes() for each in model.state_dict().values())).hexdigest()
(out / f"rank-{loop.world.rank}.json").write_text(json.dumps({"steps": seen, "state": state}))
