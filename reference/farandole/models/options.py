"""The options of everything that trains a model, however it is distributed."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole import own_task
from farandole.models.operations import FORWARD_AND_BACKWARD, OPERATIONS
from farandole.runtime.numbers import AtLeastOne, Positive, whole
from farandole.runtime.options import RunOptions

Width = Annotated[int, whole(gte=1, lte=65_536)]
Depth = Annotated[int, whole(gte=1, lte=1_000)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions(RunOptions):
    """The training: its data, its model, its steps."""

    data: Literal["digits", "mnist5k", "pydoc"] = "digits"
    """Real handwritten digits, 1,797 of 8×8 pixels or 5,000 of 28×28; or English prose, 5,700 times 64 characters."""

    model: Literal["mlp", "cnn", "transformer"] = "mlp"
    """A multilayer perceptron, or a small convolutional network; for text a small transformer."""

    hidden: Width = 128
    """Width of the hidden layers; of the transformer in steps of 16, the width of a head."""

    depth: Depth = 2
    """Hidden layers of the perceptron, convolutions of the convolutional network, or blocks of the transformer."""

    task: str | None = None
    """Your own model and data, instead of these: my_task.py, whose function task() returns a Task; my_task.py:NAME or
    PACKAGE.MODULE:NAME for another function."""

    steps: AtLeastOne = 300
    """Optimizer steps."""

    batch: AtLeastOne = 64
    """Samples per step, over all ranks together."""

    lr: Positive = 0.3
    """Learning rate; for a transformer of more than 2 blocks try 0.1."""

    def steps_at_most(self, ranks: int) -> int | None:
        return self.steps

    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of one sample of --data: (channels, height, width), or (characters,) of text."""
        from farandole.data import datasets

        return datasets.shape(self.data)

    def flops_per_sample(self) -> int | None:
        if self.task:  # to be counted, for which torch loads its compiler: 1.4 s, only where they are needed
            count = getattr(own_task.load(self.task), "operations_per_sample", None) if self.peak_flops else None
            forward = count() if count else None
        else:
            from farandole.data import datasets

            classes = datasets.classes(self.data)
            forward = OPERATIONS[self.model](self.sample_shape(), classes, self.hidden, self.depth)
        return None if forward is None else FORWARD_AND_BACKWARD * forward

    def least_bytes(self) -> int:
        """Return the bytes of the square weight matrices and of their gradients, in float32; of your own model 0."""
        if self.task:
            return 0
        squares = {"mlp": self.depth - 1, "transformer": 12 * self.depth}.get(self.model, 0)
        return 2 * 4 * squares * self.hidden**2
