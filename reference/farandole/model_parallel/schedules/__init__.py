"""The pipeline schedules, one file each, under the names of ``--schedule``.

Reading order: ``naive``, ``gpipe``, ``one_f_one_b``, ``interleaved``, ``pipedream``, ``zero_bubble``.
"""

from __future__ import annotations

from farandole.errors import UsageError
from farandole.model_parallel.schedules.gpipe import GPIPE
from farandole.model_parallel.schedules.interleaved import interleaved
from farandole.model_parallel.schedules.naive import NAIVE
from farandole.model_parallel.schedules.one_f_one_b import ONE_F_ONE_B
from farandole.model_parallel.schedules.pipedream import PIPEDREAM
from farandole.model_parallel.schedules.zero_bubble import ZERO_BUBBLE
from farandole.model_parallel.steps import Schedule

NAMES = ("naive", "gpipe", "1f1b", "interleaved", "pipedream", "zero-bubble")


def choose(name: str, chunks: int = 2) -> Schedule:
    """The schedule of that name.

    Args:
        chunks: pieces of the model per rank, for the interleaved one.

    Raises:
        UsageError: there is none of that name.
    """
    known = {schedule.name: schedule for schedule in (NAIVE, GPIPE, ONE_F_ONE_B, PIPEDREAM, ZERO_BUBBLE)}
    known["interleaved"] = interleaved(chunks)
    if name not in known:
        raise UsageError(f"there is no schedule {name!r}: choose from {', '.join(NAMES)}")
    return known[name]
