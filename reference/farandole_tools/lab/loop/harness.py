"""The part of lab 16 in a submission's process: it makes models and jobs, and reports what becomes of them.

It judges nothing, and has nothing that a learner is not given: the checks are in another process, and get from here
arrays, numbers and names alone. A submission can change this code, and so what is reported, not what is right.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from farandole_tools.lab.single_process import Job, Part

Arrays = dict[str, np.ndarray]


class Watch(Protocol):
    """The checks' side of a training (`watch.Watch`)."""

    def before_step(self, rate: float, state: Arrays) -> bool: ...
    def after_step(self, state: Arrays) -> None: ...
    def interrupts_save(self) -> bool: ...
    def half_saved(self) -> None: ...


class Stopped(BaseException):
    """Raised where a process would be killed."""


class Harness:
    """Calls the functions of a submission.

    Args:
        submission: its module.
    """

    def __init__(self, submission: ModuleType) -> None:
        self.submission = submission
        self._begin()

    def share(self, seed: int, comm: Any) -> dict[str, Any]:
        """Have a model shared; return its state then, and what has become of its parameters."""
        model = Job(seed).model
        before = dict(model.named_parameters())
        self.submission.share(model, comm)
        now = dict(model.named_parameters())
        return {
            "replaced": [name for name, each in now.items() if each is not before.get(name)],
            "tied": model.output.weight is model.words.weight,
            "trains": {name: each.requires_grad for name, each in now.items()},
            "state": arrays(model),
        }

    def parts(self, *arguments: Any) -> Any:
        return self.submission.parts(*arguments)

    def mean_gradient(self, parts: Sequence[Part], comm: Any) -> dict[str, np.ndarray | None]:
        """Have the mean gradient of a new model computed; return it by parameter."""
        model = Job().model
        self.submission.mean_gradient(model, parts, comm)
        found = {name: each.grad for name, each in model.named_parameters()}
        return {name: None if each is None else as_array(each) for name, each in found.items()}

    def take_step(self, parts: Sequence[Part], comm: Any, max_norm: float, first: bool) -> Arrays:
        """Have a step taken that moves the parameters by the gradient itself; return the model's state after it.

        Args:
            first: with a new model, and not that of the step before.
        """
        if first:
            self._begin()
        self.submission.take_step(self._model, self._optimizer, parts, comm, max_norm)
        return arrays(self._model)

    def train(self, seed: int, comm: Any, folder: str, every: int, watch: Watch) -> None:
        """Have a job trained, until its end or until `watch` interrupts it."""
        job, place = Job(seed), Path(folder)
        place.mkdir(parents=True, exist_ok=True)

        def before(*_: object) -> None:
            if watch.before_step(rate_of(job.optimizer), arrays(job.model)):
                raise Stopped

        job.optimizer.register_step_pre_hook(before)
        job.optimizer.register_step_post_hook(lambda *_: watch.after_step(arrays(job.model)))
        with suppress(Stopped), interruptible_save(watch):
            self.submission.train(job, comm, place, every)

    def _begin(self) -> None:
        self._model = Job().model
        trained = [each for each in self._model.parameters() if each.requires_grad]
        self._optimizer = torch.optim.SGD(trained, lr=1.0)


def arrays(model: nn.Module) -> Arrays:
    """Return copies of all parameters and buffers by name; a tied parameter once."""
    return {name: as_array(each) for name, each in (*model.named_parameters(), *model.named_buffers())}


def as_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy().copy()


def rate_of(optimizer: torch.optim.Optimizer) -> float:
    return float(optimizer.param_groups[0]["lr"])


@contextmanager
def interruptible_save(watch: Watch) -> Iterator[None]:
    """Within the body, torch.save writes half of its file and is interrupted, if `watch` says so."""
    save = torch.save

    def write_half(state: object, file: Any, *args: Any, **named: Any) -> None:
        if not watch.interrupts_save():
            save(state, file, *args, **named)
            return
        whole = io.BytesIO()
        save(state, whole)
        half = whole.getvalue()[: whole.tell() // 2]
        if hasattr(file, "write"):
            file.write(half)
            file.flush()
        else:
            Path(file).write_bytes(half)
        watch.half_saved()
        raise Stopped

    with patch.object(torch, "save", write_half):
        yield
