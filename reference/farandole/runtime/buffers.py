"""A model's parameters as one flat vector, its gradients as another.

An all-reduce wants one long buffer; a model has many tensors. Here the tensors become views of
two flat buffers, so communicating needs no copy: numpy and torch see the same memory.

    flat = FlatBuffers(model)
    loss.backward()                     # fills flat.gradients
    comm_all_reduce(flat.gradients_np)  # the same memory, as numpy
    flat.values.add_(flat.gradients, alpha=-learning_rate)

They hold only trained parameters, as in DDP's reducer. A frozen one (requires_grad=False) of any type keeps its memory
and is neither sent nor changed by weight decay. A tied parameter is stored once. Buffers, such as BatchNorm's running
statistics, are not parameters: see `mean_statistics`.

On a GPU the buffers live on the card, and the numpy view is a copy on the host that `to_host` and `from_host` keep up
to date: an MPI that cannot read GPU memory is given that. It is pinned, which makes the copies faster, unless it lies
in memory of the caller's, such as a shared window. With `--card-transport direct` there is no such copy of the
gradients: `on_wire` is then the card's own memory. Flat gradients move between host and card only here and, in buckets,
in `copy_stream`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.runtime.card_vector import CardVector
from farandole.runtime.copy_stream import GradientCopies
from farandole.runtime.devices import empty_on_host, finish, on_host

WHOLE = slice(None)
KINDS = (torch.float32, torch.float64, torch.float16)  # the types that both torch and numpy have


def trained(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that flat buffers hold, in order: those with requires_grad, each tied one once."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class FlatBuffers:
    """Flat views of a module's trained parameters and their gradients; changes the module to use them.

    Parameters of any memory format become contiguous. `load_state_dict` and optimizers change values in place, so they
    work as before. If a parameter has left the buffer, the next step raises an error.

    Args:
        gradients: memory for the gradients that numpy sees; None: memory of their own.
        direct: MPI reads gradients on the card (`transport`); it changes nothing on a CPU.

    Attributes:
        values: all trained parameters, one after the other, shape (number of parameters,).
        on_wire: the gradients as what an all-reduce is given: `gradients_np`, or with `direct` a `CardVector`.
        gradients_np: the gradients as the numpy array that is sent; empty with `direct`.
        values_np: the parameters as the numpy array that a parameter server's values come into.

    Raises:
        UsageError: parameters differ in type or device, have a type that numpy lacks, or share memory without being the
            same parameter. One flat vector would change their values.
    """

    def __init__(self, module: nn.Module, gradients: NDArray[Any] | None = None, direct: bool = False) -> None:
        parameters = trained(module)
        _check(module, gradients)
        first = parameters[0] if parameters else torch.empty(0)  # a part of a model may be without parameters
        count = sum(parameter.numel() for parameter in parameters)
        self.module = module
        self.values = torch.cat([each.data.reshape(-1) for each in parameters]) if parameters else torch.empty(0)
        is_on_host = first.device.type == "cpu"
        shared = None if gradients is None else torch.from_numpy(gradients).zero_()
        self._gradients = shared if shared is not None and is_on_host else torch.zeros_like(self.values)
        self._views: list[tuple[nn.Parameter, Tensor, Tensor]] = []  # parameter, views of its value and its gradient
        self._divide_among(parameters)
        self._direct = direct and not is_on_host
        if self._direct and gradients is not None:
            raise ValueError("memory of the host is given for gradients that MPI reads on the card")
        length = 0 if self._direct else count
        pinned = shared if shared is not None or is_on_host else empty_on_host([length], first.dtype, first.device)
        self._staged = None if is_on_host else pinned
        self._staged_values = None if is_on_host else on_host(self.values)
        self.gradients_np: NDArray[Any] = (self._gradients if self._staged is None else self._staged).numpy()
        self.on_wire: Any = CardVector(self._gradients) if self._direct else self.gradients_np
        self.values_np: NDArray[Any] = (self.values if self._staged_values is None else self._staged_values).numpy()

    def lie_in(self, values: NDArray[Any], gradients: NDArray[Any]) -> None:
        """Let other memory of the host be the parameters and the gradients, with what it contains; for a CPU only.

        Cost: nothing is copied; some microseconds for each parameter.
        """
        self.values, self._gradients = torch.from_numpy(values), torch.from_numpy(gradients)
        self.values_np, self.gradients_np, self.on_wire = values, gradients, gradients
        self._divide_among([parameter for parameter, _, _ in self._views])

    def _divide_among(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make each parameter and its gradient a view of the flat vectors."""
        lengths = [each.numel() for each in parameters]
        parts = zip(parameters, self.values.split(lengths), self._gradients.split(lengths), strict=True)
        self._views = [(each, value.view(each.shape), gradient.view(each.shape)) for each, value, gradient in parts]
        for parameter, value, gradient in self._views:
            parameter.data, parameter.grad = value, gradient

    @property
    def gradients(self) -> Tensor:
        """Return the gradients of all trained parameters, in the order of `values`; `backward()` adds into it."""
        self.collect()
        return self._gradients

    def zero_gradients(self) -> None:
        """Set all gradients to 0, and have the next backward pass add into the flat vector.

        Raises:
            UsageError: the module's parameters have changed and are no longer those in the buffer.
        """
        self._check_in_place()
        for parameter, _, gradient in self._views:
            if not _same_memory(parameter.grad, gradient):
                parameter.grad = gradient
        self._gradients.zero_()

    def collect(self) -> None:
        """Copy gradients that lie elsewhere into the flat vector, and have the next backward pass add into it.

        `module.zero_grad()` sets each `grad` to None, so the next backward pass creates new tensors and would leave the
        flat vector unchanged. A gradient that is None counts as 0.
        """
        for parameter, _, gradient in self._views:
            own = parameter.grad
            if _same_memory(own, gradient):
                continue
            if own is None:
                gradient.zero_()
            else:
                gradient.copy_(own.to_dense())  # an embedding's gradient may be sparse
            parameter.grad = gradient

    def to_host(self, place: slice = WHOLE) -> None:
        """Make the gradients, or a part of them, readable for what is given `on_wire` (only a GPU's are copied)."""
        if place == WHOLE:
            self.collect()
        if self._staged is not None and not self._direct:
            self._staged[place].copy_(self._gradients[place])

    def copies(self) -> GradientCopies:
        """Return what does as `to_host` and `from_host` beside what a card computes."""
        return GradientCopies(self._gradients, None if self._direct else self._staged)

    def from_host(self, place: slice = WHOLE) -> None:
        """Bring back what communication has left in `on_wire`; with `direct` only wait for the kernels that add up."""
        if self._direct:
            finish(self._gradients.device)
        elif self._staged is not None:
            self._gradients[place].copy_(self._staged[place])

    def values_from_host(self, place: slice = WHOLE) -> None:
        """Bring the parameters in the numpy view, or a part of them, to where the module computes."""
        if self._staged_values is not None:
            self.values[place].copy_(self._staged_values[place])

    def values_to_host(self, place: slice = WHOLE) -> None:
        """Bring the parameters, or a part of them, to the numpy view."""
        if self._staged_values is not None:
            self._staged_values[place].copy_(self.values[place])

    def _check_in_place(self) -> None:
        now = trained(self.module)
        if len(now) != len(self._views) or any(a is not b for a, (b, _, _) in zip(now, self._views, strict=True)):
            raise UsageError(
                "the model's trained parameters are not those it began with: freeze, unfreeze or replace them "
                "(load_state_dict with assign=True replaces) before the training begins"
            )
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        for parameter, value, _ in self._views:
            if not _same_memory(parameter, value):
                raise UsageError(
                    f"parameter {names[id(parameter)]} ({_kind(parameter)}) has left the flat buffer "
                    f"({_kind(value)}): call .to(), .half() or .double() before the training begins"
                )


def _check(module: nn.Module, gradients: NDArray[Any] | None) -> None:
    named = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    starts: dict[int, str] = {}
    for name, parameter in named:
        kind, first_name, first = _kind(parameter), *named[0]
        if parameter.dtype not in KINDS:
            raise UsageError(
                f"parameter {name} is {kind}: parameters must be float32, float64 or float16, which numpy and MPI "
                "can add (--precision computes in bfloat16), or frozen (requires_grad=False)"
            )
        if parameter.dtype != first.dtype or parameter.device != first.device:
            raise UsageError(
                f"parameter {name} is {kind} and {first_name} is {_kind(first)}: one flat vector holds one type on one "
                f"device. Convert the model (.to({first.dtype})) or freeze one of them (requires_grad=False)"
            )
        if parameter.numel() and starts.setdefault(parameter.data_ptr(), name) != name:
            raise UsageError(
                f"parameters {starts[parameter.data_ptr()]} and {name} share memory but are two objects: tie them by "
                "assigning the same nn.Parameter to both modules"
            )
    count = sum(each.numel() for _, each in named)
    if gradients is not None and named and gradients.dtype != torch.empty(0, dtype=named[0][1].dtype).numpy().dtype:
        raise UsageError(
            f"parameter {named[0][0]} is {_kind(named[0][1])}, and the memory for gradients is {gradients.dtype}: "
            "convert the model, or use a collective without a window"
        )
    if gradients is not None and len(gradients) != count:
        raise ValueError(f"memory for {len(gradients)} gradients, {count} parameters")


def _kind(tensor: Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    return kind if tensor.device.type == "cpu" else f"{kind} on {tensor.device}"


def _same_memory(tensor: Tensor | None, place: Tensor) -> bool:
    if tensor is None or tensor.is_sparse or tensor.dtype != place.dtype:
        return False
    return tensor.data_ptr() == place.data_ptr()


def mean_statistics(module: nn.Module, all_reduce: Callable[[NDArray[Any]], None], ranks: int) -> None:
    """Set floating-point buffers, such as BatchNorm's running statistics, to their mean over the ranks. Collective.

    While training, each rank normalises by its own part of the batch and keeps its own statistics (as DDP does without
    SyncBatchNorm). An evaluated model needs one set of statistics. Counters are equal on all ranks and stay unchanged.

    Args:
        all_reduce: sums a vector of float64 over the ranks, in place.

    Cost: one all-reduce of 8 bytes per number; nothing for a model without buffers.
    """
    buffers = [each for each in module.buffers() if each.is_floating_point() and each.numel()]
    if not buffers:
        return
    flat = torch.cat([each.detach().reshape(-1).cpu().double() for each in buffers]).numpy()
    all_reduce(flat)
    offset = 0
    for each in buffers:
        part = torch.from_numpy(np.asarray(flat[offset : offset + each.numel()] / ranks))
        each.data.copy_(part.view(each.shape))
        offset += each.numel()


def buffers_as_bytes(module: nn.Module) -> dict[str, Tensor]:
    """Return the module's buffers, as BatchNorm's statistics, as bytes by name: copies, of whatever type."""
    return {
        f"buffer/{name}": each.detach().cpu().reshape(-1).contiguous().view(torch.uint8).clone()
        for name, each in module.named_buffers()
    }


def set_buffers(module: nn.Module, parts: Mapping[str, Tensor]) -> None:
    """Set the module's buffers to what `buffers_as_bytes` has returned; those that are missing stay as they are."""
    for name, each in module.named_buffers():
        if (part := parts.get(f"buffer/{name}")) is not None:
            each.data.copy_(part.clone().view(each.dtype).view(each.shape))


def sha256(module: nn.Module) -> str:
    """Digest of all parameters' bytes in order: equal digests mean bitwise equal models."""
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
