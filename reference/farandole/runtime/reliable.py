"""Reliable delivery over a link that loses, delays and duplicates messages: the protocol, without MPI and clock.

Selective repeat with acknowledgements. Each direction of a pair of ranks numbers its messages 0, 1, 2, …

    sender      keeps a message until it is acknowledged; after its time-out sends it again and doubles the time-out
    receiver    acknowledges every copy that arrives, delivers each number once and in order, and buffers early messages
    checksum    a copy whose checksum is wrong counts as lost: it is not acknowledged, and sent again

The time-out follows the measured round trip (Jacobson, "Congestion avoidance and control", 1988):

    error = sample − SRTT,  SRTT ← SRTT + error/8,  RTTVAR ← RTTVAR + (|error| − RTTVAR)/4,  RTO = SRTT + 4·RTTVAR

A message that was sent more than once gives no sample, since the acknowledgement may belong to any copy (Karn &
Partridge, "Improving round-trip time estimates in reliable transport protocols", 1987).

The checksum is the CRC-32 of the payload, end to end: it also finds what changed in the memory of a card, a host or a
switch, which the checksum of a link does not cover (Saltzer et al., "End-to-end arguments in system design", 1984).

Cost: one acknowledgement per copy that arrives; memory for unacknowledged and early messages. Document 000 warns that
communication may fail (通信可能会失败); 001 requires retries until success or a set time-out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

FIRST_S = 0.2  # the time-out before a round trip has been measured
SHORTEST_S, LONGEST_S = 0.05, 1.0  # time-outs: a rank waiting for its core must not look like a lost message
TRIES = 15


@dataclass(frozen=True)
class Frame:
    """A message or an acknowledgement on the link.

    Attributes:
        number: the message's sequence number from its sender to its receiver.
        tag: the message's tag.
        payload: the message's bytes; None: an acknowledgement of message `number`.
        copy: how often the sender has sent the message, this time included; in an acknowledgement, the copy it answers.
        checksum: the CRC-32 of the payload that the sender meant; None: the sender makes none.
    """

    number: int
    tag: int = 0
    payload: bytes | None = None
    copy: int = 1
    checksum: int | None = None

    @property
    def is_intact(self) -> bool:
        """Whether the payload is the one that the sender meant, as far as its checksum tells."""
        return self.checksum is None or self.checksum == zlib.crc32(self.payload or b"")


@dataclass
class Unacknowledged:
    """A message that the peer has not acknowledged yet, sent `tries` times since `first` and due again at `due`."""

    frame: Frame
    first: float
    due: float
    timeout_s: float
    tries: int = 1


class GaveUp(Exception):
    """A message was never acknowledged, however often it was sent.

    Attributes:
        tries, seconds: how often the message was sent, and over what time.
    """

    def __init__(self, tries: int, seconds: float) -> None:
        super().__init__(f"{tries} tries in {seconds:.1f} s")
        self.tries, self.seconds = tries, seconds


class RoundTrip:
    """Computes the time-out from the round trips measured so far."""

    def __init__(self) -> None:
        self._mean: float | None = None
        self._deviation = 0.0

    def measured(self, seconds: float) -> None:
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
            return
        error = seconds - self._mean
        self._mean += error / 8
        self._deviation += (abs(error) - self._deviation) / 4

    @property
    def timeout_s(self) -> float:
        if self._mean is None:
            return FIRST_S
        return min(max(self._mean + 4 * self._deviation, SHORTEST_S), LONGEST_S)


class Channel:
    """One rank's end of the connection to one peer, in both directions.

    Args:
        limit_s: give up on a message after this many seconds, or after `tries` copies.
        checksums: give each message a checksum, by which the peer finds whether it was changed on its way.

    Attributes:
        duplicates: number of copies that arrived after the message had already arrived.
        corrupted: number of copies that arrived changed, and were ignored.
    """

    def __init__(self, limit_s: float = float("inf"), tries: int = TRIES, checksums: bool = False) -> None:
        self.limit_s, self.tries, self.checksums = limit_s, tries, checksums
        self.duplicates = self.corrupted = 0
        self.round_trip = RoundTrip()
        self._next_sent = self._next_delivered = 0
        self._unacknowledged: dict[int, Unacknowledged] = {}
        self._early: dict[int, Frame] = {}

    def send(self, tag: int, payload: bytes, now: float) -> Frame:
        """Return the first copy of a new message; the caller puts it on the link."""
        frame = Frame(self._next_sent, tag, payload, checksum=zlib.crc32(payload) if self.checksums else None)
        self._next_sent += 1
        timeout_s = self.round_trip.timeout_s
        self._unacknowledged[frame.number] = Unacknowledged(frame, now, now + min(timeout_s, self.limit_s), timeout_s)
        return frame

    def receive(self, frame: Frame, now: float) -> tuple[Frame | None, list[Frame]]:
        """Return the answer to an arrived frame, and the messages that it delivers.

        The answer is its acknowledgement; None if it is itself one, or is corrupted.
        """
        if frame.payload is None:
            waiting = self._unacknowledged.pop(frame.number, None)
            if waiting and waiting.tries == 1:
                self.round_trip.measured(now - waiting.first)
            return None, []
        if not frame.is_intact:
            self.corrupted += 1
            return None, []
        if frame.number < self._next_delivered or frame.number in self._early:
            self.duplicates += 1
        else:
            self._early[frame.number] = frame
        return Frame(frame.number, copy=frame.copy), list(self._in_order())

    def again(self, now: float) -> list[Frame]:
        """Return the messages whose time-out is over; the caller puts them on the link again.

        Raises:
            GaveUp: a message was sent `tries` times, or has waited for `limit_s`.
        """
        overdue = [waiting for waiting in self._unacknowledged.values() if waiting.due <= now]
        for waiting in overdue:
            if waiting.tries >= self.tries or now - waiting.first >= self.limit_s:
                raise GaveUp(waiting.tries, now - waiting.first)
            waiting.tries += 1
            waiting.frame = replace(waiting.frame, copy=waiting.tries)
            waiting.timeout_s = min(2 * waiting.timeout_s, LONGEST_S)
            waiting.due = min(now + waiting.timeout_s, waiting.first + self.limit_s)
        return [waiting.frame for waiting in overdue]

    def _in_order(self) -> Iterator[Frame]:
        while (frame := self._early.pop(self._next_delivered, None)) is not None:
            self._next_delivered += 1
            yield frame
