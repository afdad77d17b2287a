"""Claims about large batches: the learning rate in proportion to the batch, and a warm-up."""

from __future__ import annotations

from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.claims.trainings import accuracy, curve, trained

SEEDS = 2
SMALL, FACTOR, EPOCHS = 32, 8, 24
SAMPLES = 4000  # of the training set
COMMON: dict[str, Any] = {"data": "mnist5k", "hidden": 64}


def linear_scaling() -> Measured:
    """Train the same number of epochs with small batches, and with large ones and several learning rates."""
    rate, large = 0.05, SMALL * FACTOR
    few = EPOCHS * SAMPLES // large
    small = trained("sync_sgd", 2, SEEDS, batch=SMALL, steps=EPOCHS * SAMPLES // SMALL, lr=rate, **COMMON)
    ways = {
        "scaled, warm-up": {"lr": rate, "lr_batch": SMALL, "warm_up": few // 10},
        "scaled, no warm-up": {"lr": rate, "lr_batch": SMALL},
        "same rate": {"lr": rate},
    }
    found = {name: trained("sync_sgd", 2, SEEDS, batch=large, steps=few, **COMMON | options)
             for name, options in ways.items()}  # fmt: skip
    figures: dict[str, float | None] = {
        f"{name}: points below the small batch": accuracy(small) - accuracy(runs) for name, runs in found.items()
    }
    figures["test accuracy of the small batch, %"] = accuracy(small)
    lines = {name: [(each * large, loss) for each, loss in curve(runs)] for name, runs in found.items()}
    lines["small batch"] = [(each * SMALL, loss) for each, loss in curve(small)]
    return Measured(figures, Picture("samples", "training loss", lines, log="y"))


CLAIMS = (
    Claim(
        "linear-scaling",
        Source("Goyal et al.", 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour", "section 2"),
        "With k times the batch and k times the learning rate, reached by a gradual warm-up, as many epochs give the "
        "same accuracy: batches of 256 to 8,192.",
        "real ranks",
        "2 ranks, 5,000 handwritten digits, 24 epochs, batches of 32 with a rate of 0.05 and of 256 with 0.4, a tenth "
        "of the steps as warm-up, 2 seeds. The paper trains ResNet-50 on ImageNet for 90 epochs",
        60,
        linear_scaling,
        (
            Bound("scaled, warm-up: points below the small batch", "at most 1 point below", most=1.0, core=True),
            Bound("same rate: points below the small batch", "the same rate is at least 2 points below", least=2.0,
                  core=True),
            Bound("scaled, no warm-up: points below the small batch", "without warm-up at least 0.5 points below",
                  least=0.5,
                  otherwise="a perceptron of this size bears the whole rate from the first step on; the paper's "
                  "networks of 50 layers do not"),
        ),
        "data_parallel/learning_rate.py",
        revised="24 epochs in place of 10, and batches of 256 in place of 512. Before that it did not "
                "hold",
    ),
)  # fmt: skip
