"""``farandole bench step``: one data-parallel training step, beside torch DDP's and Horovod's.

A round is that of `step_rounds.py`: forward, backward, the gradient's mean over all ranks, the update, on 8 samples a
rank. The models are a perceptron of 10 million parameters in three hidden layers, one of 0.1 million, and a transformer
of 0.8 million that reads 64 characters; of the package transformers, where it is installed, a GPT-2 of 10 million and a
ResNet-18. With ``--large`` it is a GPT-2 of 124 million parameters, on 1 sample a rank, and each system has a launch of
its own. Peers, each in its own launch; the launches alternate in several sweeps:

- torch DDP over Gloo;
- Horovod's DistributedOptimizer over MPI; where it is not installed there is an error instead of its median.

Ours are also beside the first of them, our simplest: the ring after backward. The last is that of a user's own loop
(`own_loop.synchronous`), with torch's own SGD.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from farandole.errors import UsageError
from farandole_tools.bench.interleaved_timing import medians, row, why_not
from farandole_tools.bench.step_task import GPT2, LANGUAGE, LARGE_GPT2, OF_A_LIBRARY, OURS, RESNET, parameters
from farandole_tools.bench.versions import HOROVOD

ROUNDS_PROGRAM = "farandole_tools.bench.step_rounds"
ROUNDS = {"10 M": 8, "0.1 M": 40, LANGUAGE: 8, GPT2: 4, RESNET: 4}  # model → rounds of a sweep
LARGE = {LARGE_GPT2: 2}
SWEEPS = 3
PEERS = {"ddp": "torch DDP", "Horovod": "Horovod", "ring": "our ring"}
TUNING = {
    "torch DDP": "as installed: buckets of 25 MiB, the first of 1 MiB, over Gloo; as many threads a rank as ours",
    "Horovod": f"{HOROVOD}; as many threads a rank as ours",
    "our ring": "one all-reduce of the whole gradient, after backward",
}


def rows(ranks: int, large: bool = False) -> list[dict[str, Any]]:
    """Return a row for each of our methods and each size of model.

    Args:
        large: the model of 124 million parameters alone.

    Raises:
        LaunchError: one of the systems failed, or trained something else.
        UsageError: the large model is of a package that is not installed.
    """
    missing = {name: error for name in PEERS if (error := why_not(name))}
    apart = [[name] for name in ("ddp", "Horovod") if name not in missing]
    has_library = importlib.util.find_spec("transformers") is not None
    if large and not has_library:
        raise UsageError("--large trains a GPT-2 of the package transformers: pip install transformers")
    wanted, sweeps = (LARGE, 1) if large else (ROUNDS, SWEEPS)
    launches = [*([name] for name in OURS), *apart] if large else [list(OURS), *apart]
    rounds = {case: number for case, number in wanted.items() if has_library or case not in OF_A_LIBRARY}
    found = medians(ROUNDS_PROGRAM, launches, rounds, ranks, sweeps)
    return [
        row(name, 4 * parameters(case), ranks, its, PEERS, missing) | {"name": f"{case}: {name}"}
        for case, its in found.items()
        for name in OURS
    ]
