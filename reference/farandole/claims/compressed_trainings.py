"""Claims about the accuracy of trainings with compressed gradients: DGC, PowerSGD, and sign with feedback."""

from __future__ import annotations

from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.claims.trainings import accuracy, curve, trained
from farandole.compression.dgc import DGC

SEEDS = 2
TRAINING: dict[str, Any] = {"data": "mnist5k", "hidden": 128, "batch": 64, "lr": 0.3, "steps": 400}
LONGER = {"lr": 0.05, "steps": 800}  # of momentum 0.9
PARAMETERS = 784 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10


def dgc() -> Measured:
    """Train with a thousandth of the gradient's entries, and with all; the momentum is the same."""
    dense = trained("sync_sgd", 2, SEEDS, **TRAINING | {"optimizer": "momentum"} | LONGER)
    sparse = trained("compressed_sgd", 2, SEEDS, compressor="dgc", fraction=0.001, sparsity_warm_up=100,
                     **TRAINING | LONGER)  # fmt: skip
    figures = {
        "bytes of a gradient / as encoded after the warm-up": 4
        * PARAMETERS
        / DGC(PARAMETERS, 0.001).nbytes(PARAMETERS),
        "test accuracy, points below the dense one": accuracy(dense) - accuracy(sparse),
        "test accuracy of the dense one, %": accuracy(dense),
        "bytes sent in all, dense / DGC": dense[0].bytes_sent / sparse[0].bytes_sent,
    }
    return Measured(figures, Picture("step", "training loss", {"dense": curve(dense), "DGC": curve(sparse)}, log="y"))


def powersgd() -> Measured:
    """Train with matrices of rank 1, 2 and 4, and with whole gradients."""
    whole = trained("sync_sgd", 2, SEEDS, **TRAINING)
    ranks = {rank: trained("compressed_sgd", 2, SEEDS, compressor="powersgd", matrix_rank=rank, **TRAINING)
             for rank in (1, 2, 4)}  # fmt: skip
    figures: dict[str, float | None] = {
        f"rank {rank}: points below SGD": accuracy(whole) - accuracy(runs) for rank, runs in ranks.items()
    }
    figures |= {f"rank {rank}: bytes of SGD / its own": whole[0].bytes_sent / runs[0].bytes_sent
                for rank, runs in ranks.items()}  # fmt: skip
    figures["test accuracy of SGD, %"] = accuracy(whole)
    lines = {"SGD": curve(whole)} | {f"rank {rank}": curve(runs) for rank, runs in ranks.items()}
    return Measured(figures, Picture("step", "training loss", lines, log="y"))


def sign() -> Measured:
    """Train by signs with and without feedback, and with whole gradients."""
    whole = trained("sync_sgd", 2, SEEDS, **TRAINING)
    found = {name: trained("compressed_sgd", 2, SEEDS, compressor="sign", feedback=feedback, **TRAINING)
             for name, feedback in (("feedback", True), ("no feedback", False))}  # fmt: skip
    figures: dict[str, float | None] = {
        f"{name}: points below SGD": accuracy(whole) - accuracy(runs) for name, runs in found.items()
    }
    figures["bytes of a gradient / as encoded"] = 4 * PARAMETERS / (4 + -(-PARAMETERS // 8))
    figures["test accuracy of SGD, %"] = accuracy(whole)
    lines = {"SGD": curve(whole)} | {f"sign, {name}": curve(runs) for name, runs in found.items()}
    return Measured(figures, Picture("step", "training loss", lines, log="y"))


HERE = "2 ranks, 5,000 handwritten digits, a perceptron of 118,282 parameters, steps of 64 samples, 2 seeds. The paper "
CLAIMS = (
    Claim(
        "dgc-ratio",
        Source("Lin et al.", 2018, "Deep gradient compression: reducing the communication bandwidth for distributed "
               "training", "abstract"),
        "99.9 % of a gradient's entries can be left out: 270 to 600 times fewer bytes without a loss of accuracy.",
        "real ranks",
        HERE + "trains convolutional networks and LSTMs on up to 64 GPUs",
        40,
        dgc,
        (
            Bound("bytes of a gradient / as encoded after the warm-up", "270 to 600 times fewer bytes", 270, 600,
                  core=True),
            Bound("test accuracy, points below the dense one", "at most 1 point below", most=1.0, core=True),
            Bound("bytes sent in all, dense / DGC", "270 times fewer in the whole training, too", least=270,
                  otherwise="the 100 steps of the warm-up send more, and an all-gather sends each rank's entries to "
                  "every other one, where the ring adds up on the way"),
        ),
        "compression/dgc.py",
        revised="800 steps in place of 400, and another learning rate. Before that it did not hold",
    ),
    Claim(
        "powersgd-rank",
        Source("Vogels, Karimireddy & Jaggi", 2019, "PowerSGD: practical low-rank gradient compression for distributed "
               "optimization", "experiments on the rank"),
        "A rank of 2 to 4 reaches the accuracy of SGD with a small part of its bytes, and more ranks cost more.",
        "real ranks",
        HERE + "trains ResNet-18 on CIFAR-10 and an LSTM",
        60,
        powersgd,
        (
            Bound("rank 2: points below SGD", "rank 2 is at most 1 point below", most=1.0, core=True),
            Bound("rank 4: points below SGD", "rank 4 too", most=1.0, core=True),
            Bound("rank 2: bytes of SGD / its own", "rank 2 sends at most a tenth", least=10, core=True),
            Bound("rank 1: points below SGD", "rank 1 is at most 1 point below", most=1.0),
        ),
        "compression/powersgd.py",
    ),
    Claim(
        "sign-feedback",
        Source("Karimireddy et al.", 2019, "Error feedback fixes SignSGD and other gradient compression schemes",
               "abstract and experiments"),
        "With error feedback signs, a bit for each entry, generalise as SGD does; without it they do worse.",
        "real ranks",
        HERE + "trains on CIFAR-10 and CIFAR-100",
        40,
        sign,
        (
            Bound("feedback: points below SGD", "with feedback at most 1 point below SGD", most=1.0, core=True),
            Bound("bytes of a gradient / as encoded", "32 times fewer bytes, within 1 %", least=31.7, core=True),
            Bound("no feedback: points below SGD", "without feedback at least 0.5 points below SGD", least=0.5,
                  otherwise="the sign here carries the mean magnitude and all ranks' signs are averaged, which is "
                  "enough for this small and easy set; sign-counterexample shows where it is not"),
        ),
        "compression/sign.py",
    ),
)  # fmt: skip
