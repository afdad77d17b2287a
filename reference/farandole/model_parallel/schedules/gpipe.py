"""GPipe: all micro-batches forward, then all backward, then one update.

While one stage works on a micro-batch the next works on the one before; only filling and draining
the pipeline leaves stages idle. Each stage holds the activations of all m micro-batches, or, with
recomputation, their inputs.

    bubble/total = (p − 1)/(m + p − 1)    p stages, m micro-batches
    stash        = m                      micro-batches held at most

Source: Huang et al., "GPipe: efficient training of giant neural networks using pipeline
parallelism", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.steps import Backward, Computation, Forward, Schedule, Update


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
    for micro_batch in range(micro_batches):
        yield Forward(micro_batch)
    for micro_batch in reversed(range(micro_batches)):
        yield Backward(micro_batch)
    yield Update()


GPIPE = Schedule("gpipe", computations)
