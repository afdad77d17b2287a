"""The options of trainings that outlive their ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from cyclopts import Parameter

from farandole.data_parallel.options import AccumulationOptions, PrecisionOptions
from farandole.model_parallel.options import PipelineOptions
from farandole.models.options import TrainingOptions
from farandole.runtime.numbers import AtLeastOne, NotNegative, Positive, Probability, real
from farandole.runtime.options import RunOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RememberingOptions(TrainingOptions):
    """The optimizer, and what the model draws."""

    optimizer: Literal["sgd", "momentum", "adam"] = "momentum"
    """Plain, with momentum 0.9, or Adam; the last two remember one or two numbers for each parameter."""

    lr: Positive = 0.05
    """Learning rate; for adam try 0.002."""

    dropout: Probability | None = None
    """Share of the inputs that is left out at random, so that the random generators' state matters. [default: 0.1; with
    --task 0]"""

    @property
    def input_dropout(self) -> float:
        """Return the share of the inputs that is left out."""
        built_in = 0.0 if self.task else 0.1
        return built_in if self.dropout is None else self.dropout


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReplicaOptions(RememberingOptions, PrecisionOptions, AccumulationOptions):
    """The options of a training in copies that can be put back to any step (`recovery.replica`)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ResumableOptions(ReplicaOptions):
    """A training that is kept on the disk."""

    resumes: ClassVar[bool] = True
    incidental: ClassVar[frozenset[str]] = TrainingOptions.incidental | {
        "checkpoint_every", "checkpoint_by", "checkpoint_async", "mtbf",
    }  # fmt: skip

    checkpoint_every: NotNegative = 20
    """Steps between two checkpoints; 0: none."""

    checkpoint_by: Literal["ranks", "rank-0"] = "ranks"
    """Every rank writes its part, or rank 0 writes all."""

    checkpoint_async: bool = True
    """Write in the background, from a copy; otherwise training waits until the checkpoint is on the disk."""

    mtbf: Positive | None = None
    """Mean seconds between failures; with it, the measured cost of a checkpoint decides when the next one is due."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FaultTolerantOptions(RunOptions):
    """A training that continues when ranks of it have died."""

    spares: NotNegative = 0
    """Number of ranks, the last ones, that wait until a working rank has died, and take its slot."""

    hang_after: Positive = 10.0
    """Seconds after which a rank that does nothing, and is not waiting for another rank, is killed."""

    @property
    def outlives(self) -> bool:
        return True

    @property
    def survives_partitions(self) -> bool:
        return self.outlives


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ChangingMembersOptions(ReplicaOptions, FaultTolerantOptions):
    """A training whose ranks may leave and join."""

    retry_for: Positive = 5.0
    """Seconds for which a worker repeats a step that fails on it alone, before it gives up and leaves."""

    failures: AtLeastOne = 3
    """Number of failed tries, of all workers together, after which a spare joins, or with --spawn a new process."""

    spawn: NotNegative = 0
    """Number of processes that may be started, where a worker has died and no spare is left, to take its slot; the
    others continue meanwhile."""

    @property
    def joining_at_most(self) -> int:
        return self.spawn


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MembershipOptions(ChangingMembersOptions):
    """Synchronous SGD whose ranks may leave and join."""

    adapt_lr: bool = False
    """Adapt the learning rate to the training: raise it a little, or halve it."""

    adapt_lr_by: Literal["loss", "gradients"] = "loss"
    """With --adapt-lr, what halves the rate. loss: the mean loss of 10 steps rises; these steps are undone. gradients:
    successive mean gradients, which the all-reduce leaves on all ranks, point back."""

    @property
    def adapts(self) -> str:
        """Return the quantity that the learning rate follows: "loss", "gradients", or "" for a fixed rate."""
        return self.adapt_lr_by if self.adapt_lr else ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ElasticDiLoCoOptions(ChangingMembersOptions):
    """DiLoCo whose ranks may leave and join."""

    period: AtLeastOne = 25
    """Inner steps from one outer step to the next."""

    outer_lr: Positive = 0.7
    """Learning rate of the outer optimizer."""

    outer_momentum: Annotated[float, real(gte=0, lt=1)] = 0.9
    """Nesterov momentum of the outer optimizer."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class KeepingOptions(RunOptions):
    """The steps between two copies of each other's state."""

    backup_every: AtLeastOne = 5
    """Steps between two backups: at most this number of steps is repeated after a failure."""

    checkpoint_every: NotNegative = 50
    """Steps between two checkpoints on disk, for when a worker and its buddy die together; 0: none."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BackupOptions(KeepingOptions, MembershipOptions):
    """A training whose ranks keep each other's state in memory."""

    shard_optimizer: bool = False
    """Divide the optimizer's state over the workers (ZeRO-1); the copy of a dead worker's part is at its buddy."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PipelineBackupOptions(PipelineOptions, FaultTolerantOptions):
    """A pipeline whose stages may keep each other's state in memory."""

    backup_every: AtLeastOne | None = None
    """Steps between two backups of each stage in the memory of the next, and the most steps that are repeated
    after a failure. [default: 5 with --spares, else no backups, and the job ends with whichever rank dies]"""

    checkpoint_every: NotNegative | None = None
    """Steps between two checkpoints on disk, for when a stage and its buddy die together; 0: none. [default: 50 with
    two spares or more, else none]"""

    @property
    def is_protected(self) -> bool:
        """Whether the stages are to keep each other's state."""
        return self.spares > 0 or self.backup_every is not None or bool(self.checkpoint_every)

    @property
    def outlives(self) -> bool:
        return self.is_protected


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ElasticHorovodOptions(RememberingOptions, AccumulationOptions):
    """A training under the driver of Elastic Horovod, which starts the workers."""

    starts_workers: ClassVar[bool] = True

    workers: AtLeastOne | None = None
    """Number of workers, at first and at most; `farandole run` sets it by -n. [default: as many as the hosts take]"""

    min_workers: AtLeastOne = 1
    """With fewer the training waits for more, and ends after --wait-timeout (horovodrun --min-np)."""

    commit_every: AtLeastOne = 5
    """Steps between two commits: at most this number of steps is repeated after a failure."""

    gloo_timeout: AtLeastOne = 30
    """Whole seconds for which a worker waits for another's message or start (HOROVOD_GLOO_TIMEOUT_SECONDS)."""

    cooldown: NotNegative = 0
    """Whole seconds after which a host where a worker has failed is used again; 0: never."""

    hosts_file: Path | None = None
    """File of hosts, one per line, as node1:2 for a host with two workers. [default: Slurm's nodes, or this host]"""

    def unfit_for_cards(self) -> str:
        from farandole.data_parallel.horovod_twin import unfit_for_cards

        return unfit_for_cards()
