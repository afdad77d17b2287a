"""What a rank keeps from forward to backward, beside its parts of the training state: counted, and by formula.

A rank has its share of the samples and all layers. So the ranks divide activations by samples, as in any data-parallel
training; what remains can be computed again (`models.recomputation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from farandole.data.batch import Batch, leaves, size
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.memory import ActivationMeter
from farandole.models import choices
from farandole.models.recomputation import recompute, unfuse
from farandole.models.recomputation_options import RecomputationOptions
from farandole.sharded.hooks import Hooks, Place, unpacked
from farandole.sharded.options import Sharding


class UnitsMeter(ActivationMeter):
    """Counts what autograd saves, of units that will be freed nothing: these are gathered again."""

    def __init__(self, ignored: Iterable[Tensor], hooks: Hooks) -> None:
        super().__init__(ignored)
        self.hooks = hooks

    @contextmanager
    def watching(self) -> Iterator[None]:
        def pack(tensor: Tensor) -> object:
            packed = self.hooks.packed(tensor)
            return self.hold(tensor) if self.active and packed is tensor else packed

        def unpack(saved: object) -> Tensor:
            return unpacked(saved) if isinstance(saved, Tensor | Place) else saved.release()  # type: ignore[attr-defined]

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield


class Activations:
    """The activations of a built-in model on this rank.

    Args:
        model: its blocks are made to be computed again, as the options say.
        meter: counts what autograd keeps.
    """

    def __init__(self, options: RecomputationOptions, model: nn.Module, meter: UnitsMeter) -> None:
        self.options, self.meter = options, meter
        self.batch: list[Tensor] = []
        self.largest = 0  # samples of a micro-batch
        if options.unfused_attention:
            unfuse(model)
        recompute(model, options.recomputed(), meter.watching)

    def complete(self, batch: Batch, accumulate: int) -> None:
        """A step in so many micro-batches has ended; all are like the first, of which the bytes are counted."""
        if self.meter.active:
            self.meter.active = False
            self.batch = [torch.empty_like(each, device="meta") for each in leaves(batch)]
            self.largest = -(-size(batch) // accumulate)

    def account(self, sharding: Sharding) -> tuple[int, int | None]:
        """Return the most bytes that were kept at once, and by formula; None: it is not known."""
        dtype = torch.bfloat16 if sharding.half else torch.float32
        with torch.device("meta"):
            layers = choices.build(self.options).to(dtype)
        whole, targets = self.batch  # of which a micro-batch is a view: they are there until the step ends
        inputs = whole[: self.largest].to(dtype if whole.is_floating_point() else whole.dtype)
        more_inputs = whole[self.largest :].nbytes if inputs.dtype == whole.dtype else 0
        more_targets = targets[self.largest :].nbytes
        again, fused = self.options.recompute, not self.options.unfused_attention
        kept = footprint(layers, inputs, loss=True, recompute=again, fused=fused)
        # Backward lets go of the targets before it computes anything again.
        return self.meter.most, kept.activations + more_inputs + max(kept.again, more_targets) if kept else None
