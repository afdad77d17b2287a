"""One rank's part of a model: forward and backward passes of single micro-batches, in any order.

What a backward pass needs is kept from the forward pass on, until it has been used: the activations
that autograd holds, or, with recomputation, only the inputs, from which they are computed again
(Chen et al., "Training deep nets with sublinear memory cost", 2016: a third more computation). The
outputs are sent on and not kept: a backward pass needs to know where they came from in autograd's
graph, not their values.

The gradients of all micro-batches are added up. Each micro-batch's loss is its mean times its share
of the whole batch, so the sum is the gradient of the whole batch's mean, whatever the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from farandole.model_parallel.activation_offload import ActivationOffload
from farandole.model_parallel.deferred import WeightGradients, defer_weight_gradients
from farandole.model_parallel.memory import ActivationMeter
from farandole.models.recomputation import drawing_from
from farandole.runtime.devices import random_state


class MicroBatches(Protocol):
    """The micro-batches that are under way."""

    def rows(self, micro_batch: int) -> int:
        """Return its number of samples, which every stage knows."""
        ...

    def inputs(self, micro_batch: int) -> Tensor:
        """Its samples; asked of the first virtual stage only."""
        ...

    def weighted_loss(self, micro_batch: int, outputs: Tensor) -> Tensor:
        """Its mean loss times its share of the whole batch; asked of the last virtual stage only."""
        ...


@dataclass
class Kept:
    """The state that a micro-batch's forward pass keeps for its backward pass.

    Attributes:
        inputs: the piece's inputs; their gradient comes to be in ``inputs.grad``.
        edge: where the outputs came from; None where they are to be computed again, or depend on no parameter.
        held: counts the inputs' memory for as long as this is kept.
        random_state: of the forward pass, where the outputs are to be computed again.
    """

    inputs: Tensor
    edge: GradientEdge | None
    held: object
    random_state: Tensor | None


class Stage:
    """The pieces of the model that one rank holds, by virtual stage.

    Args:
        pieces: virtual stage → the layers.
        last: the last virtual stage of the whole model, which computes the loss.
        recompute: keep inputs only.
        halves: backward passes may be taken in two halves.

    Attributes:
        meter: knows how much is kept.
        offload: moves it elsewhere; None: it stays.
        versions_travel: whether every activation comes with the number of the version of the parameters to use.
    """

    versions_travel = False

    def __init__(
        self, pieces: Mapping[int, nn.Module], last: int, *, recompute: bool = False, halves: bool = False
    ) -> None:
        self.meter = ActivationMeter(parameter for piece in pieces.values() for parameter in piece.parameters())
        self.late = WeightGradients(self.meter.hold)
        self.pieces = {v: defer_weight_gradients(piece, self.late) if halves else piece for v, piece in pieces.items()}
        self.last = last
        self.recompute = recompute
        self.offload: ActivationOffload | None = None
        self.kept: dict[tuple[int, int], Kept] = {}

    def forward(self, virtual: int, micro_batch: int, inputs: Tensor, batches: MicroBatches) -> Tensor:
        """Return the piece's outputs; the last piece's are the weighted loss.

        Args:
            inputs: of the micro-batch, for this virtual stage; their gradient will be wanted unless it is the first.
        """
        if virtual > 0:
            inputs.requires_grad_()
        held = self.meter.hold(inputs)
        state = random_state(inputs.device) if self.recompute else None
        keeping = self.offload.watching if self.offload else self.meter.watching
        with torch.set_grad_enabled(not self.recompute), keeping():
            outputs = self._compute(virtual, micro_batch, inputs, batches)
        self.kept[virtual, micro_batch] = Kept(inputs, _edge(outputs), held, state)
        return outputs.detach()

    def backward(self, virtual: int, micro_batch: int, gradient: Tensor, batches: MicroBatches) -> Tensor | None:
        """Add to the parameters' gradients, forget the micro-batch, and return the gradient of its inputs.

        Args:
            gradient: of the piece's outputs; 1 for the last piece, whose output is the loss.

        Returns:
            None for the first piece, since the gradient of the data is not needed.
        """
        kept = self.kept.pop((virtual, micro_batch))
        edge = kept.edge
        if self.recompute:
            with drawing_from(kept.random_state, kept.inputs.device), self.meter.watching():
                edge = _edge(self._compute(virtual, micro_batch, kept.inputs, batches))
        if edge is not None:
            torch.autograd.backward(edge, gradient)
        return kept.inputs.grad

    def backward_input(self, virtual: int, micro_batch: int, gradient: Tensor, batches: MicroBatches) -> Tensor | None:
        """`backward`, but the gradients of linear layers' weights wait for `backward_weight`."""
        with self.late.collecting((virtual, micro_batch)):
            return self.backward(virtual, micro_batch, gradient, batches)

    def backward_weight(self, virtual: int, micro_batch: int) -> None:
        """Compute the weights' gradients that `backward_input` has left."""
        self.late.compute((virtual, micro_batch))

    def call(self, virtual: int, micro_batch: int, inputs: Tensor) -> Tensor:
        """Return the piece on `inputs`, with the parameters it has now."""
        outputs: Tensor = self.pieces[virtual](inputs)
        return outputs

    def updated(self) -> None:
        """The parameters have moved."""

    def version_to_send(self, micro_batch: int) -> int | None:
        """Return the version of the parameters that the next stage must use for this micro-batch; None: any."""
        return None

    def version_received(self, micro_batch: int, number: int) -> None:
        """Note the version that came with a micro-batch's activation."""

    def _compute(self, virtual: int, micro_batch: int, inputs: Tensor, batches: MicroBatches) -> Tensor:
        outputs = self.call(virtual, micro_batch, inputs)
        return batches.weighted_loss(micro_batch, outputs) if virtual == self.last else outputs


def _edge(outputs: Tensor) -> GradientEdge | None:
    return get_gradient_edge(outputs) if outputs.requires_grad else None
