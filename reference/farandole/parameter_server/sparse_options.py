"""The options of training on text as sparse features, and of the hybrid of servers and workers."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from cyclopts import Parameter

from farandole.parameter_server.options import PolicyOptions, SyncOfEach, UpdateByGradients
from farandole.runtime.numbers import AtLeastOne, Positive, UnitInterval
from farandole.runtime.options import without


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TextOptions(PolicyOptions):
    """The data to learn: as elsewhere, or text as sparse features."""

    data: Literal["digits", "mnist5k", "pydoc", "text"] = "digits"  # type: ignore[assignment]  # more than elsewhere
    """Handwritten digits, 8×8 or 28×28 pixels; documentation, 64 characters a sample; or its passages as sparse
    features, told apart by logistic regression (try --lr 30)."""

    buckets: AtLeastOne = 1 << 16
    """text: number of rows of the table of parameters, onto which words and pairs of words are hashed."""

    shards: Literal["documents", "shuffled"] = "documents"
    """text: whole documents to each worker, or passages at random."""

    def computes(self, rank: int, ranks: int) -> bool:
        return self.data != "text" and super().computes(rank, ranks)  # sparse rows are computed by numpy

    def flops_per_sample(self) -> int | None:
        return None if self.data == "text" else super().flops_per_sample()  # of sparse rows there are few to multiply


# Only rows travel, of one model, and every gradient counts once: what is for other ways of training is not here.
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@without(
    *("model", "hidden", "depth", "loading", "capabilities", "accumulate", "enough", "patience", "applications"),
    *("transport", "replicas", "server_change", "tree", "stop_below", "stop_stalled", "check_every"),
    *("alpha", "elasticity", "period", "topk", "compressor", "levels", "bucket", "fraction"),
)
class HybridOptions(TextOptions):
    """Which parameters live where."""

    survives: ClassVar[bool] = False  # each worker has rows that no other rank has

    data: Literal["text"] = "text"
    """Passages of text, told apart by logistic regression."""

    lr: Positive = 30.0
    """Learning rate."""

    sync: SyncOfEach = "bsp"
    """When a worker may start an iteration; rows that are stored at a worker are always up to date there."""

    update: UpdateByGradients = "sgd"
    """The update rule, on the servers and for the rows that are stored at workers."""

    hot: UnitInterval = 1.0
    """Rows that more than this part of all batches update are always stored on the servers; 0: all rows."""

    cold: Literal["servers", "clients"] = "servers"
    """Where to store rows that several workers update and that are not hot: on the servers too, or each at the worker
    that updates it most, from which the others request it (try --hot 0.1)."""
