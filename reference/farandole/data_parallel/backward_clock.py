"""The time at which backward ends, for libraries that overlap it with communication.

Horovod and DDP communicate from inside ``backward()``. Only the communication after the last gradient delays a step:
the exposed communication. This clock hooks into every trained parameter to record the time of the last gradient. If a
parameter gets no gradient, as in a branch that was not taken, it records the end of ``backward()``.

On a card, a gradient is computed when the stream of its kernels is done. The clock waits for this stream alone: copies
on other streams count as communication.
"""

from __future__ import annotations

import time

from torch import Tensor, nn

from farandole.runtime.buffers import trained
from farandole.runtime.world import World


class BackwardClock:
    """Traces a step as computation up to its last gradient, and as communication from there on."""

    def __init__(self, world: World, model: nn.Module) -> None:
        self.world = world
        self._parameters = trained(model)
        self._start = self._last_gradient = 0.0
        self._missing = 0
        for parameter in self._parameters:
            # This hook runs before the libraries' own, so a slow rank is late in communicating too.
            parameter.register_post_accumulate_grad_hook(self._gradient_is_there)

    def start(self, passes: int = 1) -> None:
        """The first of `passes` forward and backward passes begins."""
        self._missing = passes * len(self._parameters)
        self._start = time.perf_counter()

    def backward_has_ended(self) -> None:
        """No further gradient will come, even if some are missing."""
        if self._missing:
            self._all_is_computed()

    def communicated(self) -> None:
        """All gradients are reduced."""
        trace = self.world.trace
        trace.add("forward and backward", "compute", self._start, self._last_gradient)
        key = trace.collective_key("all-reduce")
        trace.add("all-reduce", "communicate", self._last_gradient, time.perf_counter(), key=key)

    def _gradient_is_there(self, _: Tensor) -> None:
        self._missing -= 1
        if not self._missing:
            self._all_is_computed()

    def _all_is_computed(self) -> None:
        self.world.finish_computation(self._start)
        self._last_gradient = time.perf_counter()
