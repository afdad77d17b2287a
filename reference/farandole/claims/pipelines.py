"""Claims about GPipe and 1F1B: idle time and memory, counted over their steps."""

from __future__ import annotations

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.model_parallel.checker import Execution, execute
from farandole.model_parallel.schedules import choose
from farandole.model_parallel.steps import Times

STAGES = (2, 4, 8, 16)
NARAYANAN = "Efficient large-scale language model training on GPU clusters using Megatron-LM"


def run(name: str, stages: int, micro_batches: int, chunks: int = 2) -> Execution:
    """Run a schedule whose backward passes take twice as long as its forward passes."""
    return execute(choose(name, chunks), stages, micro_batches, Times())


def gpipe() -> Measured:
    """Measure GPipe's idle share and memory for several numbers of micro-batches."""
    lines = {f"{p} stages": [(m / p, run("gpipe", p, m).bubble_of_total) for m in range(p, 8 * p + 1, p)]
             for p in STAGES}  # fmt: skip
    error = max(abs(bubble - (p - 1) / (round(ratio * p) + p - 1)) for p in STAGES
                for ratio, bubble in lines[f"{p} stages"])  # fmt: skip
    figures = {
        "largest distance from (K − 1)/(M + K − 1)": error,
        "idle share at M = 4K, 2 stages": lines["2 stages"][3][1],
        "idle share at M = 4K, 16 stages": lines["16 stages"][3][1],
        "micro-batches held, 4 stages, M = 16": max(run("gpipe", 4, 16).stash),
    }
    return Measured(figures, Picture("M / K", "idle share of the time", lines))


def one_f_one_b() -> Measured:
    """Count the micro-batches that the fullest stage holds."""
    held = {name: [(m, max(run(name, 8, m).stash)) for m in (8, 16, 32, 64)] for name in ("gpipe", "1f1b")}
    figures = {
        "1F1B, 8 stages: most micro-batches held, of 8 to 64": max(value for _, value in held["1f1b"]),
        "GPipe, the same with 64": held["gpipe"][-1][1],
        "largest difference of the idle shares": max(
            abs(run("gpipe", p, m).bubble_of_total - run("1f1b", p, m).bubble_of_total)
            for p in STAGES for m in (p, 4 * p)
        ),
    }  # fmt: skip
    lines = {name: [(float(m), float(most)) for m, most in points] for name, points in held.items()}
    return Measured(figures, Picture("micro-batches", "micro-batches held by the fullest of 8 stages", lines, log="xy"))


CLAIMS = (
    Claim(
        "gpipe-bubble",
        Source("Huang et al.", 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism",
               "section 2.3"),
        "With K stages and M micro-batches the idle share is (K − 1)/(M + K − 1), which is negligible for M ≥ 4K.",
        "computed",
        "GPipe's steps executed in simulated time, 2 to 16 stages, M = K to 8K, without messages and recomputation; "
        "“negligible” is read as at most 5 % of the time",
        1,
        gpipe,
        (
            Bound("largest distance from (K − 1)/(M + K − 1)", "the idle share is the formula's", most=1e-9, core=True),
            Bound("micro-batches held, 4 stages, M = 16", "all M activations are held at once", 16, 16, core=True),
            Bound("idle share at M = 4K, 16 stages", "at M = 4K at most 5 % is idle, with 16 stages", most=0.05,
                  otherwise="by the formula itself it is (K − 1)/(5K − 1), 11 % for 2 stages and up to 20 % for many. "
                  "The paper explains its observation with recomputation, which begins before the gradient arrives "
                  "and so fills part of the idle time; these steps have none"),
        ),
        "model_parallel/schedules/gpipe.py",
    ),
    Claim(
        "1f1b-memory",
        Source("Narayanan et al.", 2021, NARAYANAN, "section 2.2.1"),
        "1F1B holds the activations of at most p micro-batches where GPipe holds all m; the time in the bubble is the "
        "same.",
        "computed",
        "both schedules executed in simulated time, 8 stages, 8 to 64 micro-batches",
        1,
        one_f_one_b,
        (
            Bound("1F1B, 8 stages: most micro-batches held, of 8 to 64", "p, whatever m is", 8, 8, core=True),
            Bound("GPipe, the same with 64", "GPipe holds all", 64, 64, core=True),
            Bound("largest difference of the idle shares", "the same bubble", most=1e-9, core=True),
        ),
        "model_parallel/schedules/one_f_one_b.py",
    ),
)  # fmt: skip
