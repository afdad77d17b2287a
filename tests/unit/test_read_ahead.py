"""Worker processes that read ahead: requests, failures, and their end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import get_worker_info

from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data.read_ahead import ahead
from farandole.data.samples import Reader, samples_of

CPU = torch.device("cpu")


class Squares:
    """Each sample is its number's square, and its reader: a worker's number, or -1."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> tuple[int, int]:
        worker = get_worker_info()
        return number**2, worker.id if worker else -1


def reader_of(samples: Any, **loader: Any) -> Reader:
    return samples_of(samples, loader=loader)[slice(10, 30)].on(CPU)


def batches() -> Iterator[NDArray[np.intp]]:
    yield from (np.array(rows, np.intp) for rows in ([3, 1], [], [0, 19, 5]))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_foreseen_batches_come_from_workers(workers: int) -> None:
    reader = ahead(reader_of(Squares(), num_workers=workers), batches(), 0)
    for rows in batches():
        squares, readers = reader[rows]
        assert squares.tolist() == ((rows + 10) ** 2).tolist()
        assert all(reader >= 0 for reader in readers.tolist()) == (workers > 0 or not len(rows))


def test_other_rows_are_read_here_until_they_are_foreseen_again() -> None:
    reader = ahead(reader_of(Squares(), num_workers=2), batches(), 0)
    for _ in range(2):  # the second predicted batch is not the requested one
        squares, readers = reader[np.array([3, 1])]
        assert squares.tolist() == [169, 121]
    assert readers.tolist() == [-1, -1]
    _, readers = ahead(reader, batches(), 0)[np.array([3, 1])]
    assert -1 not in readers.tolist()


def test_random_numbers_of_the_training_process_stay_as_they_are() -> None:
    before = torch.get_rng_state()
    ahead(reader_of(Squares(), num_workers=1), batches(), 0)[np.array([3, 1])]
    assert torch.equal(torch.get_rng_state(), before)


class Drawn(Squares):
    def __getitem__(self, number: int) -> Any:
        return torch.rand(())


def test_workers_draw_the_same_again_and_other_numbers_on_another_rank() -> None:
    def drawn(rank: int) -> list[float]:
        batch: Tensor = ahead(reader_of(Drawn(), num_workers=1), batches(), 0, rank)[np.array([3, 1])]
        return batch.tolist()

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


class Damaged(Squares):
    def __getitem__(self, number: int) -> Any:
        return self.read_header(number)

    def read_header(self, number: int) -> Any:
        raise ZeroDivisionError(number)


def test_a_sample_that_cannot_be_read_keeps_its_error() -> None:
    reader = ahead(reader_of(Damaged(), num_workers=1), batches(), 0)
    with pytest.raises(ZeroDivisionError, match="in read_header"):
        reader[np.array([3, 1])]


def test_what_an_elastic_sampler_foresees_is_what_comes() -> None:
    sampler = ElasticSampler([11, 10], 6, seed=3)
    sampler.go_to(2)
    for slots in (2, 3):
        coming = sampler.coming(1, slots)
        for _ in range(9):  # more than an epoch
            assert next(coming).tolist() == divide(next(sampler), slots)[1].tolist()


ABANDONED = """
import os, time
import numpy as np, torch
from farandole.data.read_ahead import ahead
from farandole.data.samples import samples_of

class Endless:
    def __len__(self): return 4
    def __getitem__(self, number):
        os.write(1, b"reading\\n")
        time.sleep(1000)

samples = samples_of(Endless(), loader={"num_workers": 2})
reader = ahead(samples.on(torch.device("cpu")), iter([np.array([0]), np.array([1])]), 0)
time.sleep(1000)
"""


def test_workers_die_with_their_rank() -> None:
    process = subprocess.Popen([sys.executable, "-c", ABANDONED], stdout=subprocess.PIPE)
    assert process.stdout
    assert [process.stdout.readline() for _ in range(2)] == [b"reading\n"] * 2
    process.send_signal(signal.SIGKILL)
    assert process.stdout.read() == b"", "the end comes when no process holds the pipe any more"
    process.wait()
