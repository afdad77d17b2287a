"""The options of training with a parameter server."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from farandole.data_parallel.options import DataParallelOptions
from farandole.runtime.options import AtLeastOne, Positive

NotNegative = Annotated[int, Parameter(validator=Number(gte=0))]
NotNegativeSeconds = Annotated[float, Parameter(validator=Number(gte=0))]
Part = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]

Sync = Literal["minibatch", "stale", "async", "half", "partial", "dynamic", "history"]
Update = Literal[
    "sgd", "momentum", "adagrad", "adam", "staleness-aware", "delay-compensated", "blend", "elastic"
]  # fmt: skip


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerOptions(DataParallelOptions):
    """Who does what, and where the parameters lie."""

    servers: AtLeastOne = 1
    """Servers that share the parameters; rank 0 is the manager, they come next, the rest are workers."""

    place: str | None = None
    """Other ranks for the roles, as servers=0+1,workers=3-6,cleaner=2; rank 0 is always the manager."""

    assignment: Literal["equal", "hashing"] = "equal"
    """Which server has which keys: equal parts, or by consistent hashing."""

    ranges: AtLeastOne = 16
    """Into how many ranges per server the keys are cut."""

    silence: Positive = 30.0
    """Seconds without a word after which the manager takes a worker for dead."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PolicyOptions(ServerOptions):
    """When gradients count, and what a server does with them."""

    sync: Sync = "stale"
    """When a worker may go on, and which gradients move the parameters when."""

    staleness: NotNegative = 4
    """stale, half: iterations that a worker may be ahead of the slowest."""

    bounds: tuple[int, int] = (1, 8)
    """dynamic: the least and the greatest staleness to choose from."""

    longest_wait: NotNegativeSeconds = 0.02
    """half: seconds that a worker waits at most, at random, before it pushes."""

    enough: AtLeastOne | None = None
    """partial, history: how many gradients make a step. [default: all workers' but one's]"""

    patience: NotNegativeSeconds = 0.5
    """history: how much longer to wait for the late, as a multiple of the time the others took."""

    update: Update = "sgd"
    """What a server does with the gradients; blend and elastic: with the workers' own parameters."""

    momentum: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.9
    """momentum: how much of the last step's velocity is kept."""

    compensation: NotNegativeSeconds = 0.04
    """delay-compensated: how strongly gradients are corrected for the parameters having moved."""

    alpha: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.2
    """blend: how much of the old parameters stays."""

    elasticity: Part = 0.5
    """elastic: how far the workers' parameters and the server's pull each other together."""

    tree: Annotated[int, Parameter(validator=Number(gte=2))] | None = None
    """Put aggregators between workers and servers, each for at most so many workers."""

    topk: Part | None = None
    """Push only this part of the gradient's entries, the largest; the rest is added to the next gradient."""

    applications: AtLeastOne = 1
    """Train so many models at once on the same servers, each with its own workers."""
