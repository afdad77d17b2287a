"""The environment of one Horovod worker, as `runtime.world.World` is that of an MPI rank.

A worker keeps the number with which the driver started it, whatever rank Horovod gives it later (`horovod_workers`).
Faults, the trace and the event log name it by this number. What it leaves for the record at its end is a `Finished`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

from farandole.recovery.event_log import EventLog, RankWitness
from farandole.recovery.options import ElasticHorovodOptions
from farandole.runtime import devices
from farandole.runtime.cards import rank_device
from farandole.runtime.faults import Fail, Slowness
from farandole.runtime.flight_recorder import FlightRecorder
from farandole.runtime.launcher import TIMED_OUT
from farandole.runtime.trace import Span, Trace
from farandole.runtime.watchdog import Waiting, Watchdog

# Environment variables by which the driver tells a worker its number, and how many workers share its machine.
NUMBER = "FARANDOLE_WORKER_NUMBER"
NEIGHBOURS = "FARANDOLE_WORKER_NEIGHBOURS"
CARDS = "FARANDOLE_WORKER_CARDS"  # the scope of the marks on this job's cards (`cards.marks`)
WORKERS = "workers"  # folder within the run's: each worker's position, and what it leaves at its end


@dataclass(frozen=True)
class Finished:
    """The results that a worker leaves for the record when it has completed the training.

    Attributes:
        leader: it was rank 0 at the end, and has evaluated the model.
        spans: its trace as JSON, in seconds since 1970, so as accurate as the hosts' clocks.
    """

    number: int
    leader: bool
    sha256: str
    wall_s: float
    place: dict[str, str | None]
    spans: str
    final_loss: float | None
    test_metrics: dict[str, float] | None

    def leave(self, folder: Path) -> None:
        """Write it to `folder`, atomically."""
        unfinished = folder / f"{self.number}.unfinished"
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        unfinished.rename(unfinished.with_suffix(".json"))

    @classmethod
    def read(cls, file: Path) -> Finished:
        return cls(**json.loads(file.read_text(encoding="utf-8")))


class HorovodWorld:
    """One worker's surroundings: its device, trace, event log and time-outs, and the faults that strike it.

    Attributes:
        number: the worker's, which stays.
        watchdog: ends this worker when it waits longer than `--wait-timeout`.
    """

    def __init__(self, options: ElasticHorovodOptions) -> None:
        assert options.out
        self.options, self.folder = options, options.out
        self.number = int(os.environ[NUMBER])
        neighbours = int(os.environ[NEIGHBOURS])
        devices.limit_threads(neighbours)
        devices.seed_everything(options.seed)
        self.place = rank_device.free(options, os.environ[CARDS], neighbours, at_once=neighbours)
        if self.place.note and self.number == 0:
            print(f"farandole: {self.place.note}", file=sys.stderr, flush=True)
        self.device = self.place.device
        devices.make_reproducible(self.device)
        devices.warm_up(self.device)
        self.trace = Trace(self.number)
        self.event_log = EventLog(self.folder / "logbook.jsonl")
        self._position = FlightRecorder(self.number, self.folder / WORKERS)
        self.watchdog = Watchdog(options.wait_timeout, self._position, self._expired)
        self._witness = RankWitness(self.event_log, self.number)
        self._slowness = Slowness(options.slow, self.number, options.seed)
        self._death: threading.Timer | None = None

    def begin_step(self, step: int) -> None:
        """Step `step` begins; an injected failure may strike here."""
        self._position.step = step
        for fail in self.options.fail:
            if (fail.rank, fail.step) == (self.number, step):
                self._strike(fail)

    @contextmanager
    def compute(self, name: str, step: int) -> Iterator[None]:
        """Trace the body as computation; on a slow worker it takes its factor longer."""
        with self.trace.span(name, "compute"):
            start = time.perf_counter()
            yield
            devices.finish(self.device)
            time.sleep((self._slowness.next_factor(step) - 1) * (time.perf_counter() - start))

    @contextmanager
    def waiting(self, call: str) -> Iterator[None]:
        """Limit the time that the body, in which this worker waits for others, may take."""
        self.watchdog.begin(call, -1)
        try:
            yield
        finally:
            self.watchdog.end()

    def begin_chaos(self) -> None:
        """From now on `--chaos` may kill this worker at any time; a worker that joins later draws its own time."""
        if self.options.chaos is None:
            return
        assert self.options.workers
        later, rank = divmod(self.number, self.options.workers)
        after_s = min(self.options.chaos.death_s(rank, self.options.workers, later), threading.TIMEOUT_MAX)
        self._death = threading.Timer(after_s, lambda: self._strike(Fail(self.number, self._position.step)))
        self._death.daemon = True
        self._death.start()

    def end_chaos(self) -> None:
        """All steps are done: `--chaos` kills this worker no more."""
        if self._death:
            self._death.cancel()

    def spans(self) -> list[Span]:
        """Return the trace in seconds since 1970."""
        since_1970 = time.time() - time.perf_counter()
        return [replace(s, start=s.start + since_1970, end=s.end + since_1970) for s in self.trace.spans]

    def _strike(self, fail: Fail) -> None:
        self._witness.strikes(fail)
        fail.strike()

    def _expired(self, waiting: Waiting, seconds: float) -> NoReturn:
        print(
            f"farandole: worker {self.number} at step {self._position.step} has waited {seconds:.0f} s for "
            f"{waiting[0]}, longer than --wait-timeout {self.options.wait_timeout:g}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(TIMED_OUT)
