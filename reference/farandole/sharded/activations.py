"""What a rank keeps from forward to backward, beside its parts of the training state: counted, and by formula.

A rank has its share of the samples and all layers. So the ranks divide activations by samples, as in any data-parallel
training; what remains can be computed again (`models.recomputation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from farandole.data.batch import Batch, leaves
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
        self.inputs = torch.empty(0, device="meta")
        if options.unfused_attention:
            unfuse(model)
        recompute(model, options.recomputed(), meter.watching)

    def complete(self, batch: Batch) -> None:
        """A step has ended; all are like the first, of which the bytes are counted."""
        if self.meter.active:
            self.meter.active = False
            first = next(leaves(batch))
            self.inputs = torch.empty(first.shape, dtype=first.dtype, device="meta")

    def account(self, sharding: Sharding) -> tuple[int, int | None]:
        """Return the most bytes that were kept at once, and by formula; None: it is not known."""
        dtype, inputs = torch.bfloat16 if sharding.half else torch.float32, self.inputs
        with torch.device("meta"):
            layers = choices.build(self.options).to(dtype)
        inputs = torch.empty(inputs.shape, dtype=dtype if inputs.is_floating_point() else inputs.dtype, device="meta")
        again, fused = self.options.recompute, not self.options.unfused_attention
        kept = footprint(layers, inputs, loss=True, recompute=again, fused=fused)
        return self.meter.most, kept.activations + kept.again if kept else None
