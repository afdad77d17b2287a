"""A loop under each method with a model of other types than float32, and with parameters in another memory order.

own_loop_types.py OUT TYPE METHOD OPTIONS
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss

from farandole import OwnLoop

out, kind, method, options = Path(sys.argv[1]), getattr(torch, sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
torch.manual_seed(0)
X = torch.randn(64, 6)
X, Y = X.to(kind), (X[:, :2] / 2).to(kind)
with OwnLoop(method, out=out, wait_timeout=30, device="cpu", **options) as loop:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2), nn.LayerNorm(2).requires_grad_(False)).to(kind)
    model[0].weight = nn.Parameter(model[0].weight.t().contiguous().t())  # not contiguous
    model[2].bias = nn.Parameter(model[2].bias.double().to(kind))
    for name, values in {"counts": [3, 4], "flags": [True], "halves": [0.5]}.items():
        model.register_buffer(name, torch.tensor(values, dtype=torch.bfloat16 if name == "halves" else None))
    model[3].register_buffer("nothing", torch.zeros(0))
    loop.share(model)
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5))
    for x, y in loop.batches((X, Y), 16, epochs=10):
        optimizer.zero_grad()
        loss = mse_loss(model[2](model[1](model[0](x))).float(), y.float())
        loss.backward()
        optimizer.step()
        loop.log(loss)
ends = [model.counts.tolist(), model.flags.tolist(), model.halves.tolist(), str(model[0].weight.dtype)]
(out / f"rank-{loop.world.rank}.json").write_text(json.dumps(ends))
