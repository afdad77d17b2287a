"""Which of several reports explains a failed launch, and where ranks were."""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.runtime.communicator import Communicator
from farandole.runtime.failure import EXIT_CODE, Failure, PeerLost, describe, first_failure
from farandole.runtime.flight_recorder import NO_STEP, FlightRecorder, Position, read_positions
from farandole.runtime.watchdog import Outer, Watchdog


def test_no_report_no_failure(tmp_path: Path) -> None:
    assert first_failure(tmp_path) is None


def test_the_first_exception_explains_the_others(tmp_path: Path) -> None:
    for rank, when in ((0, 3.0), (1, 1.0), (2, 2.0)):
        Failure(rank, 5, "exception", when, f"ValueError: {rank}").leave(tmp_path)
    first = first_failure(tmp_path)
    assert first is not None
    assert first.rank == 1


def test_a_cause_explains_what_others_saw_of_it_even_if_they_were_faster(tmp_path: Path) -> None:
    Failure(0, 5, "lost", 1.0, "found rank 2 dead").leave(tmp_path)
    Failure(1, 5, "timeout", 0.5, "has waited").leave(tmp_path)
    Failure(2, 5, "killed", 2.0, "was killed by SIGKILL").leave(tmp_path)
    assert str(first_failure(tmp_path)) == "rank 2 at step 5 was killed by SIGKILL"


def test_of_a_chain_of_waiting_ranks_the_silent_one_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        recorder = FlightRecorder(rank, tmp_path)
        recorder.step = 9
        if rank != 2:
            recorder.waits((rank - 1) % 4)
    Failure(0, 9, "timeout", 1.0, "has waited 3 s for rank 3").leave(tmp_path)
    assert str(first_failure(tmp_path)) == (
        "rank 2 at step 9 has not answered since; rank 0 at step 9 has waited 3 s for rank 3"
    )


def test_a_stop_that_all_were_asked_for_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (1, 0, 2):
        Failure(rank, 7, "interrupted", 0.0, "stopped as asked").leave(None)
    assert capsys.readouterr().err == "farandole: stopped as asked\n"


def test_ctrl_c_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    failure = describe(KeyboardInterrupt(), 0, 3)
    failure.leave(None)
    assert capsys.readouterr().err == "farandole: rank 0 at step 3 was interrupted (SIGINT)\n"
    assert EXIT_CODE[failure.kind] == 130


def test_positions_outlive_their_rank(tmp_path: Path) -> None:
    recorder = FlightRecorder(3, tmp_path)
    assert read_positions(tmp_path) == [Position(3, NO_STEP, False, 0, moves=1)]
    recorder.step = 12
    recorder.waits(1)
    assert read_positions(tmp_path) == [Position(3, 12, True, 1, moves=3)]
    recorder.goes_on()
    assert read_positions(tmp_path) == [Position(3, 12, False, 1, moves=4)]
    recorder.works_meanwhile()
    assert read_positions(tmp_path) == [Position(3, 12, True, 1, moves=5, working=True)]


@pytest.mark.parametrize(
    ("error", "kind", "shown"),
    [
        (UsageError("--batch 0: too few"), "usage", "--batch 0: too few"),
        (PeerLost("found rank 1 dead"), "lost", "rank 4 at step 2 found rank 1 dead"),
        (ValueError("on purpose"), "exception", "rank 4 at step 2 raised ValueError: on purpose\n"),
    ],
)
def test_exceptions_are_described_by_what_they_mean(error: Exception, kind: str, shown: str) -> None:
    failure = describe(error, rank=4, step=2)
    assert failure.kind == kind
    assert str(failure).startswith(shown)


@pytest.mark.parametrize(
    ("ask", "shown"),
    [
        (lambda: np.empty(10**15), "no memory for 7.11 PiB for an array with shape (1000000000000000,) and data type"),
        (lambda: torch.empty(10**15), "no memory for 4000000000000000 bytes in test_failure.py, line"),
        (lambda: torch.nn.Linear(2**31, 2**31), "a size is too large for any memory (Storage size calculation overflo"),
        (lambda: np.empty((2**40, 2**40)), "a size is too large for any memory (array is too big;"),
        (lambda: np.empty(2**64), "a size is too large for any memory (Maximum allowed dimension exceeded)"),
        (lambda: torch.empty(2**64), "a size is too large for any memory (empty(): argument 'size' failed to unpack"),
        (lambda: bytearray(10**18), "no memory is left in test_failure.py, line"),
        (lambda: struct.pack("i", 2**31), "a size is too large for any memory ('i' format requires"),
        (
            lambda: raised(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 …")),
            "2.00 GiB in",
        ),
        (lambda: raised(OSError(errno.ENOMEM, "Cannot allocate memory")), "no memory is left in test_failure.py"),
    ],
)
def test_what_could_not_be_allocated_is_one_line_without_a_traceback(ask: Callable[[], Any], shown: str) -> None:
    with pytest.raises(Exception) as met:  # noqa: PT011  # of many kinds: that is the matter
        ask()
    failure = describe(met.value, rank=4, step=2)
    assert str(failure).startswith("rank 4 at step 2 cannot go on: ")
    assert shown in str(failure)
    assert str(failure).endswith(": give smaller sizes, or more memory")
    assert "\n" not in str(failure)
    assert EXIT_CODE[failure.kind] == 1


def raised(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [OverflowError("math range error"), RuntimeError("a bug"), ValueError("too many")])
def test_other_errors_keep_their_traceback(error: Exception) -> None:
    assert describe(error, rank=4, step=2).kind == "exception"


def test_the_watchdog_bites_who_waits_too_long_and_nobody_else() -> None:
    bitten: list[tuple[tuple[str, int], float]] = []
    recorder = FlightRecorder(0, None)
    watchdog = Watchdog(0.2, recorder, lambda waiting, seconds: bitten.append((waiting, seconds)))
    watchdog.begin("receive", 3)
    watchdog.end()
    watchdog.start()
    time.sleep(0.5)
    assert not bitten, "nothing was being waited for"
    watchdog.begin("exchange", 2)
    watchdog.join(timeout=60)
    assert [waiting for waiting, _ in bitten] == [("exchange", 2)]
    assert bitten[0][1] > 0.2


def test_a_wait_within_another_is_looked_at_instead_and_then_the_other_one_again() -> None:
    recorder = FlightRecorder(0, None)
    watchdog = Watchdog(60.0, recorder, lambda waiting, seconds: None)
    comm = Communicator(MPI.COMM_SELF, watchdog, recorder)

    def seen() -> tuple[object, bool, bool]:
        return watchdog.waiting, recorder.position.waiting, recorder.position.working

    with comm.waiting("a message", -1):
        begun = watchdog.since
        assert seen() == (("a message", -1), True, False)
        with comm.working():
            assert seen() == (("a message", -1), True, True)
            with pytest.raises(ValueError), comm.waiting("parameters to leave", 0):  # noqa: PT011, PT012
                assert seen() == (("parameters to leave", 0), True, False)
                raise ValueError
            assert seen() == (("a message", -1), True, True)
        assert seen() == (("a message", -1), True, False)
        assert watchdog.since > begun, "a wait that has ended is a sign of life"
    assert seen() == (None, False, False)


def test_two_threads_that_wait_at_the_same_time_leave_nothing_waiting() -> None:
    recorder = FlightRecorder(0, None)
    watchdog = Watchdog(60.0, recorder, lambda waiting, seconds: None)
    outers: list[Outer | None] = []
    first = watchdog.begin("the second thread", -1)
    second = Thread(target=lambda: outers.append(watchdog.begin("exchange", 2)))
    second.start()
    second.join()
    watchdog.end(first)
    watchdog.end(*outers)
    assert watchdog.waiting is None
    assert not recorder.position.waiting
