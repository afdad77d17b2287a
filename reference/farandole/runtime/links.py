"""A slow network as an input.

    --link-mbps 100                    every rank is connected to the others by 100 Mbit/s each way
    --link-change step=200,mbps=20     … and from step 200 on by 20
    --link-latency-ms 1                … and each message takes 1 ms besides

On one machine messages go through memory, where nothing that saves bytes can save time. With this each rank sends as if
it were on its own host: a message has left when the link has carried it, and messages that arrive at the same time
share the receiver's link. Both are made by sleeping, so that the cores are free for other ranks:

    sending n bytes       occupies the sender's link for α + n/rate, once it is free; the sender waits for that
    receiving n bytes     occupies the receiver's link as long; after a blocking receive that time has passed already

α is --link-latency-ms, 0 by default: it is part of each message's time on the link, as in the α-β model of
`collectives.costs`. What the machine itself takes for a message comes on top. What does not go through our messages
cannot be slowed down, and is refused: shared memory, the hierarchical all-reduce, which uses it within a node, MPI's
own collectives, Horovod, DDP. For a real network use several hosts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farandole.errors import UsageError
from farandole.runtime.faults import named_values
from farandole.runtime.numbers import parse_integer, parse_real

SLICE_S = 1.0  # a rank that sleeps for longer than that shows now and then that it lives
SHORTEST_S = 200e-6  # a shorter sleep would last longer than it should; what is owed is kept for the next message


@dataclass(frozen=True)
class LinkChange:
    """From step `step` on (they count from 0) every link has `mbps`."""

    step: int
    mbps: float

    @classmethod
    def parse(cls, text: str) -> LinkChange:
        form = "--link-change step=200,mbps=20 (a step of 0 or more, above 0 Mbit/s)"
        pairs = named_values(text, form, {"step", "mbps"})
        try:
            change = cls(parse_integer(pairs["step"]), parse_real(pairs["mbps"]))
        except (KeyError, ValueError) as error:
            raise UsageError(f"{text!r} does not fit: write it as {form}") from error
        if change.step < 0 or change.mbps <= 0:
            raise UsageError(f"{text!r} does not fit: write it as {form}")
        return change

    def __str__(self) -> str:
        return f"step={self.step},mbps={self.mbps:g}"


class Link:
    """One rank's connection, of `mbps` million bits a second each way; may be used by several threads.

    Args:
        changes: what it has later.
        latency_s: for each message, beside its bytes.

    Attributes:
        unused: the changes whose step has not begun here.
        meanwhile: is called now and then while the main thread waits for bytes that are on their way.
    """

    def __init__(self, mbps: float, changes: Sequence[LinkChange] = (), latency_s: float = 0.0) -> None:
        self._changes = sorted(changes, key=lambda change: change.step)
        self.unused = list(self._changes)
        self.s_per_byte = _s_per_byte(mbps)
        self.latency_s = latency_s
        self._lock = threading.Lock()
        self.meanwhile: Callable[[], None] = lambda: None
        self._out = self._in = 0.0  # when all is carried that has been handed over so far

    @classmethod
    def of(cls, mbps: float | None, changes: Sequence[LinkChange] = (), latency_ms: float = 0.0) -> Link | None:
        """Return the link that the options request; None: messages are not slowed down.

        Raises:
            UsageError: there is nothing to change, or to add a latency to.
        """
        if latency_ms and not mbps:
            raise UsageError(f"--link-latency-ms {latency_ms:g} adds to --link-mbps: give that too")
        if changes and not mbps:
            raise UsageError(f"--link-change {changes[0]} changes --link-mbps: give that too")
        return cls(mbps, changes, latency_ms / 1e3) if mbps else None

    def change(self, step: int) -> None:
        """Apply the changes of the steps up to `step`, which begins."""
        for change in self._changes:
            if change.step <= step:
                self.s_per_byte = _s_per_byte(change.mbps)
        self.unused = [change for change in self.unused if change.step > step]

    def send(self, nbytes: int) -> None:
        """Return when the link has carried `nbytes`, after all bytes before them."""
        with self._lock:
            self._out = max(self._out, time.perf_counter()) + self.occupied_s(nbytes)
            carried = self._out
        self._sleep_until(carried)

    def receive(self, nbytes: int, expected: float | None = None, messages: int = 1) -> None:
        """Return when this rank's link would have carried the `nbytes` that have arrived over their sender's link.

        Args:
            expected: since when this rank could have received them, if it did other things meanwhile; None: it waited.
            messages: how many they are.
        """
        with self._lock:
            if expected is None:
                # It has carried them while the other one did, unless it was busy with something else.
                self._in = max(self._in + self.occupied_s(nbytes, messages), time.perf_counter())
            else:
                self._in = max(self._in, expected) + self.occupied_s(nbytes, messages)
            carried = self._in
        self._sleep_until(carried)

    def occupied_s(self, nbytes: int, messages: int = 1) -> float:
        """Return the seconds that messages of `nbytes` together occupy the link."""
        return messages * self.latency_s + nbytes * self.s_per_byte

    def _sleep_until(self, moment: float) -> None:
        while (rest := moment - time.perf_counter()) > SHORTEST_S:
            time.sleep(min(rest, SLICE_S))
            if threading.current_thread() is threading.main_thread():
                self.meanwhile()


def refuse(link: Link | None, what: str, instead: str = "choose another way") -> None:
    """`what` would not notice how slow the link is.

    Args:
        instead: what would be right.

    Raises:
        UsageError: there is one.
    """
    if link:
        raise UsageError(f"--link-mbps slows down our own messages, and {what} sends none of them: {instead}")


def _s_per_byte(mbps: float) -> float:
    return 8 / (mbps * 1e6)
