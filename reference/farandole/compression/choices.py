"""A compressor by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name

import numpy as np

from farandole.compression.compressor import Compressor, Use
from farandole.compression.error_feedback import ErrorFeedback
from farandole.compression.majority_vote import MajorityVote
from farandole.compression.options import CompressionOptions, RoundingOptions
from farandole.compression.powersgd import PowerSGD
from farandole.compression.table import COMPRESSORS


def build(
    options: CompressionOptions, shapes: Sequence[tuple[int, ...]], seed: int, rank: int, ranks: int
) -> Compressor | PowerSGD | MajorityVote:
    """Return one rank's compressor.

    Args:
        shapes: of the tensors that make up the gradient, in order.
        seed: of the run; what is to be drawn alike on all ranks and what independently follows from it.
    """
    common, own = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1 + rank])
    use = Use(options, common, own, options.with_feedback, shapes, ranks)
    row = COMPRESSORS[options.compressor]
    compressor: Compressor = resolve_name(row.make)(use)
    return ErrorFeedback(compressor, use.length) if row.is_plain and use.feedback else compressor


def plain(
    name: str, options: RoundingOptions, common: np.random.Generator, own: np.random.Generator, unbiased: bool
) -> Compressor:
    """Return a compressor without a memory.

    Args:
        name: any whose row says `is_plain`.
        options: with a `fraction`, where only some of the entries are sent.
        common, own: random numbers, the same on all ranks, and others on each.
        unbiased: right on average, where that can be chosen; otherwise it never loses more than it is given.
    """
    compressor: Compressor = resolve_name(COMPRESSORS[name].make)(Use(options, common, own, feedback=not unbiased))
    return compressor
