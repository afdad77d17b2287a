"""Heartbeats (心跳): a hung rank is detected by its silence, and killed, so that the others see a failure.

The operating system reports a dead process. One that lives but does nothing blocks all others, and only time
distinguishes it from a slow one. A thread of each rank therefore sends all others, a few times a second, the number of
moves that its main thread has made, and whether it is waiting for another rank. A rank that has made no move for too
long without waiting, or has sent nothing at all, is suspected and then killed (fencing): if it woke up later it would
act on an outdated state. The rank is requested to end itself; if it does not, a rank of the same host kills it.

A network may be divided into parts that do not hear each other (网络分区). Each part would take the other for dead and
go on by itself, and the two would train different models (split brain, 脑裂). So a rank that hears less than half of
all, itself included, takes itself for cut off and ends itself. Of two halves the one with the lowest rank goes on (a
quorum: Gifford, "Weighted voting for replicated data", 1979). Its price: of three ranks the last does not outlive two
that fall silent at once, unless MPI reports their deaths.

A rank is judged from its first heartbeat on, since before it a rank may build a large model longer than others do; one
that hangs until then makes the others wait until their own time-out. A short time-out kills slow ranks; a long one
makes all ranks wait. So a rank that sends heartbeats may be still for longer, if it has been before (`sign_of_life`).
Heartbeats are datagrams, beside MPI: a lost one is followed by the next, and sending never blocks.
Cost: n(n − 1) datagrams of 49 bytes per beat.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from typing import NoReturn

import psutil

from farandole.errors import UsageError
from farandole.recovery.sign_of_life import Sign
from farandole.runtime import rank as own_process
from farandole.runtime.addresses import LOOPBACK, reachable_address
from farandole.runtime.communicator import all_gather_text, broadcast_text
from farandole.runtime.failure import Failure
from farandole.runtime.world import World

BEAT_S = 0.2
DATAGRAM = struct.Struct("16s?qqq?")  # the launch's secret, whether to end, rank, its step, moves, waiting
HEARS_WITHIN_S = 1.0  # a rank that was told to end, and has not, is killed by its neighbours after this time


@dataclass(frozen=True)
class Address:
    """The address of a rank's heartbeats, and its process."""

    host: str
    port: int
    pid: int
    created: float


def check(after_s: float, wait_timeout_s: float) -> None:
    """Refuse a silence longer than any rank waits.

    Raises:
        UsageError: with what would fit.
    """
    if after_s >= wait_timeout_s:
        raise UsageError(
            f"--hang-after {after_s:g}: a waiting rank gives up after --wait-timeout {wait_timeout_s:g}; give less"
        )


class Heart(threading.Thread):
    """A thread that sends one rank's heartbeats, and receives those of the others. Made by all ranks together.

    Args:
        after_s: a rank that sends nothing for so long is killed, and one that makes no move, if it is no slow one.
        wait_timeout_s: for how long a rank waits for another.
        noticed: called with the rank and its step, before it is killed, from this thread.
        secret: identifies the heartbeats of this launch, on a process that joins later; None: a new one.
        gone: the ranks that are known to have died, which send no heartbeats; it may grow.
    """

    def __init__(
        self,
        world: World,
        after_s: float,
        wait_timeout_s: float,
        noticed: Callable[[int, int], None],
        secret: str | None = None,
        gone: Collection[int] = (),
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.world, self.noticed, self.gone = world, noticed, gone
        self.after_s, self.wait_timeout_s = after_s, wait_timeout_s
        self._at_ease = False
        several_hosts = world.local_size < world.size
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((reachable_address() if several_hosts else LOOPBACK, 0))
        self.secret = secret or broadcast_text(world.control, secrets.token_hex(16))
        self._secret = bytes.fromhex(self.secret)
        host, port = self._socket.getsockname()
        self._own = Address(host, port, os.getpid(), psutil.Process().create_time())
        self._addresses: dict[int, Address] = {}
        self._signs: dict[int, Sign] = {}
        self._told: dict[int, float] = {}  # rank → when it was told to end
        self._stopped = threading.Event()
        self.meet()

    def meet(self) -> None:
        """Learn the addresses of all ranks in `world.control`, and listen to them. Collective.

        Cost: an all-gather.
        """
        texts = all_gather_text(self.world.control, json.dumps([self.world.rank, *astuple(self._own)]))
        met = {rank: Address(*fields) for rank, *fields in map(json.loads, texts)}
        self._addresses |= met
        for rank in met.keys() - self._signs.keys() - {self.world.rank}:
            self._signs[rank] = Sign()

    def forget_all_but(self, ranks: Collection[int]) -> None:
        """Listen to these ranks only."""
        for rank in self._signs.keys() - set(ranks):
            self._signs.pop(rank, None)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """In the body no move is expected of this rank: it waits for a slot, or evaluates."""
        self._at_ease = True
        try:
            yield
        finally:
            self._at_ease = False

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        beat = listened = time.monotonic()
        while not self._stopped.is_set():
            now = time.monotonic()
            if now - listened > HEARS_WITHIN_S:  # this thread itself was held up
                self._excuse(now - listened, now)
            listened = now
            if now >= beat:
                self._beat()
                self._judge(now)
                beat = now + BEAT_S
            self._socket.settimeout(max(0.001, beat - time.monotonic()))
            with suppress(TimeoutError, OSError):
                self._hear(self._socket.recv(DATAGRAM.size))
        self._socket.close()

    def _beat(self) -> None:
        position = self.world.position
        waiting = (position.waiting and not position.working) or self._at_ease
        sign = DATAGRAM.pack(self._secret, False, self.world.rank, position.step, position.moves, waiting)
        for rank in list(self._signs):
            self._send(rank, sign)

    def _excuse(self, seconds: float, now: float) -> None:
        """Extend all deadlines by the time in which this thread received nothing."""
        for sign in list(self._signs.values()):
            sign.excuse(seconds, now)

    def _hear(self, datagram: bytes) -> None:
        if len(datagram) != DATAGRAM.size or self.world.cut_off:
            return
        secret, end, rank, step, moves, waiting = DATAGRAM.unpack(datagram)
        if secret != self._secret:
            return
        if end:
            os.kill(os.getpid(), signal.SIGKILL)
        if sign := self._signs.get(rank):
            sign.hear(step, moves, waiting, time.monotonic())

    def _judge(self, now: float) -> None:
        for rank, sign in list(self._signs.items()):
            if rank in self.gone:
                continue
            if rank in self._told:
                if now > self._told[rank] + HEARS_WITHIN_S:
                    self._end_by_hand(rank)
            elif now - sign.heard > self.after_s or now - sign.moved > sign.patience_s(
                self.after_s, self.wait_timeout_s
            ):
                if self._in_minority(now):
                    self._leave()
                self.noticed(rank, sign.step)
                self._told[rank] = now
                self._send(rank, DATAGRAM.pack(self._secret, True, rank, 0, 0, False))

    def _in_minority(self, now: float) -> bool:
        """Return whether this rank hears so few others that the rest may go on without it.

        The others' last heartbeats may have arrived two beats later than that of the rank which is silent.
        """
        silent_s = max(self.after_s - 2 * BEAT_S, self.after_s / 2)
        others = self._signs.keys() - set(self.gone)
        silent = {rank for rank in others if now - self._signs[rank].heard > silent_s and not self._has_ended(rank)}
        heard = {self.world.rank} | {rank for rank in others if now - self._signs[rank].heard <= silent_s}
        alive = heard | silent
        return 2 * len(heard) < len(alive) or (2 * len(heard) == len(alive) and min(alive) not in heard)

    def _leave(self) -> NoReturn:
        text = (
            f"ends itself: it has not heard half of the ranks for {self.after_s:g} s, so the others may be going on "
            "without it (--hang-after sets this time)"
        )
        own_process.leave(Failure(self.world.rank, self.world.position.step, "unable", time.time(), text))

    def _end_by_hand(self, rank: int) -> None:
        """Kill a process of this host that does not react; its neighbours kill one of another host."""
        with suppress(psutil.NoSuchProcess):
            if process := self._process(rank):
                process.kill()

    def _has_ended(self, rank: int) -> bool:
        """Return whether a rank of this host is known to be dead, and not only silent."""
        return self._addresses[rank].host == self._own.host and self._process(rank) is None

    def _process(self, rank: int) -> psutil.Process | None:
        """Return the process of a rank of this host; None: it runs on another one, or no longer."""
        address = self._addresses[rank]
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(address.pid)
            same = process.create_time() == address.created  # else another process has this number now
            if address.host == self._own.host and same and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None

    def _send(self, rank: int, datagram: bytes) -> None:
        if self.world.cut_off:
            return
        with suppress(OSError):  # a dead rank's port is closed
            self._socket.sendto(datagram, (self._addresses[rank].host, self._addresses[rank].port))
