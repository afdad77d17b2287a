"""An optimizer's state, as pieces: each parameter's numbers have their own name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from farandole.distributed_checkpoint.pieces import Local, Piece, of_vector
from farandole.models.optimizers import SGD


def of_optimizer(tensors: Sequence[Local], optimizer: SGD, own: slice) -> Iterator[Piece]:
    """Cut the optimizer's state, of the elements `own` of a vector of these tensors (`pieces.of_vector`)."""
    for name, state in optimizer.state.items():
        if state.dim():
            yield from of_vector(tensors, state, own, prefix=f"optimizer.{name}.")


def of_trained(tensors: Sequence[Local], values: Tensor, optimizer: SGD, own: slice) -> Iterator[Piece]:
    """Cut parameters and the state of their optimizer, both of the elements `own` of a vector of these tensors."""
    yield from of_vector(tensors, values, own)
    yield from of_optimizer(tensors, optimizer, own)


def counters(optimizer: SGD) -> dict[str, int]:
    """Return what it remembers of all parameters together, such as its number of steps."""
    return {name: int(state) for name, state in optimizer.state.items() if not state.dim()}


def set_counters(optimizer: SGD, saved: Mapping[str, int]) -> None:
    """Set what `counters` has returned."""
    for name, number in saved.items():
        if name in optimizer.state:
            optimizer.state[name].fill_(number)
