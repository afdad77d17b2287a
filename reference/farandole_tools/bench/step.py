"""``farandole bench step``: one data-parallel training step, beside torch DDP's and Horovod's.

A round is that of `step_rounds.py`: forward, backward, the gradient's mean over all ranks, the update, on 8 samples a
rank. The models are a perceptron of 10 million parameters in three hidden layers, one of 0.1 million, and a transformer
of 0.8 million that reads 64 characters; of the package transformers, where it is installed, a GPT-2 of 10 million and a
ResNet-18. Peers, each in its own launch; the launches alternate in several sweeps:

- torch DDP over Gloo;
- Horovod's DistributedOptimizer over MPI; where it is not installed there is an error instead of its median.

Ours are also beside the first of them, our simplest: the ring after backward. The last is that of a user's own loop
(`own_loop.synchronous`), with torch's own SGD.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from farandole_tools.bench.interleaved_timing import medians, row, why_not
from farandole_tools.bench.step_task import GPT2, LANGUAGE, OF_A_LIBRARY, OURS, RESNET, parameters

ROUNDS_PROGRAM = "farandole_tools.bench.step_rounds"
ROUNDS = {"10 M": 8, "0.1 M": 40, LANGUAGE: 8, GPT2: 4, RESNET: 4}  # model → rounds of a sweep
SWEEPS = 3
PEERS = {"ddp": "torch DDP", "Horovod": "Horovod", "ring": "our ring"}


def rows(ranks: int) -> list[dict[str, Any]]:
    """Return a row for each of our methods and each size of model.

    Raises:
        LaunchError: one of the systems failed, or trained something else.
    """
    missing = {name: error for name in PEERS if (error := why_not(name))}
    launches = [list(OURS), *([name] for name in ("ddp", "Horovod") if name not in missing)]
    has_library = importlib.util.find_spec("transformers") is not None
    rounds = {case: number for case, number in ROUNDS.items() if has_library or case not in OF_A_LIBRARY}
    found = medians(ROUNDS_PROGRAM, launches, rounds, ranks, SWEEPS)
    return [
        row(name, 4 * parameters(case), ranks, its, PEERS, missing) | {"name": f"{case}: {name}"}
        for case, its in found.items()
        for name in OURS
    ]
