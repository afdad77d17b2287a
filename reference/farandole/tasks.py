"""A task: a model, data to train and to judge it, a loss and metrics, as one small object.

A method builds its task's model, takes steps down the gradient of the task's loss, and is judged by the task's metrics.
It knows no data set and no cross-entropy, so that it trains any task: one that --data and --model name, or one of your
own, which ``--task my_task.py`` names. Such a file has a function `task`:

    def task() -> Task:
        return Task(
            model=lambda: nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 1)),
            train=(x, y),                             # arrays, or a Dataset of torch
            test=(x_test, y_test),
            loss=lambda model, batch: mse_loss(model(batch[0]), batch[1]),
            metrics={"mean error": lambda model, batch: (model(batch[0]) - batch[1]).abs()},
        )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import IterableDataset

from farandole import own_task
from farandole.data import batch as batches
from farandole.data import datasets
from farandole.data.batch import Batch
from farandole.data.datasets import Dataset, Splits
from farandole.data.samples import Arrays, Samples, samples_of
from farandole.data.stream import Stream
from farandole.errors import UsageError
from farandole.models import choices
from farandole.models.operations import counted
from farandole.models.options import TrainingOptions

Criterion = Callable[[Tensor, Tensor], Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]
Metric = Callable[[nn.Module, Batch], "Tensor | float"]


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a part of the batch, of text over all its characters.

    Args:
        logits: of shape (samples, classes), or (samples, context, classes).
        targets: of shape (samples,), or (samples, context).
    """
    return cross_entropy(logits.flatten(0, -2), targets.flatten())


def is_right(model: nn.Module, batch: Batch) -> Tensor:
    """Return for each target of a batch (inputs, targets) whether the largest logit is the right one."""
    inputs, targets = batch
    return torch.eq(model(inputs).argmax(dim=-1), targets)


def of_pairs(criterion: Criterion) -> Loss:
    """Return the loss of a batch (inputs, targets) by a function of outputs and targets, the mean over the batch.

    Of a batch without samples the loss and its gradients are 0.
    """

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = batch
        outputs = model(inputs)
        return criterion(outputs, targets) if batches.size(targets) else outputs.sum() * 0

    return loss


classification = of_pairs(mean_cross_entropy)


@dataclass(frozen=True, eq=False)
class Task:
    """A model, its data, the loss that trains it and the metrics that judge it.

    A batch has the structure of the data: of arrays (x, y) it is a pair of tensors, of a Dataset what `collate` makes
    of a list of its samples.

    Args:
        model: builds a new model, with random parameters from torch's generator, which is seeded before.
        train, test: arrays or a tuple or dict of arrays, with a row for each sample; or a map-style Dataset of torch.
            Every rank opens them, and reads the samples of its share only. `train` may be an IterableDataset, for the
            methods that need only the next batch (`data.stream`).
        validation: samples to choose by, for the methods that choose.
        loss: (model, batch) → mean loss over the batch, a scalar tensor. None: `criterion`.
        criterion: (outputs, targets) → mean loss, for batches (inputs, targets). A pipeline needs it, since its first
            stage has the inputs and its last one the targets. None: `mean_cross_entropy`, unless `loss` is given.
        metrics: name → function of (model, batch): a tensor with a value for each answer, or the mean over the batch.
            The record has the mean over the test samples. None: the loss.
        collate: makes a batch of a list of samples of a Dataset. None: `torch.utils.data.default_collate`.
        loader: arguments of `torch.utils.data.DataLoader` for worker processes that read a Dataset's next batches
            ahead, as {"num_workers": 2}. The methods whose ranks know their next batches have them (`data.read_ahead`).
        classes: number of classes that the model chooses from, for the methods that divide them.

    Raises:
        UsageError: samples of a form that is not known.
    """

    model: Callable[[], nn.Module]
    train: Any
    test: Any
    validation: Any = None
    loss: Any = None
    criterion: Criterion | None = None
    metrics: Any = None
    collate: Callable[[Sequence[Any]], Batch] | None = None
    loader: Mapping[str, Any] | None = None
    classes: int | None = None
    name: str = "a task of your own"

    is_sent: ClassVar[bool] = False
    """Whether rank 0 loads the samples and sends each rank its share; otherwise every rank opens them itself."""

    def __post_init__(self) -> None:
        if self.loss and self.criterion:
            raise UsageError("a task has a loss or a criterion: leave out one of them")
        if not self.loss:
            object.__setattr__(self, "criterion", self.criterion or mean_cross_entropy)
        loss = self.loss or of_pairs(self.criterion or mean_cross_entropy)
        loss = loss if self.is_sent else _Checked(loss)
        object.__setattr__(self, "loss", loss)
        object.__setattr__(self, "model", _built(self.model))
        object.__setattr__(self, "metrics", dict(self.metrics or {"loss": loss}))

    def operations_per_sample(self) -> int | None:
        """Return the operations of the loss of one test sample, by torch's counter; None where they cannot be counted.

        A new model is built for it, whose parameters have no effect on others.
        """
        with suppress(Exception):  # a model of the user's own may need more than one sample, or another device
            batch = self.data(0).test.on(torch.device("cpu"))[np.arange(1)]
            with torch.random.fork_rng(devices=[]):
                model = self.model()
            return counted(model, lambda built: self.loss(built, batch))
        return None

    def data(self, seed: int) -> Splits[Samples]:
        """Return the samples: to learn from, to choose by, to judge by.

        Args:
            seed: of the run; a task of your own has the same samples with every seed.
        """
        train, test = (samples_of(part, self.collate, self.loader) for part in (self.train, self.test))
        if self.loader and isinstance(train, Arrays):
            raise UsageError("loader= is for a Dataset; rows of arrays are read by the training process: leave it out")
        if isinstance(test, Stream) or isinstance(self.validation, IterableDataset):
            raise UsageError(f"{self.name}: test= and validation= have to end: give a map-style Dataset, or arrays")
        validation = train[:0] if self.validation is None else samples_of(self.validation, self.collate)
        return Splits(train, validation, test)


@dataclass(frozen=True, eq=False)
class BuiltIn(Task):
    """A task that --data and --model name.

    Attributes:
        shape: of one sample.
    """

    model: Callable[[], nn.Sequential]
    options: TrainingOptions = field(kw_only=True)
    shape: tuple[int, ...] = ()

    is_sent: ClassVar[bool] = True

    def data(self, seed: int) -> Splits[Any]:
        return datasets.split(datasets.load(self.options.data, *(self.shape if self.is_text else ())), seed)

    @property
    def is_text(self) -> bool:
        """Whether a sample is a sequence of characters, each with a target, so that samples have no class."""
        return len(self.shape) == 1


def _built(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def model() -> nn.Module:
        made = make()
        if not isinstance(made, nn.Module):
            raise UsageError(f"the task's model() returned {type(made).__name__}, and should return an nn.Module")
        check_layers(made)
        return made

    return model


def check_layers(model: nn.Module) -> None:
    """Refuse layers that would communicate in a way of their own.

    Raises:
        UsageError: a SyncBatchNorm.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise UsageError(
                f"the model's {name or 'layer'} is a SyncBatchNorm, which communicates by torch.distributed on "
                "GPUs: give BatchNorm (each rank normalises its part of the batch), GroupNorm or LayerNorm"
            )


class _Checked:
    """A user's loss, which is called with some samples only, and must return a scalar.

    Of a batch without samples, which a rank may get, the loss and its gradients are 0; the model is not called, since
    not every one (as BatchNorm) takes such a batch.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        if not batches.size(batch):
            return torch.stack([each.sum() * 0 for each in model.parameters() if each.requires_grad]).sum()
        value = self.loss(model, batch)
        if not isinstance(value, Tensor) or value.numel() != 1:
            what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise UsageError(f"the task's loss must be the mean over the batch, a scalar tensor, and is {what}")
        return value.reshape(())


def criterion_of(task: Task, why: str = "in a pipeline no rank has both the inputs and the targets") -> Criterion:
    """Return the task's function of outputs and targets, where batches must be (inputs, targets).

    Args:
        why: they must.

    Raises:
        UsageError: it has a loss of model and batch only.
    """
    if task.criterion is None:
        raise UsageError(f"{task.name}: {why}: give it criterion=, a function of outputs and targets, and not loss=")
    return task.criterion


def check_validation(task: Task) -> None:
    """Refuse a task without samples to choose by.

    Raises:
        UsageError: saying how to give some.
    """
    if not task.is_sent and task.validation is None:
        raise UsageError(f"{task.name}: this method chooses by validation samples: give the task validation=")


def number_of_classes(task: Task) -> int:
    """Return the number of classes, for methods that divide them.

    Raises:
        UsageError: the task has none.
    """
    if task.classes is None:
        raise UsageError(f"{task.name}: the outputs are divided by classes: give it classes=, their number")
    return task.classes


def check_classes(task: Task, concentration: float) -> None:
    """Refuse to divide samples by their class where these have none.

    Raises:
        UsageError: naming the option that would fit.
    """
    if isfinite(concentration) and (not isinstance(task, BuiltIn) or task.is_text):
        raise UsageError(f"{task.name} has no classes to divide: give --concentration inf")


def classes_of(task: Task, samples: Samples, concentration: float) -> NDArray[np.int64]:
    """Return the class of each sample, by which a method divides them; where nothing depends on it, 0 for all.

    Raises:
        UsageError: as `check_classes`.
    """
    check_classes(task, concentration)
    if isinstance(samples, Dataset) and samples.targets.ndim == 1:
        return samples.targets
    return np.zeros(len(samples), np.int64)


def of(options: TrainingOptions) -> Task:
    """Return the task that the options name.

    Raises:
        UsageError: the model cannot read the data, or cannot be as wide or as deep; no such task.
    """
    if options.task is None:
        return built_in(options)
    own = {field.name: field.default for field in fields(options)}
    for name in ("data", "model", "hidden", "depth", "context", "loading"):
        if name in own and getattr(options, name) != own[name]:
            raise UsageError(f"--task brings its own model and data: leave out --{name}")
    task = own_task.load(options.task)
    if not isinstance(task, Task):
        raise UsageError(f"--task {options.task} returned {type(task).__name__}, and should return a farandole.Task")
    return task


def built_in(options: TrainingOptions) -> BuiltIn:
    """Return the task that --data and --model name, for a method that is made for these.

    Raises:
        UsageError: --task is given; the model cannot read the data, or cannot be as wide or as deep.
    """
    if options.task is not None:
        raise UsageError("this method is made for data of its own and trains no --task: leave it out")
    choices.check(options)
    return BuiltIn(
        model=lambda: choices.build(options),
        train=None,
        test=None,
        metrics={"accuracy": is_right},
        classes=datasets.classes(options.data),
        name=f"{options.model} on {options.data}",
        shape=options.sample_shape(),
        options=options,
    )
