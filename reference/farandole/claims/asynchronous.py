"""Claims about asynchronous trainings on real ranks: elastic averaging, for each number of steps between exchanges."""

from __future__ import annotations

from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.claims.trainings import accuracy, trained

PERIODS = (1, 4, 16, 64)


def easgd() -> Measured:
    """Train by EASGD and by Downpour, with each number of steps between two exchanges."""
    common: dict[str, Any] = {"place": "servers=0,workers=1-4", "steps": 256, "batch": 128}
    elastic = {tau: trained("parameter_server", 5, sync="async", update="elastic", period=tau, lr=0.2, **common)
               for tau in PERIODS}  # fmt: skip
    downpour = {tau: trained("downpour", 5, n_push=tau, n_fetch=tau, lr=0.02, local_lr=0.2, **common)
                for tau in PERIODS}  # fmt: skip
    best = max(map(accuracy, elastic.values()))
    figures = {
        "EASGD: points between the best and the worst period": best - min(map(accuracy, elastic.values())),
        "EASGD: bytes with τ = 1 / with τ = 16": elastic[1][0].bytes_sent / elastic[16][0].bytes_sent,
        "points of EASGD above Downpour, τ = 16": accuracy(elastic[16]) - accuracy(downpour[16]),
        "points of EASGD above Downpour, τ = 64": accuracy(elastic[64]) - accuracy(downpour[64]),
    }
    lines = {name: [(float(tau), accuracy(runs[tau])) for tau in PERIODS]
             for name, runs in (("EASGD", elastic), ("Downpour", downpour))}  # fmt: skip
    return Measured(figures, Picture("τ, steps between two exchanges", "test accuracy, %", lines, log="x"))


CLAIMS = (
    Claim(
        "easgd-period",
        Source("Zhang, Choromanska & LeCun", 2015, "Deep learning with elastic averaging SGD", "experiments"),
        "EASGD learns about as well for τ = 1, 4, 16 and 64 steps between two exchanges, with that many times fewer "
        "messages, where Downpour becomes unstable for large τ.",
        "real ranks",
        "4 workers and a server, 1,797 handwritten digits, 256 steps of 32 samples each; Downpour here has Adagrad at "
        "the server and own steps between two fetches. The paper trains CIFAR and ImageNet on 4 to 16 GPUs",
        25,
        easgd,
        (
            Bound("EASGD: points between the best and the worst period", "within 3 points for all τ", most=3,
                  core=True),
            Bound("EASGD: bytes with τ = 1 / with τ = 16", "at least 12 times fewer bytes with τ = 16", least=12,
                  core=True),
            Bound("points of EASGD above Downpour, τ = 64", "Downpour is at least 3 points worse with τ = 64", least=3,
                  otherwise="Adagrad divides a sum of 64 gradients by its own length, so it stays bounded; the paper's "
                  "Downpour adds it with the plain learning rate"),
        ),
        "parameter_server/core/update_rules.py",
    ),
)  # fmt: skip
