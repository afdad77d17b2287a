"""A compressor by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt

import numpy as np

from farandole.compression.compressor import Compressor, Uncompressed
from farandole.compression.dgc import DGC
from farandole.compression.error_feedback import ErrorFeedback
from farandole.compression.half_precision import BFloat16, Float16
from farandole.compression.majority_vote import MajorityVote
from farandole.compression.options import CompressionOptions, RoundingOptions
from farandole.compression.powersgd import PowerSGD
from farandole.compression.qsgd import QSGD
from farandole.compression.random_k import RandomK
from farandole.compression.sign import Sign
from farandole.compression.terngrad import TernGrad
from farandole.compression.top_k import TopK


def build(
    options: CompressionOptions, shapes: Sequence[tuple[int, ...]], seed: int, rank: int, ranks: int
) -> Compressor | PowerSGD | MajorityVote:
    """One rank's compressor.

    Args:
        shapes: of the tensors that make up the gradient, in order.
        seed: of the run; what is to be drawn alike on all ranks and what independently follows from it.
    """
    common, own = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1 + rank])
    length, feedback = sum(map(prod, shapes)), options.with_feedback
    if options.compressor == "powersgd":
        return PowerSGD(shapes, options.matrix_rank, ranks, common, feedback)
    clip = options.clip / sqrt(ranks) if options.clip else None
    if options.compressor == "dgc":
        return DGC(length, options.fraction, options.dgc_momentum, options.sparsity_warm_up, clip)
    if options.compressor == "majority-vote":
        return MajorityVote(length, ranks, own)
    if options.compressor == "terngrad":
        terngrad = TernGrad(own, options.bucket, options.terngrad_clip, options.share_scales)
        return ErrorFeedback(terngrad, length) if feedback else terngrad
    compressor = plain(options.compressor, options, options.fraction, common, own, unbiased=not feedback)
    return ErrorFeedback(compressor, length) if feedback else compressor


def plain(
    name: str,
    options: RoundingOptions,
    fraction: float,
    common: np.random.Generator,
    own: np.random.Generator,
    unbiased: bool,
) -> Compressor:
    """A compressor without a memory.

    Args:
        name: any compressor but dgc, powersgd and majority-vote, which are no plain functions of a vector.
        fraction: of the entries, where only some are sent.
        common, own: random numbers, the same on all ranks, and others on each.
        unbiased: right on average, where that can be chosen; otherwise it never loses more than it is given.
    """
    makers: dict[str, Callable[[], Compressor]] = {
        "none": Uncompressed,
        "float16": Float16,
        "bfloat16": BFloat16,
        "qsgd": lambda: QSGD(own, options.levels, options.bucket),
        "terngrad": lambda: TernGrad(own, options.bucket),
        "sign": Sign,
        "top-k": lambda: TopK(fraction),
        "random-k": lambda: RandomK(common, fraction, unbiased),
    }
    return makers[name]()
