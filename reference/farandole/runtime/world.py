"""One process's place in a launch, and the few verbs a training method needs.

    with World.start(config) as world:
        for step in world.steps(config.steps):
            with world.compute("forward and backward"):
                …
            with world.communicate("all-reduce"):
                …

`steps` lets injected failures strike and keeps the step for every message; `compute` and
`communicate` write the trace, and `compute` makes a slow rank slow.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.runtime import devices, placement, rank, rank_end, transport
from farandole.runtime.cards import rank_device
from farandole.runtime.communicator import Communicator
from farandole.runtime.failure import Failure, PeerLost, describe, short_of_memory
from farandole.runtime.faults import PARTITION, RANK_FAULTS, Fail, Slowness, check_ranks, check_steps
from farandole.runtime.flight_recorder import NO_STEP, FlightRecorder, Position
from farandole.runtime.joining import JoiningProcess, joining_process
from farandole.runtime.links import Link
from farandole.runtime.lossy import Lossy
from farandole.runtime.options import RunOptions
from farandole.runtime.reliable_communicator import LIMIT, ReliableCommunicator
from farandole.runtime.trace import Trace
from farandole.runtime.traffic import Traffic
from farandole.runtime.watchdog import Waiting, Watchdog

RANK_0_TIDIES_UP_S = 0.5  # until another rank reports that the options do not fit, which ends rank 0, too


class Witness(Protocol):
    """A log of failures; see `farandole.recovery.event_log`."""

    def strikes(self, fail: Fail) -> None:
        """Log that this rank is about to fail, by an injected fault."""
        ...

    def recovers(self, fail: Fail) -> None:
        """Log that this rank goes on after an injected fault that has ended."""
        ...

    def fails(self, step: int) -> None:
        """Log that this rank cannot go on."""
        ...

    def notices(self, ranks: Sequence[int], step: int) -> None:
        """Log that this rank has found these ranks dead or silent; none: it is not known which."""
        ...


class World:
    """A rank's view of the launch: itself, the other ranks, and the means to communicate with them.

    Attributes:
        comm: counted messages to all ranks.
        control: the same ranks, uncounted: set-up, clocks, the record. Not part of any method.
        rank, size: among all ranks that were launched; local_rank, local_size: among those of this host. A process
            that joins later has a higher rank.
        device: where this rank computes; place: the same with its card and its cores.
        transport: how messages leave its card (`transport`); None: it computes on the CPU.
        trace: its timeline.
        witness: a log of failures, written before they end this rank.
        if_refused: removes what rank 0 has created for the record, if the options are refused before there is
            anything to record.
        outlived: the other ranks go on when this one dies (`recovery.membership`), so its death does not end the job.
        cut_off: whether an injected partition separates it from the others (`recovery.heartbeat`).
        joining: how this process has joined the job, if it was spawned later; until it is inside, `comm` and `control`
            contain this process alone.
        starts_before: how many starts of this training came before this one (`recovery.restart`).
    """

    def __init__(self, options: RunOptions, mpi: MPI.Intracomm, arrived: JoiningProcess | None = None) -> None:
        self.rank, self.size = mpi.rank, mpi.size
        self.joining = arrived
        if arrived:
            self.rank, self.size = arrived.number, arrived.greeting["size"]
        if options.expect_ranks is not None and options.expect_ranks != self.size:
            raise UsageError(
                f"this job has {self.size} rank(s), not the {options.expect_ranks} expected: "
                "start it with mpirun, or with srun --mpi=pmix"
            )
        check_ranks([*options.slow, *options.fail], self.size + options.joining_at_most)
        check_steps(options.first_steps, options.steps_at_most(self.size))
        self.control = mpi.Dup()
        local = mpi.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = local.rank, local.size
        host = np.array([self.rank])
        local.Bcast(host)
        local.Free()
        if arrived:
            self.local_rank, self.local_size = self.rank, arrived.greeting["local_size"]
            self.place = rank_device.free(options, arrived.greeting["cards"], self.local_size)
        else:
            self.place = rank_device.agree(self.control, options, int(host[0]))
        if self.rank == 0 or arrived:
            for note in filter(None, [self.place.note, options.note_on_cards() if self.place.on_cards else ""]):
                print(f"farandole: {note}", file=sys.stderr, flush=True)
        self.device = self.place.device
        self.transport = transport.of_rank(options, self.device)
        devices.limit_threads(self.size if placement.share_cores() else self.place.mates)
        devices.seed_everything(options.seed)
        devices.make_reproducible(self.device)
        devices.warm_up(self.device)
        self.trace = Trace(self.rank)
        self.witness: Witness | None = None
        self.if_refused: Callable[[], None] | None = None
        self.outlived = self.cut_off = False
        self.starts_before = 0
        self._computation: tuple[str, ExitStack] | None = None  # the one going on: its name, and what ends it
        self._slowness = Slowness(options.slow, self.rank, options.seed)
        own = (*RANK_FAULTS, PARTITION) if options.survives_partitions else RANK_FAULTS
        self._failures = [fail for fail in options.fail if fail.rank == self.rank and fail.how in own]
        self._last_step = NO_STEP
        self._chaos = options.chaos
        self._death: threading.Timer | None = None
        self._dying = threading.Lock()  # while it is held, this rank begins no step
        self._recorder = FlightRecorder(self.rank, rank.scratch())
        self._watchdog = Watchdog(options.wait_timeout, self._recorder, self._expired, rank.launcher_pid())
        members = [self.rank] if arrived else None
        link = Link.of(options.link_mbps, options.link_change, options.link_latency_ms)
        if link:
            link.meanwhile = self.shows_life
        self.comm = self._communicator(options, mpi.Dup(), members=members, link=link, traffic=Traffic())

    @classmethod
    def start(cls, options: RunOptions) -> World:
        """Join the launch this process belongs to (alone, it is a world of one)."""
        return cls(options, MPI.COMM_WORLD, joining_process() if rank.comes_later() else None)

    def _communicator(self, options: RunOptions, mpi: MPI.Intracomm, **named: Any) -> Communicator:
        """Return a communicator that suits the links: a reliable one if messages may have to be sent again."""
        if not options.resends:
            return Communicator(mpi, self._watchdog, self._recorder, **named)
        return ReliableCommunicator(
            mpi,
            self._watchdog,
            self._recorder,
            lossy=Lossy(options.fail, self.rank, options.seed),
            give_up=self._give_up,
            limit_s=LIMIT * options.wait_timeout,
            checksums=options.checksum,
            **named,
        )

    def __enter__(self) -> Self:
        self._watchdog.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end_chaos()
        if error is not None:
            self._tell(error)
            if isinstance(error, UsageError):
                self._refuse()
            failure = describe(error, self.rank, self._recorder.step)
            if self.outlived and (failure.kind == "exception" or short_of_memory(error)):
                rank.leave(failure)
            self._end(failure)
        self._recorder.step = NO_STEP
        # Where ranks survive each other's death, training has ended by agreement: ignore failures from here on.
        with suppress(PeerLost) if self.outlived else nullcontext(), self.comm.waiting("end of the run", -1):
            self.control.Barrier()
        if self.outlived:
            rank_end.do_not_wait_for_the_dead()
            if not self.joining or self.joining.inside:
                rank.is_over()
        self.comm.close()
        self._watchdog.stop()

    def steps(self, count: int, start: int = 0) -> Iterator[int]:
        """Yield the steps from `start` to `count` − 1; an injected failure may strike at each."""
        for step in range(start, count):
            self.begin_step(step)
            yield step

    def begin_step(self, step: int, count: int = 1) -> None:
        """Begin step `step`; for methods whose steps are not known beforehand.

        Args:
            count: number of steps that begin with it, in a round.
        """
        with self._dying:
            self._recorder.step = step
        self._last_step = max(self._last_step, step + count - 1)
        if self.comm.link:
            self.comm.link.change(step)
        for fail in list(self._failures):
            if step <= fail.step < step + count:
                self._failures = [other for other in self._failures if other is not fail]
                self._strike(fail, f"--fail {fail}")

    @property
    def position(self) -> Position:
        """Return this rank's present position; may be read from another thread."""
        return self._recorder.position

    def shows_life(self) -> None:
        """Note that this rank is alive, though it waits, for instance for the disk (`recovery.heartbeat`)."""
        self._recorder.moves()

    @property
    def never_struck(self) -> list[str]:
        """Return this rank's faults that had no effect on it, as options, each with the reason."""
        came = "takes no steps" if self._last_step == NO_STEP else f"came to step {self._last_step}"
        spared = [] if self.starts_before else self._slowness.never_struck  # an earlier start may have been slow
        return [
            *(f"--fail {fail} never struck: rank {self.rank} {came}" for fail in self._failures),
            *(f"--slow {slow} never struck: it met no computation of rank {self.rank}" for slow in spared),
            *(f"--fail {text} never struck: it met no message" for text, n in self.comm.struck.items() if not n),
        ]

    @property
    def unused_link_changes(self) -> list[str]:
        """Return the link changes whose step this rank has not reached, as options."""
        return [f"--link-change {change}" for change in self.comm.link.unused] if self.comm.link else []

    def spare(self, struck: Container[tuple[int, int]]) -> None:
        """Remove the injected failures at these (rank, step), which have struck in an earlier start."""
        self._failures = [fail for fail in self._failures if (fail.rank, fail.step) not in struck]

    def begin_chaos(self) -> None:
        """Let `--chaos`, if it was given, kill this rank at its time: the run's clock begins."""
        if self._chaos:
            later, place = divmod(self.rank, self.size)  # a process that joins later draws anew
            after_s = self._chaos.death_s(place, self.size, self.starts_before + later)
            self._death = threading.Timer(min(after_s, threading.TIMEOUT_MAX), self._die_now)
            self._death.daemon = True
            self._death.start()

    def end_chaos(self) -> None:
        """Cancel `--chaos`: the run's clock has ended."""
        if self._death:
            self._death.cancel()

    def regroup(
        self, workers: MPI.Intracomm, control: MPI.Intracomm, number: int, members: Sequence[int] | None = None
    ) -> None:
        """Replace the groups of `comm` and `control`; the counts of bytes and messages continue.

        Args:
            control: the same ranks, with the coordinator first.
            number: of the change, the same on all ranks.
            members: the number of each of `workers` among all ranks; None: all were launched together.
        """
        before = self.comm
        self.comm = Communicator(workers, self._watchdog, self._recorder, before, members, before.link)
        self.control = control
        self.trace.regroup(number)

    @contextmanager
    def compute(self, name: str) -> Iterator[None]:
        """Trace the body as computation; on a slow rank it takes its factor longer."""
        with ExitStack() as computation:
            computation.enter_context(self._computing(name))
            self._computation = name, computation
            try:
                yield
            finally:
                self._computation = None

    @contextmanager
    def communicate(self, name: str, group: str = "") -> Iterator[None]:
        """Trace the body as communication that every rank of `group` takes part in.

        Within `compute`, where a layer communicates, the computation ends before it and goes on afterwards.

        Args:
            group: a different name for each group of ranks; "": all ranks.
        """
        interrupted, self._computation = self._computation, None
        if interrupted:
            interrupted[1].close()
        with self.trace.span(name, "communicate", collective=True, group=group):
            yield
        if interrupted:
            interrupted[1].enter_context(self._computing(interrupted[0]))
            self._computation = interrupted

    @contextmanager
    def _computing(self, name: str) -> Iterator[None]:
        with self.trace.span(name, "compute"):
            start = time.perf_counter()
            yield
            self.finish_computation(start)

    def finish_computation(self, start: float) -> None:
        """Wait for the device, and on a slow rank for as much longer as its factor says.

        `compute` does this; call it where computation ends inside a library's call.
        """
        devices.finish(self.device)
        slower = self._slowness.next_factor(self._recorder.step) - 1
        if slower > 0:
            time.sleep(slower * (time.perf_counter() - start))

    def _die_now(self) -> None:
        with self._dying:  # else the rank would die some steps after the one that the log tells
            self._strike(Fail(self.rank, self._recorder.step), f"--chaos {self._chaos}")

    def _strike(self, fail: Fail, option: str) -> None:
        """Fail as `option` says; log and report it first."""
        if self.witness:
            self.witness.strikes(fail)
        if fail.how == "kill" and not self.outlived and (folder := rank.scratch()):
            text = f"was killed by SIGKILL ({option})"
            Failure(self.rank, fail.step, "killed", time.time(), text).leave(folder)
        self.cut_off = fail.how == PARTITION
        fail.strike()
        self.cut_off = False
        if self.witness:
            self.witness.recovers(fail)

    def _refuse(self) -> None:
        """Undo what this run has created, so that corrected options may name the same folder."""
        if self.if_refused:
            self.if_refused()
        elif self.rank:
            time.sleep(RANK_0_TIDIES_UP_S)

    def _tell(self, error: BaseException) -> None:
        if self.witness is None or isinstance(error, UsageError):
            return
        if describe(error, self.rank, self._recorder.step).kind in ("lost", "timeout"):
            self.witness.notices(error.ranks if isinstance(error, PeerLost) else [], self._recorder.step)
        else:
            self.witness.fails(self._recorder.step)

    def _expired(self, waiting: Waiting, seconds: float) -> NoReturn:
        call, peer = waiting
        if self.witness:
            self.witness.notices([peer] if peer >= 0 else [], self._recorder.step)
        whom = f"for rank {peer}" if peer >= 0 else "for the other ranks"
        text = f"has waited {seconds:.0f} s {whom} in {call}; ended by --wait-timeout {self._watchdog.limit_s:g}"
        self._end(Failure(self.rank, self._recorder.step, "timeout", time.time(), text))

    def _give_up(self, reason: str) -> NoReturn:
        """End the job, since a message cannot be delivered."""
        self._end(Failure(self.rank, self._recorder.step, "unable", time.time(), f"cannot go on: {reason}"))

    def _end(self, failure: Failure) -> NoReturn:
        """End the job, or this process alone if it has not joined it yet."""
        if self.joining and not self.joining.inside:
            rank.leave(failure)
        rank.abort(failure)
