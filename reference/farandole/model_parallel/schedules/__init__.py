"""The pipeline schedules, one file each, under the names of ``--schedule``: the one table of them.

Reading order: ``naive``, ``gpipe``, ``one_f_one_b``, ``interleaved``, ``pipedream``, ``zero_bubble``,
``zero_bubble_h2``,
``zero_bubble_v``, ``dualpipe``.
"""

from __future__ import annotations

from collections.abc import Callable

from farandole.errors import UsageError
from farandole.model_parallel.schedules.dualpipe import DUALPIPE
from farandole.model_parallel.schedules.gpipe import GPIPE
from farandole.model_parallel.schedules.interleaved import interleaved
from farandole.model_parallel.schedules.naive import NAIVE
from farandole.model_parallel.schedules.one_f_one_b import ONE_F_ONE_B
from farandole.model_parallel.schedules.pipedream import PIPEDREAM
from farandole.model_parallel.schedules.zero_bubble import ZERO_BUBBLE
from farandole.model_parallel.schedules.zero_bubble_h2 import ZERO_BUBBLE_H2
from farandole.model_parallel.schedules.zero_bubble_v import ZERO_BUBBLE_V
from farandole.model_parallel.steps import Schedule

# By the number of the model's pieces on each rank, which one of them uses.
SCHEDULES: dict[str, Callable[[int], Schedule]] = {
    "naive": lambda chunks: NAIVE,
    "gpipe": lambda chunks: GPIPE,
    "1f1b": lambda chunks: ONE_F_ONE_B,
    "interleaved": interleaved,
    "pipedream": lambda chunks: PIPEDREAM,
    "zero-bubble": lambda chunks: ZERO_BUBBLE,
    "zb-h2": lambda chunks: ZERO_BUBBLE_H2,
    "zb-v": lambda chunks: ZERO_BUBBLE_V,
    "dualpipe": lambda chunks: DUALPIPE,
}
NAMES = tuple(SCHEDULES)
FLUSHED = tuple(name for name in NAMES if name != PIPEDREAM.name)  # all micro-batches of a step before its update
ONE_WAY = tuple(name for name in FLUSHED if len(SCHEDULES[name](1).placement.routes) == 1)  # one copy of each piece


def choose(name: str, chunks: int = 2) -> Schedule:
    """Return the schedule of that name.

    Args:
        chunks: pieces of the model per rank, for the interleaved one.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in SCHEDULES:
        raise UsageError(f"there is no schedule {name!r}: choose from {', '.join(NAMES)}")
    return SCHEDULES[name](chunks)
