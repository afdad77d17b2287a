"""What is trained: a model, data to train and to judge it, a loss and a metric, as one small object.

A method builds its task's model, takes steps down the gradient of the task's loss, and is judged by the task's metric.
It knows no data set and no cross-entropy, so that it trains any task.

    task     = tasks.of(options)             the built-in task that --data and --model name
    model    = task.model()                  random parameters, from torch's generator
    splits   = task.data(seed)               training, validation and test samples
    loss     = task.loss(model(x), y)        the mean over a part of the batch
    accuracy = Σ task.metric(model(x), y) / number of targets
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from farandole.data import datasets
from farandole.data.datasets import Dataset, Splits
from farandole.models import choices
from farandole.models.options import TrainingOptions

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], int]


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a part of the batch, of text over all its characters; 0, with zero gradients, if empty.

    Args:
        logits: of shape (samples, classes), or (samples, context, classes).
        targets: of shape (samples,), or (samples, context).
    """
    return cross_entropy(logits.flatten(0, -2), targets.flatten()) if len(targets) else logits.sum() * 0


def correct_predictions(logits: Tensor, targets: Tensor) -> int:
    """Return for how many targets the largest logit is the right one."""
    return int((logits.argmax(dim=-1) == targets).sum())


@dataclass(frozen=True)
class Task:
    """A model, its data, the loss that trains it and the metric that judges it.

    Attributes:
        model: builds a new model, in float32, with random parameters from torch's generator.
        data: seed → disjoint training, validation and test samples, the same for the same seed.
        loss: (outputs, targets) → their mean loss; 0, with zero gradients, for no samples.
        metric: (outputs, targets) → a count, which is divided by the number of targets.
        shape: of one sample.
        classes: number of classes that the model chooses from.
    """

    name: str
    model: Callable[[], nn.Sequential]
    data: Callable[[int], Splits[Dataset]]
    shape: tuple[int, ...]
    classes: int
    loss: Loss = mean_cross_entropy
    metric: Metric = correct_predictions

    @property
    def is_text(self) -> bool:
        """Whether a sample is a sequence of characters, each with a target, so that samples have no class."""
        return len(self.shape) == 1


def of(options: TrainingOptions) -> Task:
    """Return the built-in task that the options name.

    Raises:
        UsageError: the model cannot read the data, or cannot be as wide or as deep.
    """
    choices.check(options)
    return Task(
        name=f"{options.model} on {options.data}",
        model=lambda: choices.build(options),
        data=lambda seed: datasets.split(datasets.load(options.data), seed),
        shape=datasets.shape(options.data),
        classes=datasets.classes(options.data),
    )
