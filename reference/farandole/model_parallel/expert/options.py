"""The options of the mixture of experts."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole.model_parallel.options import ModelParallelOptions
from farandole.models.options import Width
from farandole.runtime.numbers import real, whole

Experts = Annotated[int, whole(gte=1, lte=4_096)]
Factor = Annotated[float, real(gte=0, lte=1_000_000)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExpertOptions(ModelParallelOptions):
    """The number of experts, and the options of sending tokens to them."""

    data: Literal["digits", "mnist5k", "pydoc"] = "pydoc"
    """English prose, in passages of --context characters; handwritten digits have no tokens."""

    model: Literal["mlp", "cnn", "transformer"] = "transformer"
    """A small transformer, whose feed-forward networks become mixtures; the other models have none."""

    hidden: Width = 64
    """Width of the transformer in steps of 16, the width of a head."""

    experts: Experts = 8
    """Experts in each block, divided over the ranks."""

    top_k: Experts = 2
    """Experts that each token is sent to."""

    capacity: Factor = 1.25
    """Choices that an expert accepts in a batch, in even shares of all choices; the rest is dropped. 0: no limit."""

    balance: Factor = 0.01
    """Weight of the loss that balances the load of the experts, beside the loss of the task."""

    def flops_per_sample(self) -> None:
        """Return None: how many choices the experts accept is known only after they were made."""
