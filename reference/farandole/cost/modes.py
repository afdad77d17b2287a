"""Which mode fits: data, pipeline, tensor or a grid of them, predicted from memory and measured speeds.

Document 003 wants the strategy to adapt to the devices (自适应并行策略). A mode is a factorisation data × pipeline ×
tensor of the devices and a number of micro-batches. For each mode these are predicted, for a step of B samples on D
pipelines of P stages of T ranks, in M micro-batches:

    memory       parameters/T·(2 + optimizer state) of the fullest stage + what its micro-batches under way keep
    pass         3·operations·B/(D·M) / (T·speed) + overhead per layer, of the slowest stage
                 + its all-reduces over T, + the messages to the next stage
    step         the 1F1B schedule, executed with such passes, + the ring all-reduce of a stage's gradient over D

Times of all-reduces and of the pipeline come from the schedules themselves (`collectives.costs`,
`model_parallel.checker`). The slowest device sets the pace, the smallest the memory, since all get equal parts. No
message overlaps with computing. Sources: Jia, Zaharia & Aiken, "Beyond data and model parallelism for deep neural
networks", 2019; Zheng et al., "Alpa: automating inter- and intra-operator parallelism", 2022, both for much larger
spaces of plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from farandole.collectives.costs import Link
from farandole.cost.cost_function import all_reduce_s
from farandole.cost.layer_costs import LayerCost, ModelCost
from farandole.model_parallel.checker import execute
from farandole.model_parallel.grid import factorisations
from farandole.model_parallel.partition import min_max_partition
from farandole.model_parallel.schedules.one_f_one_b import ONE_F_ONE_B
from farandole.model_parallel.step_costs import most_held
from farandole.models.operations import FORWARD_AND_BACKWARD
from farandole.models.training_state import STATE_PER_PARAMETER

MOST_MICRO_BATCHES = 64


@dataclass(frozen=True)
class Device:
    """One device, and its connection with the others.

    Attributes:
        flops: operations a second, while all devices compute.
        memory: bytes for training.
        overhead_s: seconds that a layer's forward and backward pass takes at least, however small it is.
    """

    flops: float
    memory: float
    link: Link
    overhead_s: float = 0.0


@dataclass(frozen=True)
class Mode:
    """One way to distribute the training, with its predicted memory and times.

    Attributes:
        memory: bytes on the fullest device.
        compute_s, communicate_s, idle_s: seconds of a step on the slowest stage; their sum is the whole step.
        fits: whether each device's memory is enough.
    """

    data: int
    pipeline: int
    tensor: int
    micro_batches: int
    memory: int
    compute_s: float
    communicate_s: float
    idle_s: float
    fits: bool

    @property
    def step_s(self) -> float:
        return self.compute_s + self.communicate_s + self.idle_s

    @property
    def name(self) -> str:
        """Return data, pipeline or tensor; grid for a combination, single for one device."""
        axes = {"data": self.data, "pipeline": self.pipeline, "tensor": self.tensor}
        long = [name for name, length in axes.items() if length > 1]
        return {0: "single", 1: long[0] if long else ""}.get(len(long), "grid")

    @property
    def grid(self) -> str:
        return f"{self.data}×{self.pipeline}×{self.tensor}"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self), "step_s": self.step_s}


def ranked(
    model: tuple[ModelCost, ModelCost | None], devices: Sequence[Device], batch: int, optimizer: str
) -> list[Mode]:
    """Return every grid with its best number of micro-batches: the fastest first, those that do not fit last.

    Args:
        model: the costs of the model, as `layer_costs.of_model` returns them.
        batch: samples of a step of all devices together.
    """
    best = []
    for grid in factorisations(len(devices), ("data", "pipeline", "tensor")):
        data, pipeline, tensor = grid.data, grid.pipeline, grid.tensor
        cost = model[1] if tensor > 1 else model[0]
        if cost is None or tensor > cost.most_tensor_ranks or pipeline > len(cost.layers) or data > batch:
            continue
        cuts = [predicted(cost, devices, batch, optimizer, (data, pipeline, tensor), m) for m in _cuts(batch // data)]
        best.append(min(cuts, key=_order))
    return sorted(best, key=_order)


def predicted(
    cost: ModelCost,
    devices: Sequence[Device],
    batch: int,
    optimizer: str,
    grid: tuple[int, int, int],
    micro_batches: int,
) -> Mode:
    """Predict the memory and the times of one mode.

    Args:
        grid: data, pipeline and tensor ranks.
    """
    data, pipeline, tensor = grid
    flops, overhead_s = min(device.flops for device in devices), max(device.overhead_s for device in devices)
    link = Link(max(device.link.alpha for device in devices), max(device.link.beta for device in devices))
    rows = -(-batch // (data * micro_batches))

    def computing(layer: LayerCost) -> float:
        return overhead_s + FORWARD_AND_BACKWARD * layer.operations * rows / (tensor * flops)

    def exchanging(layer: LayerCost) -> float:
        return sum(all_reduce_s("ring", tensor, rows * nbytes, link) for nbytes in layer.exchanged)

    stages = min_max_partition([computing(layer) + exchanging(layer) for layer in cost.layers], pipeline)
    compute_s = max(sum(computing(layer) for layer in cost.layers[stage]) for stage in stages)
    border = max((cost.layers[stage.stop - 1].outputs for stage in stages[:-1]), default=0)
    messages_s = 2 * link.message_s(rows * border) if pipeline > 1 else 0.0
    communicate_s = max(sum(exchanging(layer) for layer in cost.layers[stage]) for stage in stages) + messages_s
    pass_s = compute_s + communicate_s
    sizes = [sum(_parameters(layer, tensor) for layer in cost.layers[stage]) * cost.bytes_each for stage in stages]
    memory = 0
    for number, (stage, size) in enumerate(zip(stages, sizes, strict=True)):
        kept = cost.kept(stage.start, stage.stop, rows, tensor)
        held = most_held(ONE_F_ONE_B.computations(number, pipeline, micro_batches), {0: kept})
        memory = max(memory, size * (2 + STATE_PER_PARAMETER[optimizer]) + held)
    return Mode(
        *grid,
        micro_batches,
        memory,
        micro_batches * compute_s,
        micro_batches * communicate_s + all_reduce_s("ring", data, max(sizes), link),
        (_passes(pipeline, micro_batches) - micro_batches) * pass_s,
        memory <= min(device.memory for device in devices),
    )


@lru_cache
def _passes(stages: int, micro_batches: int) -> float:
    """Return how long the 1F1B schedule lasts, in forward and backward passes of a stage."""
    execution = execute(ONE_F_ONE_B, stages, micro_batches)
    return execution.total / execution.times.both


def _cuts(samples: int) -> Iterator[int]:
    """Yield the numbers of micro-batches to try for a pipeline's part of the batch; each has 2 samples or more.

    An epoch's batches differ in size: the smallest may be half of the largest, and is cut into as many.
    """
    number = 1
    while number <= min(max(1, samples // 2), MOST_MICRO_BATCHES):
        yield number
        number *= 2


def _parameters(layer: LayerCost, tensor: int) -> int:
    return -(-layer.weights // tensor) + layer.vectors


def _order(mode: Mode) -> tuple[bool, float, int, int]:
    first = float(f"{mode.step_s:.6g}") if mode.fits else mode.memory  # rounding errors decide nothing
    return not mode.fits, first, mode.micro_batches, mode.memory
