"""This rank's part of each batch of a loop, step by step, whichever ranks are there.

The samples are divided as for any data-parallel training (`data.elastic_sampler`): a step's batch does not depend on
the ranks, and a rank's part is the next of its own share, as long as there are as many workers as at first.
"""

from __future__ import annotations

from farandole.data.batch import Batch
from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data.read_ahead import ahead
from farandole.data.sampler import check_filled, samples_used, steps_per_epoch
from farandole.data.samples import Samples
from farandole.data.shares import equal_shares, slices
from farandole.data.stream import Stream, in_batches
from farandole.errors import UsageError
from farandole.own_loop.loop_method import LoopMethod


class Parts:
    """The parts of the batches from one step on.

    Args:
        batch: samples of a step, of all workers together.
        first: the number of the first step.
        epochs, steps: how many steps there are: those of `epochs` epochs, or `steps`.

    Attributes:
        count: the number of steps.
        own, whole: the samples of the last part, and of its batch.

    Raises:
        UsageError: a batch larger than the set, or too small for the workers; a stream without `steps`, or with a
            method that may have to divide it anew.
    """

    def __init__(
        self, samples: Samples, batch: int, method: LoopMethod, seed: int, first: int, epochs: int, steps: int | None
    ) -> None:
        self.batch, self.method, self.seed, self.first = batch, method, seed, first
        slot, slots = method.slot
        whole = in_batches(samples, batch, slots)
        is_stream = isinstance(whole, Stream)
        if is_stream and method.passes_on:
            raise UsageError("an IterableDataset cannot be divided anew after a death: give samples with numbers")
        if is_stream and steps is None:
            raise UsageError("an IterableDataset has no epochs that can be counted: give steps=")
        self.shares = equal_shares(len(whole), slots)
        epoch = steps_per_epoch(len(whole), batch)
        self.count = epochs * epoch if steps is None else steps
        check_filled(self.shares, batch, self.count)
        if min(self.shares) < epoch:
            raise UsageError(f"batch={batch}: some ranks would have no sample in a step; give at least {slots}")
        readable = slice(0, len(whole)) if method.passes_on else slices(self.shares)[slot]
        self._offset = readable.start
        self._reader = (whole.share(self.shares, slot) if is_stream else whole[readable]).on(method.world.device)
        self._sampler = ElasticSampler(self.shares, batch, seed)
        self._foreseen = (-1, -1, 0)  # the step that follows, and the place among the workers, that are prepared
        self.own = self.whole = 0

    def take(self, step: int) -> Batch:
        """Return this worker's part of a step's batch, on its device."""
        slot, slots = self.method.slot
        if (step, slot, slots) != self._foreseen:
            self._sampler.go_to(step)
            coming = (rows - self._offset for rows in self._sampler.coming(slot, slots))
            ahead(self._reader, coming, self.seed, self.method.world.rank, step)
        self._foreseen = step + 1, slot, slots
        parts = divide(next(self._sampler), slots)
        self.own, self.whole = len(parts[slot]), sum(map(len, parts))
        return self._reader[parts[slot] - self._offset]

    def used(self, following: int) -> int:
        """Return how many samples all steps before `following` use, each step counted once."""
        return samples_used(self.shares, self.batch, following - self.first)
