"""Encoded vectors between ranks that are threads: each rank's result and bytes, and how NaNs are reported."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest

from farandole.compression.choices import build
from farandole.compression.compressor import Compressor, Vector
from farandole.compression.exchange import decoded_sum, gather, swap_rows, transfer
from farandole.compression.non_finite import NotFinite, check_own, check_sum
from farandole.compression.options import CompressionOptions
from tests.expected_bytes import bytes_leaving
from tests.unit.ranks_in_threads import Group, Rank

ADVICE = "look at that rank's data and loss, or give a smaller --lr"


def gradient(rank: int, length: int) -> Vector:
    """Return whole numbers, which every compressor here keeps exactly, or changes in the same way on all ranks."""
    return np.random.default_rng([rank, length]).integers(-50, 50, length).astype(np.float32)


def made(name: str, rank: int, ranks: int, length: int) -> Compressor:
    options = CompressionOptions(compressor=name, fraction=0.3, bucket=8)
    return cast(Compressor, build(options, [(length,)], 5, rank, ranks))


@pytest.mark.parametrize("name", ["none", "float16", "bfloat16", "qsgd", "sign", "top-k", "random-k"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_all_ranks_decode_the_sum_of_what_each_has_encoded(name: str, ranks: int) -> None:
    for length in (0, 1, 4, 23):

        def program(rank: Rank, length: int = length) -> Vector:
            comm: Any = rank
            own = made(name, rank.rank, ranks, length)
            expected_bytes = bytes_leaving(own, length, rank.rank, ranks)
            carried = transfer(own, comm, own.encode(gradient(rank.rank, length)))
            assert rank.bytes_sent == expected_bytes
            return decoded_sum(own, carried, length, ranks)

        expected = np.zeros(length, np.float32)
        for rank in range(ranks):
            own = made(name, rank, ranks, length)
            expected += own.decode(own.encode(gradient(rank, length)), length)
        assert [found.tolist() for found in Group(ranks).run(program)] == [expected.tolist()] * ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_payloads_are_gathered_in_the_order_of_ranks(ranks: int) -> None:
    def program(rank: Rank) -> list[int]:
        comm: Any = rank
        return gather(comm, np.array([10 * rank.rank, 10 * rank.rank + 1], np.uint8)).tolist()

    everything = [10 * rank + entry for rank in range(ranks) for entry in range(2)]
    assert Group(ranks).run(program) == [everything] * ranks


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_row_j_goes_to_rank_j(ranks: int) -> None:
    def program(rank: Rank) -> list[list[int]]:
        comm: Any = rank
        rows = np.array([[rank.rank, to] for to in range(ranks)], np.uint8)
        received = swap_rows(comm, rows).tolist()
        assert rows.tolist() == [[rank.rank, to] for to in range(ranks)], "the rows stay as they are"
        assert rank.messages_sent == ranks - 1
        return cast(list[list[int]], received)

    assert Group(ranks).run(program) == [[[source, rank] for source in range(ranks)] for rank in range(ranks)]


def reports(gradients: list[Vector]) -> list[str]:
    """Return what `check_sum` reports on each rank; "": nothing."""
    total = np.sum(gradients, axis=0)

    def program(rank: Rank) -> str:
        try:
            check_sum(total, gradients[rank.rank], rank.size, rank.Allgather)
        except NotFinite as error:
            return str(error)
        return ""

    return Group(len(gradients)).run(program)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_all_ranks_report_whose_gradient_is_not_finite(bad: float) -> None:
    gradients = [np.ones(10, np.float32) for _ in range(4)]
    assert reports(gradients) == [""] * 4
    gradients[2][3:5] = bad
    one = f"the gradient of rank 2 has a NaN or an infinity in 2 of 10 entries: {ADVICE}"
    assert reports(gradients) == [one] * 4
    gradients[0][7] = bad
    two = f"the gradients of ranks 0, 2 have a NaN or an infinity in 3 of 20 entries: {ADVICE}"
    assert reports(gradients) == [two] * 4


def test_a_sum_that_overflows_though_each_gradient_is_finite_is_reported_as_that() -> None:
    with np.errstate(over="ignore"):
        found = reports([np.full(3, 3e38, np.float32) for _ in range(2)])
    assert all(
        each.startswith("the sum of the ranks' gradients is not finite though each gradient is") for each in found
    )


def test_a_rank_refuses_to_send_a_vector_that_is_not_finite() -> None:
    check_own(np.zeros(5))
    check_own(np.zeros(0))
    with pytest.raises(NotFinite) as found:
        check_own(np.array([1.0, math.nan, math.inf, 2.0]))
    assert str(found.value) == f"its gradient has a NaN or an infinity in 2 of 4 entries: {ADVICE}"
    with pytest.raises(NotFinite, match=r"^its model has a NaN or an infinity in 1 of 1 entries"):
        check_own(np.array([math.nan]), "its model")
