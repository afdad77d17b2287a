"""The options of online training: the stream, and the readers that serve predictions."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole.parameter_server.options import NOT_HERE, PolicyOptions, Sync, UpdateInOneRound
from farandole.parameter_server.server_change import ServerChange
from farandole.runtime.numbers import AtLeastOne, NotNegative, Part, Positive, Real


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OnlineOptions(PolicyOptions):
    """The stream, and the readers that serve meanwhile."""

    data: Literal["digits", "mnist5k"] = "digits"
    """Real handwritten digits: 1,797 of 8×8 pixels, or 5,000 of 28×28."""

    model: Literal["mlp", "cnn"] = "mlp"
    """A multilayer perceptron, or a small convolutional network."""

    samples: AtLeastOne = 20_000
    """Length of the stream, over all workers together; each sample comes once."""

    degrees: Real = 90.0
    """By how much the digits have turned at the stream's end."""

    rate: Positive | None = None
    """Samples that come per second. [default: as many as the workers can take]"""

    freeze_after: Part = 0.2
    """The part of the stream after which a copy of the model stops learning, to compare with."""

    readers: NotNegative = 1
    """Ranks that serve predictions with the parameters as they are at the time; the last ranks."""

    publish_every: Positive = 0.5
    """Seconds from one reading of the parameters by a reader to the next."""

    update: UpdateInOneRound = "sgd"
    """A server's update rule for gradients; blend and elastic: for the workers' own parameters."""

    sync: Sync = "async"
    """When a worker may go on, and which gradients move the parameters when."""

    batch: AtLeastOne = 48
    """Samples per step, over all workers together; the same number for each."""

    # The stream determines what is learned and for how long. Its workers end one by one, unlike aggregators'.
    period: Annotated[AtLeastOne, NOT_HERE] = 1
    steps: Annotated[AtLeastOne, NOT_HERE] = 1
    loading: Annotated[Literal["scatter", "files"], NOT_HERE] = "scatter"
    capabilities: Annotated[tuple[float, ...], NOT_HERE] = ()
    accumulate: Annotated[AtLeastOne, NOT_HERE] = 1
    server_change: Annotated[tuple[ServerChange, ...], NOT_HERE] = ()
    stop_below: Annotated[float | None, NOT_HERE] = None
    stop_stalled: Annotated[int | None, NOT_HERE] = None
    check_every: Annotated[float, NOT_HERE] = 0.2
    applications: Annotated[AtLeastOne, NOT_HERE] = 1
    replicas: Annotated[int, NOT_HERE] = 1
    tree: Annotated[int | None, NOT_HERE] = None

    @property
    def reading_ranks(self) -> int:
        return self.readers

    def steps_at_most(self, ranks: int) -> int | None:
        return None  # a reader's steps are its readings
