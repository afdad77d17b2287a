"""The buddies' copies restore the training of the newest complete backup, bit by bit, whichever worker has died."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest
import torch

from farandole.recovery.buddies import Buddies
from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.state import TrainingState, copied
from tests.unit.ranks_in_threads import Group, Rank

SIZES = [1, 2, 3, 4]
LENGTH = 10  # of what all share: not divisible by all numbers of ranks


class Training:
    """A state that each step changes in place; a rank's own part has other numbers and another length on each rank."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.shared = torch.zeros(2, LENGTH // 2)
        self.matrix = torch.zeros(3, slot + 1).t()  # in Fortran order
        self.count = torch.zeros((), dtype=torch.int64)
        self.memory = {"shared": torch.empty(2, LENGTH // 2)} if slot % 2 else {}  # for what is recovered

    def at(self, step: int) -> TrainingState:
        self.shared.copy_(torch.arange(float(LENGTH)).view_as(self.shared) + 100 * step)
        self.matrix.copy_(torch.arange(float(self.matrix.numel())).view_as(self.matrix) + 1000 * self.slot + step)
        self.count.fill_(step)
        own = {"matrix": self.matrix, "count": self.count}
        return TrainingState(step, {"shared": self.shared}, own, {"rate": step / 8})


class Workers:
    """A group whose workers train and make backups, in threads.

    Args:
        buddies: of the workers, in order of their slots.
    """

    def __init__(self, buddies: Sequence[Buddies]) -> None:
        self.buddies = list(buddies)
        self.group = Group(len(buddies))
        self.ranks = [Rank(self.group, slot) for slot in range(len(buddies))]
        self.trainings = [Training(slot) for slot in range(len(buddies))]

    def each(self, act: Callable[[Any, Buddies, Training], Any]) -> list[Any]:
        """Let each worker act at the same time as the others, on its communicator, buddies and training."""
        return self.group.run(lambda one: act(self.ranks[one.rank], self.buddies[one.rank], self.trainings[one.rank]))

    def save(self, *steps: int) -> Workers:
        for step in steps:
            self.each(lambda comm, buddies, training, step=step: buddies.save(comm, training.at(step)))
        return self

    def recover(self) -> list[Checkpoint | None]:
        found = self.each(lambda comm, buddies, training: buddies.recover(comm, training.memory))
        for checkpoint, training in zip(found, self.trainings, strict=True):
            if checkpoint and training.memory:
                assert checkpoint.shared["shared"] is training.memory["shared"]
        return found

    def recover_own(self) -> list[TrainingState | None]:
        return self.each(lambda comm, buddies, _: buddies.recover_own(comm))


def started(size: int, every: int = 1) -> Workers:
    return Workers([Buddies(every) for _ in range(size)])


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def assert_is(found: list[Checkpoint | None], step: int, slots: int) -> None:
    """Check that all have found the backup of `step`, made by `slots` workers, and that it equals that training."""
    for checkpoint in found:
        assert checkpoint is not None
        assert (checkpoint.step, checkpoint.ranks, checkpoint.values) == (step, slots, {"rate": step / 8})
        assert sorted(checkpoint.own) == list(range(slots))
        for slot in range(slots):
            expected = Training(slot).at(step)
            assert_equal(checkpoint.shared, expected.shared)
            assert_equal(checkpoint.own[slot], expected.own)


def survivors(size: int) -> Iterator[tuple[int, ...]]:
    for count in range(1, size + 1):
        yield from combinations(range(size), count)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("backups", [1, 2, 3, 6])
def test_the_newest_backup_is_as_the_training_was_although_that_has_gone_on(size: int, backups: int) -> None:
    workers = started(size).save(*range(backups))
    for training in workers.trainings:
        training.at(99)
    assert_is(workers.recover(), backups - 1, size)
    assert [buddies.newest for buddies in workers.buddies] == [backups - 1] * size


@pytest.mark.parametrize("size", SIZES)
def test_the_parts_of_the_dead_come_from_their_buddies(size: int) -> None:
    """Unless a worker and its buddy have died: then there is none, and the lost parts are named."""
    for alive in survivors(size):
        before = started(size).save(3, 4, 5)
        left = Workers([before.buddies[slot] for slot in alive])
        gone = [slot for slot in range(size) if slot not in alive and (slot + 1) % size not in alive]
        if gone:
            assert left.recover() == [None] * len(alive)
        else:
            assert_is(left.recover(), 5, size)
        assert [buddies.gone for buddies in left.buddies] == [gone] * len(alive)


@pytest.mark.parametrize("size", SIZES[1:])
def test_those_who_are_left_make_backups_of_their_own(size: int) -> None:
    """In the memory of the larger group's copies, which have other sizes and are of other slots."""
    before = started(size).save(3, 4, 5)
    left = Workers(before.buddies[1:])
    assert_is(left.recover(), 5, size)
    for step in range(6, 10):
        left.save(step)
        assert_is(left.recover(), step, size - 1)


@pytest.mark.parametrize("absent", range(3))
def test_an_exchange_that_one_takes_no_part_in_falls_back_to_the_backup_before(absent: int) -> None:
    workers = started(3).save(3, 4, 5)
    present = [slot for slot in range(3) if slot != absent]

    def begin(comm: Any, buddies: Buddies, training: Training) -> None:
        if training.slot != absent:
            buddies.begin(comm, training.at(6))

    workers.each(begin)
    assert [workers.buddies[slot].newest for slot in present] == [6, 6]
    again = Workers(workers.buddies)
    assert_is(again.recover(), 5, 3)
    assert [buddies.newest for buddies in again.buddies] == [5, 5, 5], "what is newer is forgotten"
    for step in range(6, 10):
        again.save(step)
        assert_is(again.recover(), step, 3)


@pytest.mark.parametrize("backups", [1, 2, 3])
def test_an_interrupted_exchange_leaves_the_ward_of_the_backup_before_as_it_was(backups: int) -> None:
    """Worker 1 has the new part of worker 0, which dies; worker 2 has not begun, so the backup before counts."""
    workers = started(3).save(*range(backups))

    def begin(comm: Any, buddies: Buddies, training: Training) -> None:
        if training.slot != 2:
            buddies.begin(comm, training.at(99))

    workers.each(begin)
    assert_is(Workers(workers.buddies[1:]).recover(), backups - 1, 3)


def test_a_backup_that_has_arrived_counts_although_nobody_has_waited_for_it() -> None:
    workers = started(3).save(3, 4, 5)
    workers.each(lambda comm, buddies, training: buddies.begin(comm, training.at(6)))
    assert_is(Workers(workers.buddies).recover(), 6, 3)


@pytest.mark.parametrize("late", range(3))
def test_a_part_that_has_not_reached_the_buddy_is_with_its_worker(late: int) -> None:
    workers = started(3).save(3, 4, 5)
    workers.group.late.add(late)
    workers.each(lambda comm, buddies, training: buddies.begin(comm, training.at(6)))
    again = Workers(workers.buddies)
    assert_is(again.recover(), 6, 3)
    for step in range(7, 11):
        again.save(step)
        assert_is(again.recover(), step, 3)


def test_a_backup_is_complete_before_the_next_one_begins() -> None:
    workers = started(3).save(3, 4)
    for step in (5, 6, 7):
        workers.each(lambda comm, buddies, training, step=step: buddies.begin(comm, training.at(step)))
    workers.each(lambda comm, buddies, training: buddies.complete())
    assert_is(Workers(workers.buddies[1:]).recover(), 7, 3)


@pytest.mark.parametrize("size", SIZES)
def test_without_a_backup_there_is_nothing_to_recover(size: int) -> None:
    workers = started(size)
    assert workers.recover() == [None] * size
    assert workers.recover_own() == [None] * size
    assert [(buddies.newest, buddies.gone) for buddies in workers.buddies] == [(None, [])] * size


def test_what_is_gone_is_forgotten_with_the_next_recovery() -> None:
    left = Workers(started(4).save(3).buddies[:2])
    left.recover()
    assert left.buddies[0].gone == [2]
    left.save(4)
    left.recover()
    assert left.buddies[0].gone == []


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_newcomer_gets_the_part_of_its_place_and_the_others_have_theirs(size: int) -> None:
    """Whichever workers are replaced, unless a worker and its buddy both are."""
    for alive in survivors(size):
        before = started(size).save(3, 4, 5)
        replaced = Workers([before.buddies[p] if p in alive else Buddies(1) for p in range(size)])
        found = replaced.recover_own()
        if any(slot not in alive and (slot + 1) % size not in alive for slot in range(size)):
            assert found == [None] * size
            continue
        for slot, state in enumerate(found):
            assert state is not None
            assert (state.step, state.shared, state.values) == (5, {}, {"rate": 5 / 8})
            assert_equal(state.own, Training(slot).at(5).own)


def test_two_backups_are_kept() -> None:
    workers = started(2).save(3, 4, 5)
    for buddies in workers.buddies:
        buddies.forget_after(4)
    assert_is(workers.recover(), 4, 2)
    for buddies in workers.buddies:
        buddies.forget_after(3)
    assert workers.recover() == [None, None]


def test_a_backup_is_due_every_so_many_steps_and_at_once_in_a_new_group() -> None:
    workers = started(2, every=3)
    comm, buddies = workers.ranks[0], workers.buddies[0]
    assert buddies.due(comm, 4), "none has been made"  # type: ignore[arg-type]
    workers.save(4)
    assert [step for step in range(5, 13) if buddies.due(comm, step)] == [6, 9, 12]  # type: ignore[arg-type]
    assert buddies.due(Workers(workers.buddies).ranks[0], 5)  # type: ignore[arg-type]


def test_a_backup_costs_a_message_per_own_tensor_and_the_first_in_a_group_two() -> None:
    workers = started(3).save(0)
    assert [rank.messages_sent for rank in workers.ranks] == [2, 2, 2], "the length, and all tensors with their names"
    workers.save(1)
    assert [rank.messages_sent for rank in workers.ranks] == [4, 4, 4], "the matrix and the count"
    alone = started(1).save(0, 1, 2)
    assert alone.ranks[0].messages_sent == 0


def test_a_copy_lies_in_the_memory_of_an_earlier_one_of_its_shape_and_type_and_elsewhere_otherwise() -> None:
    original = torch.arange(6.0).reshape(2, 3).t()
    for kept, reused in [
        (torch.empty(3, 2), True),
        (torch.empty(2, 3), False),
        (torch.empty(3, 2, dtype=torch.float64), False),
    ]:
        copies = copied({"a": original}, {"a": kept, "b": original})
        assert [*copies] == ["a"]
        assert (copies["a"] is kept) == reused
        assert torch.equal(copies["a"], original)
        assert copies["a"].is_contiguous()
        assert (copies["a"].dtype, copies["a"].shape) == (original.dtype, original.shape)
