"""The options of online training: the stream, and the readers that serve predictions."""

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from farandole.parameter_server.options import PolicyOptions, Sync, UpdateInOneRound
from farandole.runtime.numbers import AtLeastOne, NotNegative, Part, Positive, Real
from farandole.runtime.options import without


# The stream determines what is learned and for how long. Its workers end one by one, unlike aggregators'.
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@without(
    *("steps", "period", "loading", "capabilities", "accumulate", "applications", "server_change", "replicas", "tree"),
    *("stop_below", "stop_stalled", "check_every"),
)
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

    @property
    def reading_ranks(self) -> int:
        return self.readers

    def steps_at_most(self, ranks: int) -> int | None:
        return None  # a reader's steps are its readings
