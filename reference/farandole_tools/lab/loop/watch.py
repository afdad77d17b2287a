"""A training of lab 16, compared with that of one process, before and after each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from farandole_tools.lab import expect
from farandole_tools.lab.expectations import counted
from farandole_tools.lab.labs import Wrong
from farandole_tools.lab.loop.expected import CLOSE, State, course, differing, state_from
from farandole_tools.lab.single_process import STEPS, Job

Moment = Literal["step", "save"]

EVERY = 2  # steps after which the state is saved
STOPPED_AFTER = 4  # steps after which the training is interrupted


class Watch:
    """The harness reports to it what the training is like before and after each step, and learns when to interrupt it.

    Args:
        rank: for the messages.
        first: the number of steps after which the training should begin.
        interrupts: at which moment after `STOPPED_AFTER` steps it is interrupted; "": it is not.
        stop: called at that moment.

    Attributes:
        done: the number of steps after which it stands, if it has begun where it should.
        problem: the first thing that is not as in one process, or "".
        when: `done` when the problem was found, which tells on which rank it came first.
        stopped: it has been interrupted.
    """

    def __init__(
        self, rank: int, first: int = 0, interrupts: Moment | Literal[""] = "", stop: Callable[[], None] = lambda: None
    ) -> None:
        self.rank, self.first, self.interrupts, self.stop = rank, first, interrupts, stop
        self.done, self.problem, self.when = first, "", STEPS + 1
        self.stopped = False

    def verdict(self) -> str:
        """Return the problem, when the training has returned."""
        if self.done == STEPS or self.problem:
            return self.problem
        return f"rank {self.rank} returns after {self.done} of {STEPS} steps"

    # ---- what the harness calls

    def before_step(self, rate: float, state: Any) -> bool:
        """Look at the learning rate and the model before a step; return whether the training is interrupted here."""
        if self.interrupts == "step" and self.done == STOPPED_AFTER:
            self._stop()
            return True
        with self._noting():
            expect(self.done < STEPS, f"rank {self.rank} takes a step after the last one, of {STEPS}")
            if self.done == self.first:
                self._expect_beginning(state_from(state))
            self._expect_rate(float(rate))
        return False

    def after_step(self, state: Any) -> None:
        """Look at the model after a step."""
        self.done += 1
        if self.done > STEPS or self.problem:
            return
        with self._noting():
            found, right = state_from(state), course().states[self.done]
            if wrong := differing(found, right):
                away = float((found[wrong[0]].double() - right[wrong[0]].double()).abs().max())
                told = f"after {counted(self.done, 'step')} {wrong[0]} on rank {self.rank} is off by {away:.2g}"
                hint = ": AdamW has a state, too" if self.first and self.done == self.first + 1 else ""
                expect(False, told + hint)

    def interrupts_save(self) -> bool:
        """Return whether the state that is saved now is to be written by half."""
        return self.interrupts == "save" and self.done >= STOPPED_AFTER

    def half_saved(self) -> None:
        """Interrupt the training: half of its state is written."""
        if self.interrupts_save():
            self._stop()

    # ----

    def _expect_beginning(self, found: State) -> None:
        wrong = differing(found, course().states[self.first])
        if not wrong:
            return
        expect(self.first, f"rank {self.rank} begins with another {wrong[0]} than rank 0 had")
        at = f"rank {self.rank} continues"
        same = [number for number, state in enumerate(course().states) if not differing(found, state)]
        saved = f"the state is to be saved after every {EVERY} steps"
        expect(not same, f"{at} after {counted(sum(same[:1]), 'step')}, and should after {self.first}: {saved}")
        only_buffers = set(wrong) <= dict(Job().model.named_buffers()).keys()
        expect(not only_buffers, f"{at} with other buffers than those after {self.first} steps: {listed(wrong)}")
        other = f"{at} with other parameters than those after {self.first} steps"
        expect(False, f"{other}: are they saved, and loaded on all ranks?")

    def _expect_rate(self, rate: float) -> None:
        right = course().rates[self.done]
        told = f"after {counted(self.done, 'step')} the learning rate on rank {self.rank} is {rate:.4f}"
        saved = "is the schedule's state saved, and loaded on all ranks?"
        hint = saved if self.first else "job.schedule.step() after each step"
        expect(abs(rate - right) <= CLOSE * right, f"{told}, where one process has {right:.4f}: {hint}")

    def _stop(self) -> None:
        self.stopped = True
        self.stop()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Keep what goes wrong within the body, if it is the first thing that does."""
        try:
            yield
        except Wrong as error:
            if not self.problem:
                self.problem, self.when = str(error), self.done


def listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
