"""A process that joins a running job: it is spawned in the background, and admitted by all ranks at once.

    caller                      joining process
    spawn, in a thread    →     Python and MPI start
    greeting              →     what it needs to prepare itself
                          ←     ready to connect
    a port                →
    accept, with all      ↔     connect
                          ←     connected
    welcome               →     what the other ranks have agreed on

The other ranks go on until the joining process is ready, so they wait during the last four lines only, a few
milliseconds. Until it is welcomed it belongs to no group: on any error it exits, and no rank depends on it yet.
`recovery.membership` decides when a process is spawned, and admits it.

These are MPI's dynamic processes: MPI_Comm_spawn, MPI_Open_port, MPI_Comm_accept and MPI_Comm_connect. mpirun decides
where the new process runs. Cost: six short messages between the two, and one collective call and an agreement of all
other ranks. Source: MPI Forum, "MPI: a message-passing interface standard", chapter on process creation.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from typing import Any, Literal, NoReturn

import numpy as np
from mpi4py import MPI

from farandole.runtime import rank, rank_starter
from farandole.runtime.clock import offset_to_rank_0
from farandole.runtime.communicator import as_buffer
from farandole.runtime.failure import Failure
from farandole.runtime.flight_recorder import NO_STEP

CALLER, JOINING = 0, 1  # ranks on the bridge between the two
NAP_S = 0.001

News = Literal["none", "ready", "lost"]
Told = dict[str, Any]


class SpawnRequest(threading.Thread):
    """The caller's side: spawns the process, and exchanges messages with it.

    Args:
        number: of the joining process; no process of the job has had it.
        greeting: what it receives first.
    """

    def __init__(self, number: int, greeting: Told) -> None:
        super().__init__(name=f"call of rank {number}", daemon=True)
        self.number, self.greeting = number, greeting
        self._bridge: MPI.Intracomm | None = None
        self._failed = self._dismissed = False
        self._deadline = time.monotonic() + rank.START_S
        rank.joined(number)
        self.start()

    def run(self) -> None:
        try:
            python, *words = rank_starter.command(["--as", str(self.number), *rank.own_program()], os.environ)
            between = MPI.Intracomm(MPI.COMM_SELF.Dup()).Spawn(python, words)
            bridge = MPI.Intracomm(between.Merge(high=False))
            _tell(bridge, JOINING, {} if self._dismissed else self.greeting)
            self._bridge = bridge
        except MPI.Exception as error:
            print(f"farandole: rank {self.number} could not be started: {error}", file=sys.stderr)
            self._failed = True

    @property
    def news(self) -> News:
        """Whether the process is ready to connect, or lost."""
        if self._failed:
            return "lost"
        if self._bridge is None:  # MPI does not report a process that dies before it has met its caller
            return "lost" if time.monotonic() > self._deadline else "none"
        try:
            return "ready" if self._bridge.Iprobe(JOINING) else "none"
        except MPI.Exception:
            return "lost"

    def invite(self) -> str:
        """Open a port, and send it to the process, which is ready; return the port."""
        assert self._bridge is not None
        _hear(self._bridge, JOINING)
        port: str = MPI.Open_port()
        _tell(self._bridge, JOINING, {"port": port})
        return port

    def sees_it_inside(self) -> None:
        """Wait until the process has connected, and compare the clocks."""
        assert self._bridge is not None
        _hear(self._bridge, JOINING)
        offset_to_rank_0(self._bridge)

    def welcome(self, told: Told) -> None:
        assert self._bridge is not None
        with suppress(MPI.Exception):  # if it has just died, that is found as any rank's death
            _tell(self._bridge, JOINING, told)

    def dismiss(self, farewell_s: float = 0.0) -> None:
        """Give the process up: it is not needed any more, or lost.

        Args:
            farewell_s: seconds it has to meet its caller and receive that.
        """
        self._dismissed = True
        if self.news == "none":
            self.join(farewell_s)
        if self.news != "ready":  # the launcher need not wait for it
            rank.departed([self.number])
        if self._bridge is not None:
            with suppress(MPI.Exception):
                _tell(self._bridge, JOINING, {})


class JoiningProcess:
    """The joining process's side.

    Attributes:
        number: of this process.
        greeting: what the caller has sent first.
        inside: it has been welcomed, and is a rank like the others.
        offset: seconds to add to its clock to read the caller's; known once it is inside.
    """

    def __init__(self) -> None:
        self.number = rank.early_rank()
        self.inside = False
        self.offset = 0.0
        self._bridge = MPI.Intracomm(MPI.Comm.Get_parent().Merge(high=True))
        self.greeting = self._hear()
        if not self.greeting:
            self._leave("it is not needed any more")

    def wait_for_invitation(self) -> str | None:
        """Report that it is ready, and wait; return the port, or None if it is not needed any more."""
        self._tell({"ready": self.number})
        port: str | None = self._hear().get("port")
        if port is None:
            rank.departed([self.number])  # its regular end must not count as the end of the training
        return port

    def enter(self, port: str) -> tuple[MPI.Intracomm, Told]:
        """Connect; return the communicator of all ranks, in which it is the last, and the welcome."""
        try:
            between = MPI.Intracomm(MPI.COMM_SELF.Dup()).Connect(port)
            everyone = MPI.Intracomm(between.Merge(high=True))
            self._tell({"inside": self.number})
            self.offset = offset_to_rank_0(self._bridge)
        except MPI.Exception:
            self._leave()
        told = self._hear()
        if not told:
            self._leave("the others have not all let it in")
        self.inside = True
        return everyone, told

    def _tell(self, told: Told) -> None:
        try:
            _tell(self._bridge, CALLER, told)
        except MPI.Exception:
            self._leave()

    def _hear(self) -> Told:
        try:
            return _hear(self._bridge, CALLER)
        except MPI.Exception:
            self._leave()

    def _leave(self, why: str = "the rank that requested it has died") -> NoReturn:
        rank.leave(Failure(self.number, NO_STEP, "lost", time.time(), f"has not joined: {why}"))


@cache
def joining_process() -> JoiningProcess:
    """Return this process's, which meets its caller as early as possible."""
    return JoiningProcess()


def _tell(bridge: MPI.Intracomm, to: int, told: Told) -> None:
    bridge.Send(as_buffer(json.dumps(told)), to)


def _hear(bridge: MPI.Intracomm, source: int) -> Told:
    """Return the next message. Polls and sleeps, so that the cores are free for the other ranks."""
    status = MPI.Status()
    while not bridge.Iprobe(source, status=status):
        time.sleep(NAP_S)
    text = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
    bridge.Recv(text, source)
    told: Told = json.loads(text.tobytes())
    return told
