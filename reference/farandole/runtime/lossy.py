"""A link that loses, delays or duplicates some of one rank's messages: the fault that `reliable` makes up for.

    --fail rank=2,step=30,how=drop,share=0.1          a tenth of what rank 2 sends from step 30 on is lost
                          how=delay,delay=0.2         … arrives 0.2 s late, after messages that were sent later
                          how=duplicate,until=60      … arrives twice; before step 60

MPI itself loses nothing, so the fault is injected before a message is passed to MPI. It strikes acknowledgements too.
Whether a message is struck depends on the seed, the two ranks, its number and the number of its copies, but not on
time: two runs lose the same messages, however their threads interleave.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from farandole.runtime.faults import MESSAGE_FAULTS, Fail
from farandole.runtime.reliable import Frame


class Lossy:
    """Decides which messages of rank `rank` are lost, delayed or duplicated.

    Args:
        faults: the faults of all ranks; only message faults of this rank are used.

    Attributes:
        struck: the number of messages that each fault has struck, by the fault's text.
    """

    def __init__(self, faults: Sequence[Fail], rank: int, seed: int) -> None:
        self._faults = [fault for fault in faults if fault.rank == rank and fault.how in MESSAGE_FAULTS]
        self._name = f"{seed} {rank}"
        self.struck: Counter[str] = Counter({str(fault): 0 for fault in self._faults})

    def fate(self, step: int, to: int, frame: Frame) -> list[float]:
        """Return the delay of each copy of a frame on the link, in seconds; an empty list: the frame is lost."""
        name = f"{self._name} {to} {frame.number} {frame.copy} {frame.payload is None}"
        copies = [0.0]
        for place, fault in enumerate(self._faults):
            draw = random.Random(f"{name} {place}").random()
            if not fault.lasts(step) or draw >= fault.share:
                continue
            self.struck[str(fault)] += 1
            if fault.how == "drop":
                return []
            copies = [after_s + fault.delay_s for after_s in copies] if fault.how == "delay" else copies * 2
        return copies
