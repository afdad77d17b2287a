"""The activations that a rank keeps from forward to backward: counted, and by formula.

A rank has its share of the samples and all layers. So the ranks divide activations by samples, as in any data-parallel
training; what remains can be computed again (`models.recomputation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from farandole import tasks
from farandole.data.batch import Batch, leaves, size
from farandole.model_parallel.activation_offload import ActivationOffload
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.memory import ActivationMeter
from farandole.models.recomputation import recompute, unfuse
from farandole.models.recomputation_options import RecomputationOptions
from farandole.sharded.hooks import Hooks, Place, unpacked


class UnitsMeter(ActivationMeter):
    """Counts what autograd saves, of units that will be freed nothing: these are gathered again."""

    def __init__(self, ignored: Iterable[Tensor], hooks: Hooks) -> None:
        super().__init__(ignored)
        self.hooks = hooks

    @contextmanager
    def watching(self) -> Iterator[None]:
        with torch.autograd.graph.saved_tensors_hooks(self.keep if self.active else self.hooks.packed, self.kept):
            yield

    def keep(self, tensor: Tensor) -> object:
        packed = self.hooks.packed(tensor)
        return self.hold(tensor) if packed is tensor else packed

    def kept(self, instead: Any) -> Tensor:
        return unpacked(instead) if isinstance(instead, Tensor | Place) else super().kept(instead)


class Activations:
    """The activations of a model on this rank.

    Args:
        model: its blocks are made to be computed again, as the options say.
        layers: of it, in order.
        meter: counts what autograd keeps.
    """

    def __init__(
        self, options: RecomputationOptions, model: nn.Module, layers: Iterable[nn.Module], meter: UnitsMeter
    ) -> None:
        self.options, self.meter = options, meter
        self.batch: list[Tensor] = []
        self.largest = 0  # samples of a micro-batch
        place = options.offload_activations
        self.offload = ActivationOffload(place, layers, meter) if place else None
        self._held: list[object] = []
        if options.unfused_attention:
            unfuse(model)
        recompute(model, options.recomputed(), meter.watching)

    def begin(self, batch: Batch) -> None:
        """A step begins; its batch stays on the device."""
        self._held = [self.meter.hold(each) for each in leaves(batch)] if self.offload else []

    def watching(self) -> AbstractContextManager[None]:
        """The body is a forward pass."""
        return self.offload.watching() if self.offload else self.meter.watching()

    def complete(self, batch: Batch, accumulate: int) -> None:
        """A step in `accumulate` micro-batches has ended. Only those of the first step are counted: all are alike."""
        self._held = []
        if self.meter.active:
            self.meter.active = False
            self.batch = [torch.empty_like(each, device="meta") for each in leaves(batch)]
            self.largest = -(-size(batch) // accumulate)

    def by_formula(self, dtype: torch.dtype) -> int | None:
        """Return the most bytes that are kept at once, of a model that computes in this type; None: not known."""
        if self.options.task:
            return None
        with torch.device("meta"):
            layers = tasks.built_in(self.options).model().to(dtype)
        whole, targets = self.batch  # of which a micro-batch is a view: they are there until the step ends
        inputs = whole[: self.largest].to(dtype if whole.is_floating_point() else whole.dtype)
        more_inputs = whole[self.largest :].nbytes if inputs.dtype == whole.dtype else 0
        more_targets = targets[self.largest :].nbytes
        again, fused = self.options.recompute, not self.options.unfused_attention
        kept = footprint(layers, inputs, loss=True, recompute=again, fused=fused)
        if kept is None:
            return None
        if self.offload:
            return kept.in_flight + whole.nbytes + targets.nbytes
        # Backward lets go of the targets before it computes anything again.
        return kept.activations + more_inputs + max(kept.again, more_targets)
