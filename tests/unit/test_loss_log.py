"""The losses of all ranks, a window at a time: a line for each step, whichever rank writes and whichever has died."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from mpi4py import MPI

from farandole.data_parallel.loss_log import LOSS_WINDOW, LossLog

STEPS = 3 * LOSS_WINDOW + 4
SAMPLES = 64  # in every batch
SHARES = (0.5, 0.3, 0.2)  # of it, of three ranks


class Lost(Exception):
    """Another rank has died in an exchange."""


class Rank:
    """A loss log, and the lines that its rank would write."""

    def __init__(self, share: float, steps: int = STEPS) -> None:
        self.share = share
        self.lines: list[dict[str, float]] = []
        self.exchange: Callable[..., None] = lambda own, result, operation=MPI.SUM: np.copyto(result, own)
        mpi = SimpleNamespace(Allreduce=lambda *exchanged: self.exchange(*exchanged))
        comm = SimpleNamespace(waiting=lambda call, peer: nullcontext(), mpi=mpi)
        self.watched: list[int] = []
        recorder = SimpleNamespace(
            elapsed_s=0.0,
            log=lambda **values: self.lines.append(values),
            watch=lambda step, loss: self.watched.append(step),
        )
        self.log = LossLog(cast(Any, SimpleNamespace(comm=comm)), cast(Any, recorder), steps)

    def train(self, steps: Sequence[int], share: float | None = None) -> None:
        share = self.share if share is None else share
        for step in steps:
            self.log.add(step, own_loss(step, self.share), share, SAMPLES)


def own_loss(step: int, share: float) -> float:
    """Return a different loss for each rank and step."""
    return 10.0 / (1 + step) + share


def whole_loss(step: int, ranks: Sequence[Rank]) -> float:
    return sum(own_loss(step, rank.share) * rank.share for rank in ranks) / sum(rank.share for rank in ranks)


def together(ranks: Sequence[Rank], action: Callable[[Rank], None], lost: Sequence[Rank] = ()) -> None:
    """Run each rank in a thread; an exchange ends when all have joined. Ranks in `lost` do not get its result."""
    parts: list[np.ndarray] = []
    arrived, reduced = threading.Barrier(len(ranks), timeout=60), threading.Barrier(len(ranks), timeout=60)
    errors: list[BaseException] = []

    def work(rank: Rank) -> None:
        def exchange(own: np.ndarray, result: np.ndarray, operation: MPI.Op = MPI.SUM) -> None:
            parts.append(own)
            arrived.wait()
            np.copyto(result, np.max(parts, axis=0) if operation == MPI.MAX else np.sum(parts, axis=0))
            if reduced.wait() == 0:
                parts.clear()
            arrived.wait()
            if rank in lost:
                arrived.abort()  # a rank that waits in a further exchange loses it, too
                raise Lost

        rank.exchange = exchange
        try:
            action(rank)
        except Lost:
            pass
        except BaseException as error:
            if not (lost and isinstance(error, threading.BrokenBarrierError)):
                errors.append(error)
            arrived.abort()
            reduced.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def assert_written(lines: Sequence[dict[str, float]], steps: Sequence[int], ranks: Sequence[Rank]) -> None:
    """Check for one line for each of these steps, with the mean loss over these ranks."""
    assert [line["step"] for line in lines] == list(steps)
    assert [line["samples"] for line in lines] == [SAMPLES] * len(steps)
    assert [line["loss"] for line in lines] == pytest.approx([whole_loss(step, ranks) for step in steps])


def test_each_step_has_a_line_with_the_mean_over_the_whole_batch() -> None:
    ranks = [Rank(share) for share in SHARES]
    together(ranks, lambda rank: rank.train(range(STEPS)))
    assert_written(ranks[0].lines, range(STEPS), ranks)
    for rank in ranks:
        assert rank.log.last == pytest.approx(whole_loss(STEPS - 1, ranks)), "every rank knows it"
        assert rank.log.following == STEPS


def test_lines_come_a_window_at_a_time_and_none_is_held_back_at_the_end() -> None:
    alone = Rank(1.0, steps=LOSS_WINDOW + 3)
    written = []
    for step in range(LOSS_WINDOW + 3):
        alone.train([step])
        written.append(len(alone.lines))
    assert written == [0] * (LOSS_WINDOW - 1) + [LOSS_WINDOW] * 3 + [LOSS_WINDOW + 3]


def test_the_mean_of_a_window_is_over_all_its_steps_and_ranks() -> None:
    ranks = [Rank(share) for share in SHARES]
    together(ranks, lambda rank: rank.train(range(LOSS_WINDOW)))
    expected = np.mean([whole_loss(step, ranks) for step in range(LOSS_WINDOW)])
    assert [rank.log.last_mean for rank in ranks] == pytest.approx([expected] * 3)


def test_who_has_died_is_missing_from_the_steps_held_back_and_from_no_others() -> None:
    ranks = [Rank(share) for share in SHARES]
    reached = LOSS_WINDOW + 4
    together(ranks, lambda rank: rank.train(range(reached)))
    left = ranks[:2]

    def go_on(rank: Rank) -> None:
        rank.log.go_on_from(reached, LOSS_WINDOW)
        rank.train(range(reached, STEPS))

    together(left, go_on)
    assert_written(ranks[0].lines[:LOSS_WINDOW], range(LOSS_WINDOW), ranks)
    assert_written(ranks[0].lines[LOSS_WINDOW:], range(LOSS_WINDOW, STEPS), left)


@pytest.mark.parametrize("places", [3, 2], ids=["its place is taken", "the others answer for it"])
def test_with_its_parts_adopted_nothing_shows_of_who_has_died(places: int) -> None:
    """All go back to the middle of a window, and write it again; its mean is that of all its steps."""
    ranks = [Rank(share) for share in SHARES]
    reached, back_to = LOSS_WINDOW + 8, LOSS_WINDOW + 4
    together(ranks, lambda rank: rank.train(range(reached)))
    saved = [rank.log.own_parts(back_to) for rank in ranks]
    left = [*ranks[:2], Rank(SHARES[2])][:places]
    shares = SHARES if places == 3 else (SHARES[0] + SHARES[2], SHARES[1])
    adopted = [saved[0:1], saved[1:2], saved[2:3]] if places == 3 else [saved, []]
    del ranks[0].lines[LOSS_WINDOW:]

    def go_on(rank: Rank) -> None:
        place = left.index(rank)
        rank.log.adopt(back_to, adopted[place])
        rank.log.go_on_from(back_to, LOSS_WINDOW)
        rank.log.flush(back_to)
        rank.train(range(back_to, 2 * LOSS_WINDOW), shares[place])

    together(left, go_on)
    assert_written(ranks[0].lines[:back_to], range(back_to), [Rank(share) for share in SHARES])
    assert [line["step"] for line in ranks[0].lines] == list(range(2 * LOSS_WINDOW))
    means = {rank.log.last_mean for rank in left}
    assert means == {np.mean([line["loss"] for line in ranks[0].lines[LOSS_WINDOW:]]).item()} or places == 2
    assert len(means) == 1


def test_a_new_writer_goes_on_where_the_lines_end() -> None:
    """The writer has died in the middle of its lines: the others have the sum, and still know its steps."""
    ranks = [Rank(share) for share in SHARES]
    together(ranks, lambda rank: rank.train(range(LOSS_WINDOW)))
    del ranks[0].lines[6:]
    left = ranks[1:]

    def go_on(rank: Rank) -> None:
        rank.lines.clear()
        rank.log.go_on_from(LOSS_WINDOW, 6)
        rank.train(range(LOSS_WINDOW, STEPS))

    together(left, go_on)
    assert_written(ranks[1].lines, range(6, STEPS), left)


def test_an_exchange_that_only_some_have_finished_is_made_again() -> None:
    ranks = [Rank(share) for share in SHARES]
    together(ranks, lambda rank: rank.train(range(LOSS_WINDOW)), lost=ranks[:2])
    assert [rank.log.following for rank in ranks[:2]] == [0, 0]
    left = ranks[:1] + ranks[2:]

    def go_on(rank: Rank) -> None:
        rank.lines.clear()
        rank.log.go_on_from(LOSS_WINDOW, 0)
        rank.train(range(LOSS_WINDOW, STEPS))

    together(left, go_on)
    assert_written(ranks[0].lines, range(STEPS), left)


def test_who_comes_later_adds_nothing_to_the_steps_before() -> None:
    ranks = [Rank(share) for share in SHARES]
    reached = LOSS_WINDOW + 4
    together(ranks[:2], lambda rank: rank.train(range(reached)))

    def go_on(rank: Rank) -> None:
        rank.log.go_on_from(reached, LOSS_WINDOW)
        rank.train(range(reached, STEPS))

    together(ranks, go_on)
    assert_written(ranks[0].lines[:reached], range(reached), ranks[:2])
    assert_written(ranks[0].lines[reached:], range(reached, STEPS), ranks)


def test_who_comes_later_may_be_the_one_that_writes() -> None:
    """An elected spare writes the held-back steps from before it joined, as the others know them."""
    ranks = [Rank(share) for share in SHARES]
    newcomer, reached = ranks[2], LOSS_WINDOW + 4
    together(ranks[:2], lambda rank: rank.train(range(reached)))

    def go_on(rank: Rank) -> None:
        rank.log.go_on_from(reached, LOSS_WINDOW)
        rank.train(range(reached, STEPS))

    together(ranks, go_on)
    assert_written(newcomer.lines[:4], range(LOSS_WINDOW, reached), ranks[:2])
    assert_written(newcomer.lines[4:], range(reached, STEPS), ranks)


@pytest.mark.parametrize("back_to", [0, 6, LOSS_WINDOW, LOSS_WINDOW + 3])
def test_steps_that_are_done_again_count_once(back_to: int) -> None:
    """With another share, and another loss, than at the first time."""
    alone = Rank(1.0)
    alone.train(range(LOSS_WINDOW + 5), share=0.25)
    written = min(back_to, LOSS_WINDOW)
    del alone.lines[written:]
    alone.log.go_on_from(back_to, written)
    alone.share = 0.5
    alone.train(range(back_to, STEPS))
    assert [line["step"] for line in alone.lines] == list(range(STEPS))
    losses = [own_loss(step, 1.0 if step < back_to else 0.5) for step in range(STEPS)]
    assert [line["loss"] for line in alone.lines] == pytest.approx(losses)


def test_two_writers_in_a_row_may_die_before_they_have_written() -> None:
    """Each in an exchange; the second one repairs the first."""
    ranks = [Rank(share) for share in SHARES]
    together(ranks, lambda rank: rank.train(range(LOSS_WINDOW)))

    def go_on(rank: Rank) -> None:
        rank.log.go_on_from(LOSS_WINDOW, 0)
        rank.train(range(LOSS_WINDOW, 2 * LOSS_WINDOW))

    together(ranks[1:], go_on)
    last = ranks[2]
    last.lines.clear()
    last.log.go_on_from(2 * LOSS_WINDOW, 0)
    together([last], lambda rank: rank.train(range(2 * LOSS_WINDOW, STEPS)))
    assert_written(last.lines, range(STEPS), [last])


def test_only_a_rank_with_samples_watches_its_loss() -> None:
    rank = Rank(0.5)
    rank.train([0, 1])
    rank.train([2], share=0.0)
    assert rank.watched == [0, 1]
