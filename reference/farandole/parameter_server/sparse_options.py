"""The options of training on text as sparse features, and of the hybrid of servers and workers."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from cyclopts import Parameter

from farandole.parameter_server.options import NOT_HERE, PolicyOptions, SyncOfEach, UpdateByGradients
from farandole.parameter_server.server_change import ServerChange
from farandole.runtime.numbers import AtLeastOne, Positive, UnitInterval


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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
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

    # Only rows travel, of one model, and every gradient counts once: what is for other ways of training is not here.
    model: Annotated[Literal["mlp", "cnn"], NOT_HERE] = "mlp"
    hidden: Annotated[AtLeastOne, NOT_HERE] = 128
    depth: Annotated[AtLeastOne, NOT_HERE] = 2
    loading: Annotated[Literal["scatter", "files"], NOT_HERE] = "scatter"
    capabilities: Annotated[tuple[float, ...], NOT_HERE] = ()
    accumulate: Annotated[AtLeastOne, NOT_HERE] = 1
    server_change: Annotated[tuple[ServerChange, ...], NOT_HERE] = ()
    stop_below: Annotated[float | None, NOT_HERE] = None
    stop_stalled: Annotated[int | None, NOT_HERE] = None
    check_every: Annotated[float, NOT_HERE] = 0.2
    transport: Annotated[Literal["messages", "window"], NOT_HERE] = "messages"
    replicas: Annotated[int, NOT_HERE] = 1
    enough: Annotated[int | None, NOT_HERE] = None
    patience: Annotated[float, NOT_HERE] = 0.0
    alpha: Annotated[float, NOT_HERE] = 0.0
    elasticity: Annotated[float, NOT_HERE] = 0.0
    period: Annotated[int, NOT_HERE] = 1
    tree: Annotated[int | None, NOT_HERE] = None
    topk: Annotated[float | None, NOT_HERE] = None
    compressor: Annotated[Literal["none"], NOT_HERE] = "none"
    levels: Annotated[int, NOT_HERE] = 7
    bucket: Annotated[int, NOT_HERE] = 512
    fraction: Annotated[float, NOT_HERE] = 0.01
    applications: Annotated[AtLeastOne, NOT_HERE] = 1
