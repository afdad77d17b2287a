"""A user's complete program: its own model, data and loss, trained by two methods on the ranks that run it."""

import json
import sys

import numpy as np
from torch import nn
from torch.nn.functional import mse_loss

from farandole import Task, train

x = np.random.default_rng(0).uniform(-1, 1, (96, 3)).astype(np.float32)
y = x.sum(axis=1, keepdims=True) ** 2
task = Task(lambda: nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)), (x, y), (x, y), criterion=mse_loss)
found = {}
for method, options in {"sync_sgd": {}, "parameter_server": {"sync": "bsp"}}.items():
    run = train(method, task, steps=6, batch=96, lr=0.1, out=f"{sys.argv[1]}/{method}", **options)
    if run:
        found[method] = [line["loss"] for line in run.metrics]
if found:
    print(json.dumps(found))
