"""Tasks from the manager: each is done once, whatever dies or is slow; every sample is in one task of an epoch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.data.sampler import EpochSampler, batch_size
from farandole.parameter_server.header import NO_TASK, Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.policies import Asynchronous
from farandole.parameter_server.shard import Gradient, Shard
from farandole.parameter_server.task_replica import MiniBatches
from farandole.parameter_server.tasks import Coordinator, TaskQueue
from farandole.parameter_server.update_rules import SGD


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 6), st.randoms(use_true_random=False))
def test_every_task_is_done_once_in_any_order_of_events(
    tasks: int, workers: int, deaths: int, chance: random.Random
) -> None:
    queue = TaskQueue(tasks)
    alive, busy = list(range(workers)), dict[int, int]()
    deaths = min(deaths, workers - 1)
    events = 0
    while not queue.is_finished:
        events += 1
        assert events < 100 * (tasks + workers), "it comes to an end"
        worker = chance.choice(alive)
        if worker not in busy:
            task = queue.give(worker)
            if task is not None:
                assert list(busy.values()).count(task) <= 1, "two workers at most"
                busy[worker] = task
        elif deaths and chance.random() < 0.2:
            deaths -= 1
            alive.remove(worker)
            del busy[worker]
            queue.lose(worker)
        else:
            queue.done(worker, busy.pop(worker))
    assert sum(queue.done_by.values()) == tasks
    assert all(queue.give(worker) is None for worker in alive), "and nothing is computed after the end"


def test_fresh_tasks_come_first_then_the_oldest_of_the_slow() -> None:
    queue = TaskQueue(4)
    assert [queue.give(worker) for worker in (1, 2, 3)] == [0, 1, 2]
    queue.done(3, 2)
    queue.lose(2)
    assert queue.give(3) == 1, "what a dead worker had comes before what is new"
    queue.done(3, 1)
    assert queue.give(3) == 3
    queue.done(3, 3)
    assert queue.give(1) is None, "no worker is its own backup"
    assert queue.give(3) == 0
    assert queue.give(4) is None, "there is one backup at most"
    queue.done(3, 0)
    queue.done(1, 0)
    assert queue.figures() == {"done_by": {"3": 4}, "resubmitted": 1, "backups": 1}


def test_who_finds_nothing_to_do_is_answered_when_there_is() -> None:
    class Mailbox:
        def __init__(self) -> None:
            self.sent: list[tuple[int, int, int]] = []

        def send(self, to: int, tag: int, header: Header) -> None:
            self.sent.append((to, header.kind, header.task))

    class Succession:
        lost: set[int] = set()  # noqa: RUF012

    mailbox, succession = Mailbox(), Succession()
    coordinator: Any = Coordinator(mailbox, succession, TaskQueue(2))  # type: ignore[arg-type]
    for worker in (1, 2, 3, 4):
        coordinator.handle(Header(Kind.TASK, source=worker, task=NO_TASK))
    assert mailbox.sent == [(1, Kind.TASK, 0), (2, Kind.TASK, 1), (3, Kind.TASK, 0), (4, Kind.TASK, 1)]
    coordinator.handle(Header(Kind.TASK, source=3, task=0))
    assert len(mailbox.sent) == 4, "task 1 has two workers"
    succession.lost |= {2, 4}
    coordinator.miss()
    assert mailbox.sent[4:] == [(3, Kind.TASK, 1)]
    coordinator.handle(Header(Kind.TASK, source=3, task=1))
    assert mailbox.sent[5:] == [(3, Kind.FINISHED, NO_TASK)]


def test_a_server_counts_the_first_push_of_a_task_only() -> None:
    answers: list[Header] = []
    shard = Shard(np.zeros(2), [KeyRange(0, 2)], Asynchronous([1, 2]), SGD(1.0), None, None, answers.append)
    for worker in (1, 2):
        shard.pull(Header(Kind.PULL, worker=worker), 0.0)
    for worker, clock, task in ((1, 0, 7), (2, 0, 7), (2, 1, 8), (1, 1, 8), (1, 2, 3)):
        shard.push(Header(Kind.PUSH, worker=worker, clock=clock, share=1.0, task=task), Gradient([np.ones(2)]), 0.0)
    kinds = [answer.kind for answer in answers if answer.kind != Kind.GRANT]
    assert kinds == [Kind.APPLIED, Kind.DROPPED, Kind.APPLIED, Kind.DROPPED, Kind.APPLIED]
    assert shard.values.tolist() == [-3, -3]


@pytest.mark.parametrize(("samples", "batch", "workers"), [(103, 10, 1), (103, 10, 3), (64, 64, 7), (50, 1, 2)])
def test_every_sample_is_in_one_mini_batch_of_an_epoch(samples: int, batch: int, workers: int) -> None:
    batches = MiniBatches(samples, batch, workers, seed=5)
    for epoch in range(3):
        numbers = range(epoch * batches.epoch, (epoch + 1) * batches.epoch)
        assert sorted(np.concatenate([batches.rows(number) for number in numbers])) == list(range(samples))
    steps = [sum(batches.share(number) for number in range(first, first + workers)) for first in (0, workers)]
    assert steps == pytest.approx([1.0, 1.0])


def test_one_worker_has_the_batches_it_would_choose_itself() -> None:
    batches, own = MiniBatches(103, 10, 1, seed=5), EpochSampler(103, 11, 5, 0)
    for number in range(25):
        assert batches.rows(number).tolist() == next(own).tolist()
        assert len(batches.rows(number)) == batch_size(103, 11, number)
        assert batches.share(number) == 1.0
