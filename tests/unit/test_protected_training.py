"""The training loop of recovery, with its trainable and protection passed in: the order of their calls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from farandole.recovery.protected_training import MembersChange, ProtectedTraining
from farandole.recovery.protection import NOT_STARTED, Stopped
from farandole.recovery.retry import Retry
from farandole.recovery.training_record import TrainingRecord

STEPS = 4
EXCHANGE = 2  # steps between two exchanges


class Calls(list[Any]):
    """Records the loop's calls, in order; both a `Trainable` and a `Protection`."""

    steps = STEPS

    def __init__(self, stops_before: int | None = None, restored: int = 0) -> None:
        self.stops_before, self.restored = stops_before, restored

    def protect(self, step: int) -> None:
        self.append(("protect", step))
        if step == self.stops_before:
            raise Stopped

    def step(self, step: int, secure: Callable[[], None]) -> None:
        self.append(("gradient", step))
        secure()
        self.append(("update", step))

    def secure(self) -> None:
        self.append("secure")

    def account(self, step: int) -> bool:
        return (step + 1) % EXCHANGE == 0

    def protect_now(self, step: int) -> None:
        self.append(("protect now", step))

    def restore(self, reached: int) -> int:
        self.append(("restore", reached))
        return self.restored

    def first_line(self, step: int) -> int:
        return step - 1

    def resume(self, step: int, first_line: int) -> None:
        self.append(("resume", step, first_line))

    def close(self) -> None:
        self.append("close")

    def finish(self) -> None:
        self.append("finish")


def training(calls: Calls, wanted: Callable[[], MembersChange | None] = lambda: None) -> ProtectedTraining:
    record = SimpleNamespace(
        world=SimpleNamespace(rank=1),
        recorder=SimpleNamespace(stop=lambda: calls.append("clock stops")),
        note=lambda what, step: calls.append((what, step)),
    )
    loop = cast(Any, calls)
    return ProtectedTraining(cast(TrainingRecord, record), loop, loop, wanted)


def test_every_step_is_protected_before_it_and_secured_before_its_update() -> None:
    calls = Calls()
    loop = training(calls)
    loop.take_steps()
    expected: list[Any] = []
    for step in range(STEPS):
        expected += [("protect", step), ("gradient", step), "secure", ("update", step)]
        expected += [("first step", 0)] if step == 0 else []
    assert calls == [*expected, "close", "clock stops"]
    assert loop.step == STEPS


def test_a_restored_training_takes_the_steps_that_are_left() -> None:
    calls = Calls(restored=3)
    loop = training(calls)
    loop.step = NOT_STARTED
    loop.restore()
    loop.take_steps()
    assert calls[:3] == [("restore", NOT_STARTED), ("start", 3), ("resume", 3, 2)]
    assert [call for call in calls if call[0] == "update"] == [("update", 3)]
    assert ("first step", 3) in calls


def test_before_the_members_change_the_present_state_is_protected() -> None:
    calls = Calls()
    loop = training(calls, lambda: MembersChange(more=True, requested=False))
    with pytest.raises(MembersChange) as change:
        loop.take_steps()
    assert (change.value.more, change.value.requested) == (True, False)
    assert calls[-2:] == [("update", 1), ("protect now", 2)], "where the losses are exchanged, and not later"
    assert loop.step == 2
    loop.take_steps()
    assert calls[-2:] == ["close", "clock stops"], "after the last step nothing is to change"


def test_a_stop_ends_the_loop_before_the_step() -> None:
    calls = Calls(stops_before=2)
    loop = training(calls)
    with pytest.raises(Stopped):
        loop.take_steps()
    assert loop.step == 2
    assert ("gradient", 2) not in calls
    assert "close" not in calls, "the protection has saved, and closed itself"


def test_a_failed_step_is_repeated_after_a_rewind() -> None:
    written: list[Any] = []
    log = SimpleNamespace(write=lambda *line: written.append(line))
    record = cast(TrainingRecord, SimpleNamespace(event_log=log, world=SimpleNamespace(rank=1)))
    retry, tries = Retry(record, seconds=60.0), []

    def attempt() -> str:
        tries.append("try")
        if tries.count("try") <= 2:
            raise RuntimeError("no luck")
        return "done"

    assert retry(7, attempt, lambda: tries.append("rewind")) == "done"
    assert tries == ["try", "rewind", "try", "rewind", "try"]
    assert retry.failed == 2
    assert written == [("retried", 1, 7)]
    assert retry(8, lambda: "at once", lambda: tries.append("rewind")) == "at once"
    assert written == [("retried", 1, 7)], "this one did not fail"
    with pytest.raises(OSError, match="gone"):
        Retry(record, seconds=-1.0)(9, _fail, lambda: tries.append("rewind"))
    assert len(tries) == 5, "no time is left for another try"


def _fail() -> None:
    raise OSError("gone")
