"""The options of federated learning."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from farandole.models.options import TrainingOptions
from farandole.runtime.numbers import AtLeastOne, Positive, PositiveOrInf, Probability


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FederatedOptions(TrainingOptions):
    """Whose data there are, and what a round is."""

    steps: AtLeastOne = 60
    """Rounds."""

    batch: AtLeastOne = 10
    """Samples of a client's step."""

    lr: Positive = 0.1
    """Learning rate of the clients."""

    clients: AtLeastOne = 20
    """How many there are; they live on the ranks, in turn."""

    per_round: AtLeastOne = 5
    """How many of them take part in a round."""

    epochs: AtLeastOne = 1
    """How often a client uses each of its samples in a round."""

    concentration: PositiveOrInf = 1.0
    """How much alike the clients' data are: 0.1: few classes each; inf: no difference but by chance."""

    server_lr: Positive = 1.0
    """How far the server goes to the mean of what the clients have come to."""

    lost: Probability = 0.0
    """Each client of a round is lost before its vector has come, with this probability."""

    secure: Annotated[bool, Parameter(negative="")] = False
    """Mask the clients' vectors, so that the server learns their sum and nothing else."""

    threshold: AtLeastOne | None = None
    """With --secure: so many clients, two or more, have to be left for a sum. [default: more than half of a round's]"""
