"""The options of training with a parameter server."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from farandole.compression.options import EncodingOptions
from farandole.compression.table import PUSHED
from farandole.data_parallel.options import AccumulationOptions, DataParallelOptions
from farandole.errors import UsageError
from farandole.parameter_server.core.policies import ALIASES, POLICIES
from farandole.parameter_server.core.updates import IN_ONE_ROUND, OF_GRADIENTS, UPDATES
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.server_change import ServerChange, most_servers
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import (
    AtLeastOne,
    NotNegative,
    NotNegativeReal,
    Part,
    Positive,
    Probability,
    whole,
)
from farandole.runtime.options import REPEATABLE, RunOptions

if TYPE_CHECKING:
    Sync = str
    SyncOfEach = str
    Update = str
    UpdateByGradients = str
    UpdateInOneRound = str
    Encoder = str
else:
    Sync = one_of(POLICIES, ALIASES)
    SyncOfEach = one_of([name for name, row in POLICIES.items() if row.applies_each_once], ALIASES)
    Update = one_of(UPDATES)
    UpdateByGradients = one_of(OF_GRADIENTS)
    UpdateInOneRound = one_of(IN_ONE_ROUND)
    Encoder = one_of(PUSHED)


def _server_changes(_: Any, tokens: Any) -> Any:
    return tuple(ServerChange.parse(token.value) for token in tokens)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RoleOptions(RunOptions):
    """The roles of the ranks, and where the parameters are stored."""

    servers: AtLeastOne = 1
    """Number of servers that share the parameters; rank 0 is the manager, the servers come next, the rest are workers.
    """

    place: str | None = None
    """Other ranks for the roles, as servers=0+1,workers=3-6,cleaner=2; rank 0 is always the manager."""

    replicas: Annotated[int, whole(gte=1, lte=2)] = 1
    """Number of servers that store each part of the parameters; with 2 any one server may die, or the manager."""

    assignment: Literal["equal", "hashing"] = "equal"
    """How keys are assigned to servers: in equal parts, or by consistent hashing."""

    ranges: AtLeastOne = 16
    """Number of ranges per server into which the keys are cut."""

    transport: Literal["messages", "window"] = "messages"
    """How parameters and gradients travel: as messages, or through memory that the ranks of one host share."""

    server_change: Annotated[tuple[ServerChange, ...], Parameter(converter=_server_changes, **REPEATABLE)] = ()
    """Change the number of servers from a step on, as step=20,servers=3; may be given again. With --assignment hashing
    few keys move."""

    hang_after: Positive = 20.0
    """Seconds after which a rank that neither works nor waits for another one is declared dead. It is killed if the
    other ranks can continue; otherwise a worker's state is removed. Less than --wait-timeout, which ends the job."""

    def computes(self, rank: int, ranks: int) -> bool:
        try:
            placement = self.placement(ranks)
        except UsageError:  # which is reported where the roles are placed
            return False
        return rank in placement.workers or rank in placement.readers

    def placement(self, ranks: int) -> Placement:
        """Return which rank has which roles: what --place says, or the usual placement.

        Raises:
            UsageError: no such placement, or too few ranks.
        """
        if self.place is not None:
            return Placement.parse(self.place, ranks)
        most = most_servers(self.servers, self.server_change)
        return Placement.usual(ranks, most, self.workers_per_aggregator, self.reading_ranks)

    @property
    def workers_per_aggregator(self) -> int | None:
        """Return the largest number of workers of an aggregator in the usual placement; None: no aggregators."""
        return None

    @property
    def reading_ranks(self) -> int:
        """Return the number of readers in the usual placement."""
        return 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerOptions(RoleOptions, DataParallelOptions):
    """The roles, and what is trained."""

    survives: ClassVar[bool] = True  # may outlive ranks, where MPI lets it

    @property
    def outlives(self) -> bool:
        return self.survives


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SyncOptions(RunOptions):
    """When a worker may start an iteration, and when gradients count."""

    sync: Sync = "ssp"
    """The policy: when a worker may start an iteration, and when a gradient moves the parameters."""

    staleness: NotNegative = 4
    """ssp, half, dssp: the largest lead of a worker over the slowest, in iterations."""

    least_staleness: NotNegative = 1
    """dssp: the lower bound; beyond it only the furthest worker continues, for as many iterations as the controller
    grants."""

    longest_wait: NotNegativeReal = 0.02
    """half: the longest random wait of a worker before it pushes, in seconds."""

    enough: AtLeastOne | None = None
    """partial, history: number of gradients that make a step. [default: the number of workers − 1]"""

    patience: NotNegativeReal = 0.5
    """history: how much longer to wait for late workers, as a multiple of the time the others took."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UpdateOptions(RunOptions):
    """The update of the parameters by what is pushed."""

    update: Update = "sgd"
    """The servers' update rule for gradients; blend and elastic receive the workers' own parameters; twice: both, in
    two rounds per iteration, as in document 000."""

    momentum: Probability = 0.9
    """momentum: the part of the last step's velocity that is kept."""

    compensation: NotNegativeReal = 0.04
    """delay-compensated: factor of the correction for updates since the gradient's pull."""

    alpha: Probability = 0.2
    """blend: the part of the old parameters that is kept."""

    elasticity: Part = 0.9
    """elastic: β, how far the servers' parameters move towards the workers' mean in an exchange; each worker moves
    towards the servers' by its share of β, α = β/p for p equal workers."""

    period: AtLeastOne = 1
    """elastic: τ, iterations of a worker from one exchange with the servers to the next."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PushOptions(EncodingOptions):
    """The encoding of what is pushed."""

    fraction: Part = 0.01
    """--compressor random-k: the part of the entries that is pushed; --topk has its own."""

    topk: Part | None = None
    """Push only this part of the gradient's entries, the largest; the rest is added to the next gradient."""

    compressor: Encoder = "none"
    """The encoding of the gradients that workers push, with error feedback for sign and random-k; parameters are pulled
    uncompressed."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoppingOptions(RunOptions):
    """The end of the training, before its last step."""

    stop_below: Positive | None = None
    """End the training once the validation loss is less than this; a second thread of the manager checks it
    periodically."""

    stop_stalled: AtLeastOne | None = None
    """End the training once this many checks in a row have not found the validation loss 1 % lower."""

    check_every: Positive = 0.2
    """--stop-below, --stop-stalled: seconds from one check to the next."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TreeOptions(RoleOptions):
    """The ranks between workers and servers, and the number of models."""

    tree: Annotated[int, whole(gte=2)] | None = None
    """Put aggregators between workers and servers, each for at most this number of workers."""

    applications: AtLeastOne = 1
    """Train this number of models at once on the same servers, each with its own workers."""

    @property
    def workers_per_aggregator(self) -> int | None:
        return self.tree


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PolicyOptions(
    SyncOptions, UpdateOptions, PushOptions, StoppingOptions, TreeOptions, ServerOptions, AccumulationOptions
):
    """When gradients count, and what a server does with them."""

    def steps_at_most(self, ranks: int) -> int | None:
        steps = self.steps + self.period - 1
        if not POLICIES[self.sync].in_rounds:
            steps *= ranks  # a fast worker takes a slow one's; a server's steps are all its updates
        return UPDATES[self.update].rounds * steps
