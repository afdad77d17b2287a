"""Claims about gradient compression that need no training: QSGD's variance, and what sign does without feedback."""

from __future__ import annotations

import numpy as np

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.compression.compressor import Compressor
from farandole.compression.error_feedback import ErrorFeedback
from farandole.compression.qsgd import QSGD
from farandole.compression.sign import Sign

ENTRIES, DRAWS = 1024, 400


def qsgd() -> Measured:
    """Encode one gaussian vector many times with each number of levels, in one bucket."""
    rng = np.random.default_rng(0)
    vector = rng.normal(size=ENTRIES).astype(np.float32)
    squared = float(vector @ vector)
    relative, bias, bits = {}, {}, {}
    for levels in (1, 4, 16, 32, 64):
        codec = QSGD(np.random.default_rng(1), levels, ENTRIES)
        decoded = np.stack([codec.decode(codec.encode(vector), ENTRIES) for _ in range(DRAWS)]).astype(np.float64)
        variance = float(((decoded - vector) ** 2).sum(axis=1).mean() / squared)
        relative[levels] = variance / min(ENTRIES / levels**2, ENTRIES**0.5 / levels)
        bias[levels] = float(((decoded.mean(axis=0) - vector) ** 2).sum() / squared / (variance / DRAWS))
        codes = np.rint(decoded[0] / np.linalg.norm(vector) * levels)
        shares = np.unique(codes, return_counts=True)[1] / ENTRIES
        bits[levels] = 8 * codec.nbytes(ENTRIES) / ENTRIES, float(-(shares * np.log2(shares)).sum())
    figures = {
        "largest variance / bound min(n/s², √n/s)": max(relative.values()),
        "squared bias / the mean's variance, largest": max(bias.values()),
        "bits an entry, s = √n": bits[32][0],
        "entropy of the codes in bits an entry, s = √n": bits[32][1],
    }
    lines = {"as sent here": [(float(levels), each[0]) for levels, each in bits.items()],
             "entropy": [(float(levels), each[1]) for levels, each in bits.items()]}  # fmt: skip
    return Measured(figures, Picture("levels s", "bits an entry", lines, {"Elias coding, bound": [(32, 2.8)]}, "x"))


def descent(codec: Compressor | None, steps: int = 2000) -> list[float]:
    """Minimise ε|x₁ + x₂| + |x₁ − x₂| from (1, 1) by subgradients and steps of 0.5/√t; return x's losses."""
    x, losses = np.array([1.0, 1.0]), []
    for step in range(steps):
        plus, minus = np.sign(x[0] + x[1]), 1.0 if x[0] >= x[1] else -1.0
        gradient = 0.5 * plus * np.array([1.0, 1.0]) + minus * np.array([1.0, -1.0])
        losses.append(float(0.5 * abs(x[0] + x[1]) + abs(x[0] - x[1])))
        if codec is not None:
            gradient = codec.decode(codec.encode(gradient.astype(np.float32)), 2).astype(np.float64)
        x = x - 0.5 / np.sqrt(step + 1) * gradient
    return losses


def counterexample() -> Measured:
    """Descend on the counter-example as it is, by signs, and by signs with feedback."""
    runs = {
        "no compression": descent(None),
        "sign": descent(Sign()),
        "sign, feedback": descent(ErrorFeedback(Sign(), 2)),
    }
    ends = {name: float(np.mean(losses[-100:])) for name, losses in runs.items()}
    figures = {f"loss at the end, {name}": loss for name, loss in ends.items()}
    lines = {name: [(float(step + 1), losses[step]) for step in range(0, 2000, 40)] for name, losses in runs.items()}
    return Measured(figures, Picture("step", "loss", lines, log="x"))


CLAIMS = (
    Claim(
        "qsgd-variance",
        Source("Alistarh et al.", 2017, "QSGD: communication-efficient SGD via gradient quantization and encoding",
               "section 3, on variance and length"),
        "A quantised gradient of n entries and s levels is right on average, its variance is at most "
        "min(n/s², √n/s)·‖v‖², and with s = √n it takes at most 2.8n + 32 bits.",
        "computed",
        "400 encodings of a gaussian vector of 1,024 entries in one bucket, s = 1 to 64",
        2,
        qsgd,
        (
            Bound("largest variance / bound min(n/s², √n/s)", "the variance is within the bound", most=1, core=True),
            Bound("squared bias / the mean's variance, largest", "the mean is the vector, to its own scatter",
                  most=1.25, core=True),
            Bound("bits an entry, s = √n", "at most 2.84 bits an entry", most=2.84,
                  otherwise="codes have a fixed length here, 7 bits for 65 values, so that messages have a known "
                  "length. The codes' entropy shows that the paper's Elias coding could reach its figure"),
        ),
        "compression/qsgd.py",
    ),
    Claim(
        "sign-counterexample",
        Source("Karimireddy et al.", 2019, "Error feedback fixes SignSGD and other gradient compression schemes",
               "counter-examples"),
        "On ε|x₁ + x₂| + |x₁ − x₂| from (1, 1) steps along the gradient's sign never move x₁ + x₂ and do not converge, "
        "whatever their length; with error feedback they do.",
        "computed",
        "this project's `Sign` and `ErrorFeedback`, 2,000 steps of 0.5/√t, ε = 0.5",
        1,
        counterexample,
        (
            Bound("loss at the end, sign", "by signs the loss stays at 1, that of x₁ + x₂ = 2", least=0.99, core=True),
            Bound("loss at the end, sign, feedback", "with feedback it falls below 0.1", most=0.1, core=True),
            Bound("loss at the end, no compression", "as without compression", most=0.1),
        ),
        "compression/error_feedback.py",
    ),
)  # fmt: skip
