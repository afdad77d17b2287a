"""Weight stashing: a batch goes backward with the parameters that it went forward with.

Without a flush the parameters move while batches are under way. Each update therefore makes a new
version instead of overwriting the old one; autograd's graph holds on to the version that its
forward pass used, and lets go of it with the backward pass. Cost: as many versions of the stage's
parameters as batches are under way, at most p − s at stage s. Source: Narayanan et al.,
"PipeDream: generalized pipeline parallelism for DNN training", 2019.

So different stages use different versions. With *vertical sync* (an option of the same paper) all stages use the
version that the first one used. Its number travels with the batch, and every stage keeps a version until no later batch
can need it. Cost: p versions at every stage, and 8 bytes per message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.func import functional_call

from farandole.model_parallel.stage import MicroBatches, Stage


@dataclass(frozen=True)
class Version:
    """The parameters after a number of updates: for each piece its tensors by name, leaves of autograd's graph."""

    number: int
    tensors: dict[int, dict[str, Tensor]]


class StashingStage(Stage):
    """A stage of PipeDream.

    Attributes:
        forward_versions: batch → number of the version that its forward pass used.
        backward_versions: batch → number of the version that its gradient was computed with.
        most_versions: the largest number of versions held at once.
    """

    def __init__(self, pieces: Mapping[int, nn.Module], last: int, *, recompute: bool = False) -> None:
        super().__init__(pieces, last, recompute=recompute)
        self.newest = self._copy(0)
        self.stash: dict[tuple[int, int], Version] = {}  # (virtual stage, batch) → what it went forward with
        self.forward_versions: dict[int, int] = {}
        self.backward_versions: dict[int, int] = {}
        self.most_versions = 1

    def forward(self, virtual: int, micro_batch: int, inputs: Tensor, batches: MicroBatches) -> Tensor:
        used = self.version_for(micro_batch)
        self.stash[virtual, micro_batch] = used
        self.forward_versions[micro_batch] = used.number
        self.most_versions = max(self.most_versions, len(self.numbers_held()))
        return super().forward(virtual, micro_batch, inputs, batches)

    def backward(self, virtual: int, micro_batch: int, gradient: Tensor, batches: MicroBatches) -> Tensor | None:
        result = super().backward(virtual, micro_batch, gradient, batches)
        version = self.stash.pop((virtual, micro_batch))
        for name, parameter in self.pieces[virtual].named_parameters():
            leaf = version.tensors[virtual][name]
            assert parameter.grad is not None
            assert leaf.grad is not None, "the gradient went to another version"
            parameter.grad += leaf.grad
            leaf.grad = None
        self.backward_versions[micro_batch] = version.number
        return result

    def version_for(self, micro_batch: int) -> Version:
        """Return the version with which a batch goes forward: the newest."""
        return self.newest

    def numbers_held(self) -> set[int]:
        """Return the numbers of the versions that batches under way will go backward with."""
        return {version.number for version in self.stash.values()}

    def call(self, virtual: int, micro_batch: int, inputs: Tensor) -> Tensor:
        """Return the piece on `inputs`, with the version stashed for this batch."""
        tensors = self.stash[virtual, micro_batch].tensors[virtual]
        outputs: Tensor = functional_call(self.pieces[virtual], tensors, (inputs,))
        return outputs

    def updated(self) -> None:
        self.newest = self._copy(self.newest.number + 1)

    def _copy(self, number: int) -> Version:
        tensors = {
            virtual: {name: p.detach().clone().requires_grad_() for name, p in piece.named_parameters()}
            for virtual, piece in self.pieces.items()
        }
        for copies in tensors.values():
            self.meter.ignore(copies.values())
        return Version(number, tensors)


class SynchronisedStage(StashingStage):
    """A stage of PipeDream with vertical sync: it uses the version that the first stage used.

    Attributes:
        versions: number → version, for all that a batch may still need.
    """

    versions_travel = True

    def __init__(self, pieces: Mapping[int, nn.Module], last: int, *, recompute: bool = False) -> None:
        super().__init__(pieces, last, recompute=recompute)
        self.versions = {0: self.newest}
        self._wanted: dict[int, int] = {}  # batch → the version that came with it

    def version_for(self, micro_batch: int) -> Version:
        """Return the version that came with a batch, and discard older ones, which no later batch can need."""
        number = self._wanted.pop(micro_batch, self.newest.number)
        self.versions = {known: version for known, version in self.versions.items() if known >= number}
        return self.versions[number]

    def numbers_held(self) -> set[int]:
        """Return the numbers that batches under way will go backward with, and those that a batch may still need."""
        return super().numbers_held() | set(self.versions)

    def version_to_send(self, micro_batch: int) -> int:
        return self.forward_versions[micro_batch]

    def version_received(self, micro_batch: int, number: int) -> None:
        self._wanted[micro_batch] = number

    def updated(self) -> None:
        super().updated()
        self.versions[self.newest.number] = self.newest
