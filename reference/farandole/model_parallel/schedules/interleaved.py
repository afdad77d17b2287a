"""Interleaved 1F1B: each rank holds v pieces of the model instead of one, so the pipeline fills v times as fast.

Rank s holds virtual stages s, s + p, s + 2p, …: a micro-batch passes all ranks v times. Micro-batches go in
groups of p: the first group through chunk 0, then through chunk 1, and so on, then the next group.
Filling takes one chunk's time per rank, not a stage's:

    bubble/ideal = (p − 1)/(v·m)    p ranks, v chunks, m micro-batches, a multiple of p
    stash        = min(2(p − s − 1) + (v − 1)p + 1, v·m)    held at most by rank s, in chunks

One chunk's activations are 1/v of what a stage of 1F1B holds for a micro-batch.

Cost: (pv − 1)/(p − 1) times as many messages, and more activations in warm-up. Source: Narayanan et al.,
"Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.errors import UsageError
from farandole.model_parallel.placement import Placement
from farandole.model_parallel.steps import Backward, Computation, Forward, Schedule, Update


def interleaved(chunks: int) -> Schedule:
    """Return the schedule with this number of pieces of the model per rank; with one it is 1F1B in another order.

    Its computations raise UsageError where micro-batches are not whole groups.
    """

    def passes(stages: int, micro_batches: int) -> list[tuple[int, int]]:
        """(micro-batch, chunk) of every forward pass, in the order of all ranks."""
        groups = range(0, micro_batches, stages)
        return [(first + place, chunk) for first in groups for chunk in range(chunks) for place in range(stages)]

    def warm_up(stage: int, stages: int, micro_batches: int) -> int:
        return min(2 * (stages - stage - 1) + (chunks - 1) * stages, chunks * micro_batches)

    def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
        if micro_batches % stages:
            fit = -(-micro_batches // stages) * stages
            raise UsageError(
                f"{micro_batches} micro-batches are not whole groups of {stages}: "
                f"interleaving takes a multiple, as {fit}"
            )
        order = passes(stages, micro_batches)
        forward = [Forward(micro_batch, chunk) for micro_batch, chunk in order]
        backward = [Backward(micro_batch, chunks - 1 - chunk) for micro_batch, chunk in order]
        ahead = warm_up(stage, stages, micro_batches)
        yield from forward[:ahead]
        for next_forward, next_backward in zip(forward[ahead:], backward, strict=False):
            yield next_forward
            yield next_backward
        yield from backward[len(forward) - ahead :]
        yield Update()

    return Schedule("interleaved", computations, Placement(chunks))
