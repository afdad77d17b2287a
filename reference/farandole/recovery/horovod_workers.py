"""The start of Elastic Horovod's workers, which are watched: the function that Horovod's driver calls for each.

Horovod knows a worker by host and rank, and both change. Here each has a number that stays: the first workers have
their first rank, a later one has the next number that is free.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from horovod.runner.gloo_run import create_slot_env_vars

from farandole.errors import PlainError
from farandole.recovery.event_log import EventLog
from farandole.recovery.horovod_hosts import Hosts
from farandole.recovery.horovod_world import CARDS, NEIGHBOURS, NUMBER, WORKERS
from farandole.runtime import mpirun, processes, rank
from farandole.runtime.flight_recorder import read_positions
from farandole.runtime.launcher import TIMED_OUT

POLL_S = 0.02


class Workers:
    """Starts workers, and logs which have ended.

    Args:
        folder: of the run.
        program: the command of each worker.

    Attributes:
        failed: the numbers of the workers that have died, or failed.
        ended: the numbers of the workers that Horovod's driver has ended.
        living: number of workers that live.
        waited_in_vain: set once a worker has timed out; then all are ended.
    """

    def __init__(self, hosts: Hosts, folder: Path, program: list[str]) -> None:
        self.hosts, self.folder, self.program = hosts, folder, program
        self.event_log = EventLog(folder / "logbook.jsonl")
        self.environment: dict[str, str] = {}  # what Horovod adds to each one's; known when its driver listens
        self.failed: list[int] = []
        self.ended: list[int] = []
        self.living = 0
        self.waited_in_vain = threading.Event()
        self._numbers: set[int] = set()
        self._cards = secrets.token_hex(4)
        self._lock = threading.Lock()

    def run(self, slot: Any, events: list[threading.Event]) -> tuple[int, float]:
        """Start a worker and wait for its end; Horovod's driver calls it for each worker, in a thread.

        Args:
            slot: its host, and its rank at first.
            events: the end of the job, and the end of this host.

        Returns:
            Its exit status, and the time of day.
        """
        number = self._begin(slot.rank)
        try:
            return self._see_through(number, slot, events), time.time()
        except (OSError, PlainError) as error:  # a host's name, or the file of hosts, is not what it was
            print(f"worker {number} cannot be started: {error}", file=sys.stderr, flush=True)
            self.failed.append(number)
            return 1, time.time()
        finally:
            with self._lock:
                self.living -= 1

    def _see_through(self, number: int, slot: Any, events: list[threading.Event]) -> int:
        """Start worker `number`, and end it if an event asks for it; return its exit status."""
        neighbours = str(self.hosts.neighbours(slot.hostname))
        own = {NUMBER: str(number), NEIGHBOURS: neighbours, CARDS: self._cards}
        environment = self.environment | create_slot_env_vars(slot) | own
        process = subprocess.Popen(
            self.hosts.command(slot.hostname, self.program, environment),
            stdin=subprocess.DEVNULL,
            env=surroundings() | environment,
            preexec_fn=processes.end_with_parent,
        )
        while process.poll() is None and not any(event.is_set() for event in (*events, self.waited_in_vain)):
            time.sleep(POLL_S)
        living, to_end = process.poll() is None, any(event.is_set() for event in events)
        if process.returncode == TIMED_OUT:
            self.waited_in_vain.set()
        elif (living or process.returncode) and to_end:  # one that has ended itself did so because of this
            self.ended.append(number)
            self._departed(number, "ended")
        elif process.returncode:
            self.failed.append(number)
            self._departed(number, "lost")
        if living:
            with suppress(psutil.NoSuchProcess):
                processes.end([psutil.Process(process.pid)])
        return process.wait()

    def _begin(self, first_rank: int) -> int:
        with self._lock:
            number = max(self._numbers) + 1 if first_rank in self._numbers else first_rank
            self._numbers.add(number)
            self.living += 1
            return number

    def _departed(self, number: int, kind: str) -> None:
        reached = {position.rank: position.step for position in read_positions(self.folder / WORKERS)}
        self.event_log.write("departed", number, max(0, reached.get(number, 0)), kind)


def surroundings() -> dict[str, str]:
    """Return this process's environment, without the launcher's variables but those that mark the launch."""
    marks = {name: os.environ[name] for name in (rank.LAUNCH, rank.PROGRESS) if name in os.environ}
    return mpirun.detect().environment(os.environ) | marks
