"""The right results of lab 16: the training of one process, step by step, and the gradients of whole batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from farandole_tools.lab import expect, single_process
from farandole_tools.lab.loop.harness import rate_of
from farandole_tools.lab.single_process import PAIRS, RARE, SAMPLES, Job, Part, mean_loss

State = dict[str, Tensor]
Divided = Sequence[Sequence[Sequence[int]]]  # batch → rank → rows

RARE_ROWS = [row for row in range(SAMPLES) if PAIRS[row, 0] == RARE]
ROWS = [row for row in range(SAMPLES) if row not in RARE_ROWS]
CLOSE = 1e-5  # relative; a bound of the norm may be computed as torch does it, or without its 1e-6


class Course(NamedTuple):
    """The training in one process: the state before each step and at the end, and the learning rate of each step."""

    states: list[State]
    rates: list[float]


@cache
def course() -> Course:
    job = Job()
    found = Course([state_of(job.model)], [])
    job.optimizer.register_step_pre_hook(lambda *_: found.rates.append(rate_of(job.optimizer)))
    job.optimizer.register_step_post_hook(lambda *_: found.states.append(state_of(job.model)))
    single_process.train(job)
    return found


def state_of(model: nn.Module) -> State:
    """Return all parameters and buffers by name; a tied parameter once."""
    return {name: each.detach().clone() for name, each in (*model.named_parameters(), *model.named_buffers())}


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def state_from(found: Any) -> State:
    """Return the arrays that another process has found in its model, as tensors.

    Raises:
        Wrong: they are not those of this model.
    """
    return {name: tensor_from(_named(found, name), name, like) for name, like in course().states[0].items()}


def gradients_from(found: Any) -> dict[str, Tensor | None]:
    """Return the gradients that another process has found in its model; None where there is none.

    Raises:
        Wrong: they are not those of this model.
    """
    like = dict(Job().model.named_parameters())
    each = {name: _named(found, name) for name in like}
    return {name: None if one is None else tensor_from(one, name, like[name]) for name, one in each.items()}


def _named(found: Any, name: str) -> Any:
    expect(isinstance(found, dict) and name in found, f"the model has no {name} any more")
    return found[name]


def tensor_from(found: Any, name: str, like: Tensor) -> Tensor:
    right = like.detach().numpy()
    same = isinstance(found, np.ndarray) and (found.shape, found.dtype) == (right.shape, right.dtype)
    expect(same, f"{name} is no longer {right.dtype} of shape {right.shape}")
    return torch.from_numpy(found.copy())


def as_vector(tensors: Mapping[str, Tensor | None], model: nn.Module) -> Tensor:
    """Return one vector of what belongs to the trained parameters; 0 for what is None or not there."""
    pairs = [(tensors.get(name), like) for name, like in trained(model).items()]
    return torch.cat([torch.zeros_like(like).flatten() if each is None else each.flatten() for each, like in pairs])


def parameters_of(model: nn.Module) -> Tensor:
    return as_vector(state_of(model), model)


def gradient(model: nn.Module, rows: Sequence[int]) -> Tensor:
    """Return the gradient of the mean loss over these rows; 0 for none."""
    if not rows:
        return torch.zeros_like(parameters_of(model))
    found = torch.autograd.grad(mean_loss(model, rows), list(trained(model).values()), allow_unused=True)
    return as_vector(dict(zip(trained(model), found, strict=True)), model)


def uneven(rows: Sequence[int], size: int, turn: int = 0) -> list[list[int]]:
    """Divide rows among ranks, the lower a rank's number the more; of three or more the last one has none.

    All is moved `turn` ranks further.
    """
    weights = list(reversed(range(size))) if size > 2 else list(range(size, 0, -1))
    ends = [0, *(round(len(rows) * each / sum(weights)) for each in accumulate(weights))]
    found = [list(rows[begin:end]) for begin, end in pairwise(ends)]
    return found[-turn % size :] + found[: -turn % size]


def parts_of(rank: int, divided: Divided) -> list[Part]:
    return [Part(batch[rank], sum(map(len, batch))) for batch in divided]


def clipped(vector: Tensor, bound: float) -> Tensor:
    return vector * min(1.0, bound / (float(vector.norm()) + 1e-6))


def near(found: Tensor, right: Tensor, scale: float | None = None) -> bool:
    far = float((found - right).abs().max()) if found.numel() else 0.0
    return far <= CLOSE * (scale or float(right.abs().max()) or 1.0)  # what is no number is far


def differing(found: State, right: State) -> list[str]:
    return [name for name in right if not near(found[name].double(), right[name].double())]
