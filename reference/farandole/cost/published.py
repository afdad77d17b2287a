"""Models and trainings that two papers describe, which the calculators know by name.

Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021, table 1: ten
models, named by their billions of parameters. Korthikanti et al., "Reducing activation recomputation in large
transformer models", 2022, table 3: four models, two of which are among the ten, and how they were trained: with
sequence parallelism, selective recomputation, and three pieces per rank in two of them. All have sequences of 2,048
tokens and a vocabulary of 51,200.
"""

from __future__ import annotations

from farandole.cost.training_plan import TrainingPlan
from farandole.models.shape import Shape


def _gpt(heads: int, hidden: int, layers: int) -> Shape:
    return Shape(layers, hidden, heads, sequence=2048, vocabulary=51_200)


MODELS = {
    "gpt-1.7b": _gpt(24, 2304, 24),
    "gpt-3.6b": _gpt(32, 3072, 30),
    "gpt-7.5b": _gpt(32, 4096, 36),
    "gpt-18.4b": _gpt(48, 6144, 40),
    "gpt-22b": _gpt(64, 6144, 48),
    "gpt-39.1b": _gpt(64, 8192, 48),
    "gpt-76.1b": _gpt(80, 10240, 60),
    "gpt-145.6b": _gpt(96, 12288, 80),
    "gpt3-175b": _gpt(96, 12288, 96),
    "gpt-310.1b": _gpt(128, 16384, 96),
    "mt-nlg-530b": _gpt(128, 20480, 105),
    "gpt-1t": _gpt(160, 25600, 128),
}


def _trained(ranks: int, pipeline: int, batch: int, micro_batch: int = 1, chunks: int = 1) -> TrainingPlan:
    schedule = "interleaved" if chunks > 1 else "1f1b"
    return TrainingPlan(
        ranks, 8, pipeline, micro_batch=micro_batch, batch=batch, schedule=schedule, chunks=chunks,
        sequence_parallel=True, recompute="selective",
    )  # fmt: skip


KORTHIKANTI = {
    "gpt-22b": _trained(8, 1, 4, micro_batch=4),
    "gpt3-175b": _trained(64, 8, 64, chunks=3),
    "mt-nlg-530b": _trained(280, 35, 280, chunks=3),
    "gpt-1t": _trained(512, 64, 512),
}
A100 = 312e12  # operations a second in half precision
