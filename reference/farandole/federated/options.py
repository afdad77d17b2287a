"""The options of federated learning."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from farandole.models.options import TrainingOptions
from farandole.runtime.numbers import AtLeastOne, Positive, PositiveOrInf, Probability


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FederatedOptions(TrainingOptions):
    """The clients' data, and the course of a round."""

    steps: AtLeastOne = 60
    """Number of rounds."""

    batch: AtLeastOne = 10
    """Number of samples in a client's step."""

    lr: Positive = 0.1
    """Learning rate of the clients."""

    clients: AtLeastOne = 20
    """Number of clients; client k runs on rank k modulo the number of ranks."""

    per_round: AtLeastOne = 5
    """Number of clients that take part in a round."""

    epochs: AtLeastOne = 1
    """Number of epochs that a client trains in a round."""

    concentration: PositiveOrInf = 1.0
    """Similarity of the clients' data. 0.1: few classes each; inf: they differ by chance alone."""

    server_lr: Positive = 1.0
    """Factor of the server's move towards the mean of the clients' parameters."""

    lost: Probability = 0.0
    """Probability that a client of a round is lost before its vector has arrived."""

    secure: Annotated[bool, Parameter(negative="")] = False
    """Mask the clients' vectors, so that the server learns their sum and nothing else."""

    threshold: AtLeastOne | None = None
    """--secure: number of clients, two or more, that must remain for a sum. [default: more than half of a round's]"""
