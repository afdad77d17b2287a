"""The options of the context split."""

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from farandole.model_parallel.options import ModelParallelOptions
from farandole.models.options import Width


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ContextOptions(ModelParallelOptions):
    """The division of a sequence, and the training on it."""

    data: Literal["digits", "mnist5k", "pydoc"] = "pydoc"
    """English prose, in passages of --context characters; handwritten digits are no sequences."""

    model: Literal["mlp", "cnn", "transformer"] = "transformer"
    """A small transformer; the other models read no sequences."""

    hidden: Width = 64
    """Width of the transformer in steps of 16, the width of a head."""

    attention: Literal["ring", "ulysses"] = "ring"
    """How positions attend to those of other ranks: keys and values go around a ring, or an all-to-all divides the
    heads."""

    placement: Literal["zigzag", "contiguous"] = "zigzag"
    """Positions of each rank in the ring: an early and a late part, for equal work; or one part. Ulysses: one part."""
