"""From the names on the command line to the model that they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from farandole.data import datasets
from farandole.errors import UsageError
from farandole.models.classifiers import cnn, mlp, pooled
from farandole.models.options import TrainingOptions
from farandole.models.transformer import heads_of, transformer

# Given a sample's shape, the number of answers, the width and the depth.
MODELS: dict[str, Callable[[Sequence[int], int, int, int], nn.Sequential]] = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": transformer,
}
READERS = {"images": ("mlp", "cnn"), "text": ("transformer",)}


def build(options: TrainingOptions) -> nn.Sequential:
    """Return a new model of the kind, width and depth that the options name, for their data.

    Raises:
        UsageError: as `check`.
    """
    check(options)
    shape, classes = options.sample_shape(), datasets.classes(options.data)
    return MODELS[options.model](shape, classes, options.hidden, options.depth)


def check(options: TrainingOptions) -> None:
    """Refuse a model that cannot read the data, or cannot be as wide or as deep; costs nothing.

    Raises:
        UsageError: saying what would fit.
    """
    kinds = {name: "text" if len(datasets.shape(name)) == 1 else "images" for name in datasets.NAMES}
    kind = kinds[options.data]
    if options.model not in READERS[kind]:
        [read] = (other for other, models in READERS.items() if options.model in models)
        fitting = " or ".join(name for name in datasets.NAMES if kinds[name] == read)
        raise UsageError(
            f"--model {options.model} reads {read}, and --data {options.data} is {kind}: "
            f"give --model {' or '.join(READERS[kind])}, or --data {fitting}"
        )
    shape = options.sample_shape()
    if options.model == "transformer":
        heads_of(options.hidden)
    if options.model == "cnn":
        pooled(shape, options.depth)
