"""Links that lose, delay, duplicate or corrupt some of one rank's messages, or that are cut: what `reliable` survives.

    --fail rank=2,step=30,how=drop,share=0.1          a tenth of what rank 2 sends from step 30 on is lost
                          how=delay,delay=0.2         … arrives 0.2 s late, after messages that were sent later
                          how=duplicate,until=60      … arrives twice; before step 60
                          how=corrupt                 … arrives with one bit of its payload flipped
                          how=partition,heals=2       rank 2 is cut off: for two seconds all is lost that it sends, and
                                                      all that is sent to it

MPI itself loses nothing, so the fault is injected before a message is passed to MPI. It strikes acknowledgements too,
which have no payload to corrupt. Whether a message is struck depends on the seed, the two ranks, its number and the
number of its copies, but not on time: two runs lose the same messages, however their threads interleave. A partition
alone is a matter of time. Each rank begins it at its own step, since a rank that is cut off takes no further step.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from farandole.runtime.faults import MESSAGE_FAULTS, PARTITION, Fail
from farandole.runtime.reliable import Frame


@dataclass(frozen=True)
class Copy:
    """A copy of a frame on the link.

    Attributes:
        after_s: by how many seconds it is late.
        flipped: which bit of its payload is flipped, as a fraction of all its bits; None: none.
    """

    after_s: float = 0.0
    flipped: float | None = None


class Lossy:
    """Decides what becomes of the messages of rank `rank` on their links.

    Args:
        faults: the faults of all ranks. Those of messages count for this rank's own, partitions for any rank's.
        now: the clock of partitions, in seconds.

    Attributes:
        strikes: whether any rank's messages are struck.
        struck: the number of messages that each fault has struck, by the fault's text.
    """

    def __init__(self, faults: Sequence[Fail], rank: int, seed: int, now: Callable[[], float] = time.monotonic) -> None:
        self._faults = [fault for fault in faults if fault.rank == rank and fault.how in MESSAGE_FAULTS]
        self._partitions = [fault for fault in faults if fault.how == PARTITION]
        self.strikes = any(fault.is_of_messages for fault in faults)
        self._began: dict[Fail, float] = {}  # when this rank came to the step of each partition
        self._rank, self._name, self._now = rank, f"{seed} {rank}", now
        own = [*self._faults, *(fault for fault in self._partitions if fault.rank == rank)]
        self.struck: Counter[str] = Counter({str(fault): 0 for fault in own})

    def fate(self, step: int, to: int, frame: Frame) -> list[Copy]:
        """Return the copies of a frame that leave; none: the frame is lost."""
        for fault in self._partitions:
            if self._separates(fault, step, to):
                self.struck[str(fault)] += 1
                return []
        name = f"{self._name} {to} {frame.number} {frame.copy} {frame.payload is None}"
        copies = [Copy()]
        for place, fault in enumerate(self._faults):
            generator = random.Random(f"{name} {place}")
            if not fault.lasts(step) or generator.random() >= fault.share:
                continue
            if fault.how == "corrupt" and not frame.payload:
                continue
            self.struck[str(fault)] += 1
            if fault.how == "drop":
                return []
            if fault.how == "duplicate":
                copies = copies * 2
            elif fault.how == "delay":
                copies = [replace(copy, after_s=copy.after_s + fault.delay_s) for copy in copies]
            else:
                copies = [replace(copy, flipped=generator.random()) for copy in copies]
        return copies

    def _separates(self, fault: Fail, step: int, to: int) -> bool:
        """Return whether this partition lies between this rank and `to` at present."""
        if step < fault.step:
            return False
        began = self._began.setdefault(fault, self._now())
        heals_s = inf if fault.heals_s is None else fault.heals_s
        return (self._rank == fault.rank) != (to == fault.rank) and self._now() - began < heals_s


def with_flipped_bit(payload: bytes, flipped: float) -> bytes:
    """Return the payload with the bit at this fraction of all its bits flipped."""
    byte, bit = divmod(int(flipped * 8 * len(payload)), 8)
    damaged = bytearray(payload)
    damaged[byte] ^= 1 << bit
    return bytes(damaged)
