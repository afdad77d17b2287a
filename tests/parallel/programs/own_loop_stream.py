"""The samples of a stream that each rank of a loop gets.

own_loop_stream.py OUT BATCH STEPS
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import IterableDataset

from farandole import OwnLoop

SAMPLES = 17


class Numbers(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.arange(float(SAMPLES))


out, batch, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with OwnLoop("sync_sgd", out=out, wait_timeout=30, device="cpu") as loop:
    model = loop.share(torch.nn.Linear(1, 1))
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.001))
    seen = []
    for numbers in loop.batches(Numbers(), batch, steps=steps):
        seen.append(numbers.int().tolist())
        optimizer.zero_grad()
        model(numbers[:, None]).mean().backward()
        optimizer.step()
(out / f"rank-{loop.world.rank}.json").write_text(json.dumps(seen))
