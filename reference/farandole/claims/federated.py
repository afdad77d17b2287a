"""Claims about federated learning: rounds saved by local epochs, and what secure aggregation adds in bytes."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.claims.trainings import Trained, trained
from farandole.federated.key_agreement import PUBLIC_BYTES
from farandole.federated.secret_sharing import SHARE_BYTES
from farandole.federated.secure_sum import SEALED_BYTES, SecureClient

ROUNDS, GOAL, HARDER = 400, 0.35, 0.15  # training losses
CLIENTS: dict[str, Any] = {"clients": 50, "per_round": 10, "hidden": 64}
RATES = (0.3, 1.0, 2.0)  # of FedSGD, the best of which counts
WHOLE = 10_000  # a batch of all samples of a client


def _smooth(run: Trained, width: int = 5) -> list[tuple[float, float]]:
    losses = run.losses
    return [(float(at), sum(losses[at : at + width]) / width) for at in range(len(losses) - width + 1)]


def rounds() -> Measured:
    """Count the rounds of FedSGD, with the best of three rates, and of FedAvg until the same training loss."""
    needed: dict[tuple[str, str], float] = {}
    harder: dict[tuple[str, str], float] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    for data, concentration in (("IID", float("inf")), ("non-IID", 0.1)):
        common = CLIENTS | {"concentration": concentration}
        runs = {
            "FedSGD": [trained("federated", 2, steps=ROUNDS, batch=WHOLE, lr=lr, **common)[0] for lr in RATES],
            "FedAvg": [trained("federated", 2, steps=ROUNDS // 4, epochs=5, batch=10, lr=0.1, **common)[0]],
        }
        for method, tried in runs.items():
            curves = [_smooth(run) for run in tried]
            reached = [next((at for at, loss in own if loss <= GOAL), float("inf")) for own in curves]
            needed[method, data] = 1 + min(reached)
            later = min(next((at for at, loss in own if loss <= HARDER), float("inf")) for own in curves)
            harder[method, data] = 1 + later
            lines[f"{method}, {data}"] = curves[reached.index(min(reached))][::8]
    figures = {
        f"rounds of {method}, {data}": value for (method, data), value in needed.items()
    } | {
        f"FedSGD / FedAvg, {data}": needed["FedSGD", data] / needed["FedAvg", data] for data in ("IID", "non-IID")
    }  # fmt: skip
    figures["gain with IID / gain with non-IID"] = figures["FedSGD / FedAvg, IID"] / figures["FedSGD / FedAvg, non-IID"]
    figures["FedSGD / FedAvg, IID, to a loss of 0.15"] = harder["FedSGD", "IID"] / harder["FedAvg", "IID"]
    return Measured(figures, Picture("rounds", "training loss", lines, log="y"))


KEY, SHARE = 32, 32  # bytes, in the paper


def expansion(users: int, length: int, bits: int = 16) -> float:
    """Return what a user sends and receives by the paper's protocol over what the vector takes in the clear."""
    masked = ceil(length * ceil(log2(users * (2**bits - 1) + 1)) / 8)
    return (2 * users * KEY + (5 * users - 4) * SHARE + masked) / (length * bits / 8)


def own_expansion(users: int, length: int, bytes_each: float) -> float:
    """Return the same for this project's protocol, which has numbers of 64 bits."""
    setup = 2 * PUBLIC_BYTES * (1 + users) + 2 * (users - 1) * SEALED_BYTES + users * SHARE_BYTES
    return (setup + 8 * length) / (bytes_each * length)


def secure_aggregation() -> Measured:
    """Compute the expansion by the paper's formula and by this project's messages, whose lengths are checked."""
    clients = [SecureClient(number, 2) for number in range(4)]
    directory = {client.number: client.keys for client in clients}
    lengths = {len(sealed) for client in clients for sealed in client.sealed_shares(directory).values()}
    sizes = [2.0**power for power in range(4, 15)]
    figures = {
        "expansion by the formula, 2¹⁰ users, 2²⁰ numbers": expansion(2**10, 2**20),
        "expansion by the formula, 2¹⁴ users, 2²⁴ numbers": expansion(2**14, 2**24),
        "bytes of a sealed message here / as its module says": max(lengths) / SEALED_BYTES,
        "here, 2¹⁰ users, over numbers of 16 bits": own_expansion(2**10, 2**20, 2),
        "here, 2¹⁰ users, over its own numbers of 64 bits": own_expansion(2**10, 2**20, 8),
    }
    lines = {"the paper's": [(users, expansion(int(users), 2**20)) for users in sizes],
             "here, over 64 bits": [(users, own_expansion(int(users), 2**20, 8)) for users in sizes]}  # fmt: skip
    return Measured(figures, Picture("users, 2²⁰ numbers", "bytes of a user / in the clear", lines, log="x"))


CLAIMS = (
    Claim(
        "fedavg-rounds",
        Source("McMahan et al.", 2017, "Communication-efficient learning of deep networks from decentralized data",
               "abstract and table 2"),
        "Local epochs save 10 to 100 times the rounds; on data that differ from client to client they save much less, "
        "though still some.",
        "real ranks",
        "50 clients on 2 ranks, 10 in a round, 1,797 handwritten digits; FedAvg with 5 epochs in batches of 10, FedSGD "
        "with the best of three rates; rounds to a training loss of 0.35. The paper counts to 99 % of the tests on "
        "MNIST",
        60,
        rounds,
        (
            Bound("FedSGD / FedAvg, IID", "at least 10 times fewer rounds on IID data", least=10, core=True,
                  otherwise="a client has 29 samples here, so its five epochs are 15 steps, which no gain can "
                  "exceed by much; the paper's clients have 600 samples and take 300 steps in a round"),
            Bound("FedSGD / FedAvg, non-IID", "at least 1.5 times fewer on non-IID data", least=1.5, core=True),
            Bound("gain with IID / gain with non-IID", "the gain is at least 1.5 times smaller there", least=1.5,
                  otherwise="ten of 50 clients together still have nearly all classes here, and a training loss is "
                  "reached before the accuracy at which non-IID data hurt most"),
        ),
        "federated/averaging.py",
    ),
    Claim(
        "secure-aggregation",
        Source("Bonawitz et al.", 2017, "Practical secure aggregation for privacy-preserving machine learning",
               "abstract"),
        "For numbers of 16 bits the sum that the server alone learns costs a user 1.73 times the bytes of sending in "
        "the clear with 2¹⁰ users and 2²⁰ numbers, and 1.98 times with 2¹⁴ users and 2²⁴ numbers.",
        "computed",
        "the paper's protocol, 2n keys and 5n − 4 shares of 32 bytes and a vector modulo the largest sum; and this "
        "project's own messages, whose lengths are checked with four clients",
        1,
        secure_aggregation,
        (
            Bound("expansion by the formula, 2¹⁰ users, 2²⁰ numbers", "1.73, within 0.01", 1.72, 1.74, core=True),
            Bound("expansion by the formula, 2¹⁴ users, 2²⁴ numbers", "1.98, within 0.01", 1.97, 1.99, core=True),
            Bound("here, 2¹⁰ users, over its own numbers of 64 bits", "this project's is within 1.73", most=1.73),
            Bound("here, 2¹⁰ users, over numbers of 16 bits", "even over numbers of 16 bits", most=1.73,
                  otherwise="its vectors are of 64 bits, for a parameter's fixed point and the sum of all users, and "
                  "its keys are numbers of 2,048 bits in place of an elliptic curve's 256"),
        ),
        "federated/secure_sum.py",
    ),
)  # fmt: skip
