"""Layer split: a model is cut into parts on several ranks, and put together again after the training.

Document 000's steps, with the roles made exact (errata 000.5, 000.6):

    upload   the root builds the model; no other rank needs memory for all of it
    cut      the root cuts it into contiguous parts, so that the largest cost is smallest (`partition`)
    tell     all ranks learn which layers are where, and the shapes that pass between them
    send     each part's parameters go to the ranks that hold it
    train    each rank trains its part: activations go forward, their gradients back
    gather   the root receives the parts

Other ranks build their part on torch's meta device, where parameters have a shape but no memory,
until the real ones arrive.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from farandole.model_parallel.memory import ActivationMeter
from farandole.model_parallel.partition import min_max_partition
from farandole.runtime import devices
from farandole.runtime.buffers import buffers_as_bytes, set_buffers
from farandole.runtime.communicator import Communicator, broadcast_text
from farandole.runtime.files import json_text
from farandole.runtime.world import World

Balance = Literal["time", "memory", "layers"]
MEASUREMENTS = 5

Build = Callable[[], Sequence[nn.Module]]  # makes the layers of the whole model


@dataclass(frozen=True)
class Plan:
    """Which layers each virtual stage has.

    Attributes:
        bounds: virtual stage v has the layers bounds[v] … bounds[v + 1] − 1.
        shapes: of each virtual stage's inputs, without the samples' axis.
        costs: of each layer, by what the cut was balanced.
    """

    bounds: list[int]
    shapes: list[tuple[int, ...]]
    costs: list[float]

    @property
    def parts(self) -> list[slice]:
        return [slice(first, last) for first, last in zip(self.bounds, self.bounds[1:], strict=False)]

    def to_json(self) -> str:
        return json_text({"bounds": self.bounds, "shapes": self.shapes, "costs": self.costs})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        values = json.loads(text)
        return cls(values["bounds"], [tuple(shape) for shape in values["shapes"]], values["costs"])


def cut(layers: Sequence[nn.Module], samples: Tensor, stages: int, balance: Balance) -> Plan:
    """Measure each layer on `samples` and cut where the largest part costs least.

    A layer is on the device of `samples` while it is measured, and on the host before and after: of the whole model the
    device holds one layer at a time.

    Args:
        samples: a micro-batch, on the device that will compute.
        balance: by the time of a forward and backward pass; by the memory that parameters, their gradients and one
            micro-batch's activations take; or by the number of layers.

    Raises:
        UsageError: more stages than layers.
    """
    times, sizes, shapes = [], [], []
    inputs = samples
    passes = MEASUREMENTS if balance == "time" and stages > 1 else 1  # memory is the same in each
    for layer in layers:
        shapes.append(tuple(inputs.shape[1:]))
        outputs, seconds, nbytes = _measure(layer, inputs, passes)
        times.append(seconds)
        sizes.append(float(nbytes))
        inputs = outputs
    costs = {"time": times, "memory": sizes, "layers": [1.0] * len(layers)}[balance]
    parts = min_max_partition(costs, stages)
    bounds = [part.start for part in parts] + [len(layers)]
    return Plan(bounds, [shapes[part.start] for part in parts], costs)


def send_parts(
    plan: Plan, build: Build, layers: Sequence[nn.Module], holders: Mapping[int, Sequence[int]], world: World
) -> dict[int, nn.Sequential]:
    """Send each part from rank 0 to its holders; returns the own ones, by virtual stage. Collective.

    Cost at the root: the bytes of each part times its holders elsewhere.

    Args:
        build: makes the same layers on any rank.
        layers: the real ones, on rank 0; ignored elsewhere.
        holders: virtual stage → the ranks of `world.comm` that hold it.
    """
    own: dict[int, nn.Sequential] = {}
    here = world.comm.rank
    if here != 0:
        own = empty_parts(plan, build, holders, world)
        for piece in own.values():
            _receive(piece, 0, world.comm)
        return {virtual: piece.to(world.device) for virtual, piece in own.items()}
    for virtual, part in enumerate(plan.parts):
        piece = nn.Sequential(*layers[part])
        for rank in holders[virtual]:
            if rank != 0:
                _send(piece, rank, world.comm)
        if here in holders[virtual]:
            own[virtual] = piece.to(world.device)
    return own


def empty_parts(
    plan: Plan, build: Build, holders: Mapping[int, Sequence[int]], world: World
) -> dict[int, nn.Sequential]:
    """Return the own parts, by virtual stage, in the host's memory; their parameters have no values yet."""
    with torch.device("meta"):
        layers = build()
    return {
        virtual: nn.Sequential(*layers[part]).to_empty(device="cpu")
        for virtual, part in enumerate(plan.parts)
        if world.comm.rank in holders[virtual]
    }


def gather(
    plan: Plan,
    build: Build,
    own: Mapping[int, nn.Sequential],
    holders: Mapping[int, Sequence[int]],
    world: World,
    root: int = 0,
) -> nn.Sequential | None:
    """The whole model on rank `root`, each part from the first rank that holds it; None elsewhere. Collective."""
    if world.comm.rank != root:
        for virtual, piece in own.items():
            if holders[virtual][0] == world.comm.rank:
                _send(piece, root, world.comm)
        return None
    with torch.device("meta"):
        whole = nn.Sequential(*build())
    for virtual, part in enumerate(plan.parts):
        piece = nn.Sequential(*list(whole)[part])
        piece.to_empty(device="cpu")
        if holders[virtual][0] == root:
            piece.load_state_dict(own[virtual].state_dict())
        else:
            _receive(piece, holders[virtual][0], world.comm)
    return whole.to(world.device)


def agree(plan: Plan | None, world: World) -> Plan:
    """Tell all ranks of rank 0's plan, for which they wait while it measures. Collective."""
    with world.comm.waiting("rank 0's plan of the model", 0):
        text = broadcast_text(world.control, plan.to_json() if plan else "")
    return Plan.from_json(text)


def _measure(layer: nn.Module, inputs: Tensor, passes: int) -> tuple[Tensor, float, int]:
    """A layer's outputs, the seconds of the fastest of `passes` forward and backward passes, and the bytes it needs."""
    seconds, device = float("inf"), inputs.device
    statistics = buffers_as_bytes(layer)
    layer.to(device)
    parameters = list(layer.parameters())
    meter = ActivationMeter(parameters)
    for _ in range(passes):
        given = inputs.detach().requires_grad_(inputs.is_floating_point())
        devices.finish(device)
        start = time.perf_counter()
        with meter.watching():
            outputs: Tensor = layer(given)
        if outputs.requires_grad:
            outputs.backward(torch.ones_like(outputs))
        devices.finish(device)  # a card computes on after the call that has started it
        seconds = min(seconds, time.perf_counter() - start)
    layer.zero_grad(set_to_none=True)
    layer.to("cpu")
    set_buffers(layer, statistics)  # BatchNorm's have seen the measurement
    return outputs.detach(), seconds, meter.most + 2 * sum(parameter.nbytes for parameter in parameters)


def _send(piece: nn.Module, rank: int, comm: Communicator) -> None:
    for tensor in piece.state_dict().values():
        comm.send(tensor.cpu().contiguous().numpy(), rank)


def _receive(piece: nn.Module, rank: int, comm: Communicator) -> None:
    for tensor in piece.state_dict().values():
        comm.receive(tensor.numpy(), rank)
