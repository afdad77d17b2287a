"""Compressed gradients at many workers: the collectives of `data_parallel.compressed`, with the compressors' own bytes.

    its bytes may be added       a ring all-reduce of c bytes                  2(P − 1)α + 2(P − 1)/P·cβ
    they may not                 an all-gather of P payloads, by a ring        (P − 1)(α + cβ)
    PowerSGD                     two ring all-reduces, of both factors
    majority vote                an all-to-all of ballots, an all-gather of verdicts
    TernGrad, shared scales      an all-gather of the scales before that of the payloads

So a gathered payload c costs more than the uncompressed gradient's ring from P ≈ 2n/c workers on. The bytes are those
that the compressor itself gives for the number of parameters, with DGC's after the warm-up. What compression loses has
no effect on the simulated loss. Nothing overlaps, as in the scenario. Cost: O(P), as of the collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt
from pkgutil import resolve_name
from typing import Any

import numpy as np

from farandole.collectives.all_to_all import PAIRWISE
from farandole.collectives.ring import ALL_GATHER, RING
from farandole.collectives.steps import Schedule
from farandole.compression import powersgd
from farandole.compression.compressor import Use
from farandole.compression.majority_vote import MajorityVote
from farandole.compression.powersgd import PowerSGD
from farandole.compression.table import COMPRESSORS
from farandole.compression.terngrad import TernGrad
from farandole.cost.choice import BYTES, Choice
from farandole.cost.messages import collective_s
from farandole.cost.setting import Setting

Exchange = tuple[Schedule, Setting, float]


def exchange_s(name: str, setting: Setting, choice: Choice) -> float:
    """Return the seconds in which all workers exchange one gradient, encoded by the compressor of this name."""
    return sum(collective_s(*each) for each in exchange(name, setting, choice))


def exchange(name: str, setting: Setting, choice: Choice) -> list[Exchange]:
    """Return the collectives of a step, one after the other, each with the bytes of all its chunks together."""
    workers, length = setting.workers, round(setting.nbytes / BYTES)
    compressor = _compressor(name, choice, workers)
    if isinstance(compressor, PowerSGD):
        return [(RING, setting, nbytes) for nbytes in powersgd.nbytes(tensors(length, choice), compressor.rank)]
    if isinstance(compressor, MajorityVote):
        row = MajorityVote(length, workers, compressor.generator).nbytes() / (2 * max(1, workers - 1))
        return [(PAIRWISE, setting, workers * row), (ALL_GATHER, setting, workers * row)]
    nbytes = compressor.nbytes(length)
    if compressor.sums_as is not None:
        return [(RING, setting, nbytes)]
    scales = compressor.scale_bytes(length) if isinstance(compressor, TernGrad) and compressor.shared else 0
    return [(ALL_GATHER, setting, workers * each) for each in (scales, nbytes) if each]


def tensors(length: int, choice: Choice) -> Sequence[tuple[int, ...]]:
    """Return the shapes of the parameters: the model's, or of a square matrix for each unit, and what is left over."""
    if choice.model:
        return choice.model.tensors
    side = isqrt(length // choice.units)
    return [(side, side)] * choice.units + [(length - choice.units * side**2,)]


def _compressor(name: str, choice: Choice, workers: int) -> Any:
    """Make one rank's compressor, for vectors of no length: its state would be as long as a gradient."""
    options = replace(choice.compression, compressor=name)
    generator = np.random.default_rng(0)
    use = Use(options, generator, generator, options.with_feedback, ranks=workers)
    return resolve_name(COMPRESSORS[name].make)(use)
