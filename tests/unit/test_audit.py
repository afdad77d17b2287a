"""An audit of summed gradients finds faults, and reports no false ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from farandole.data_parallel.audit import WrongSum, audited, check_equal, check_sum
from farandole.runtime.communicator import Buffer, Communicator
from farandole.runtime.lossy import with_flipped_bit

EPSILON = float(np.finfo(np.float32).eps)


def numbers(vectors: list[np.ndarray], total: np.ndarray) -> np.ndarray:
    """The four numbers that each rank sends, for these contributions and this sum on all of them."""
    of_all = [total.sum(dtype=np.float64), 0.0]
    return np.array([[each.sum(dtype=np.float64), np.abs(each).sum(dtype=np.float64), *of_all] for each in vectors])


@given(st.integers(1, 9), st.integers(1, 400), st.integers(0, 2**32 - 1), st.floats(-12, 12))
def test_rounding_is_no_fault_in_whatever_order_ranks_are_added(ranks: int, size: int, seed: int, scale: float) -> None:
    draw = np.random.default_rng(seed)
    vectors = [(10**scale * draw.standard_normal(size)).astype(np.float32) for _ in range(ranks)]
    total = np.zeros(size, np.float32)
    for vector in draw.permutation(vectors):
        total += vector
    check_sum(numbers(vectors, total), EPSILON)


@given(st.integers(0, 2**32 - 1), st.integers(0, 99), st.integers(23, 30))
def test_a_flipped_bit_of_an_exponent_is_found(seed: int, place: int, bit: int) -> None:
    draw = np.random.default_rng(seed)
    vectors = [draw.uniform(1, 2, 100).astype(np.float32) for _ in range(4)]
    total = np.sum(vectors, axis=0, dtype=np.float32)
    total.view(np.uint32)[place] ^= 1 << bit
    with pytest.raises(WrongSum, match="more apart than rounding may do"):
        check_sum(numbers(vectors, total), EPSILON)


def test_a_sum_that_is_not_finite_is_found_unless_a_contribution_is_not() -> None:
    fine, overflown = np.ones(4, np.float32), np.array([1, np.inf, 1, 1], np.float32)
    with pytest.raises(WrongSum):
        check_sum(numbers([fine, fine], overflown), EPSILON)
    check_sum(numbers([fine, overflown], overflown), EPSILON)


def test_the_ranks_that_differ_are_named() -> None:
    check_equal(np.array([7.0, 7.0, 7.0]), [0, 1, 2])
    with pytest.raises(WrongSum, match="rank 5 received another sum of gradients than ranks 3, 4"):
        check_equal(np.array([7.0, 7.0, 8.0]), [3, 4, 5])
    with pytest.raises(WrongSum, match="ranks 1, 2 received another sum of gradients than rank 0"):
        check_equal(np.array([7.0, 8.0, 9.0]), [0, 1, 2])


def test_an_audited_all_reduce_returns_the_sum_and_refuses_a_changed_one() -> None:
    def changed(_: Communicator, buffer: Buffer) -> None:
        buffer[:] = np.frombuffer(with_flipped_bit(buffer.tobytes(), 0.999), np.float32)

    comm, vector = Communicator(MPI.COMM_SELF), np.arange(5, dtype=np.float32)
    audited(lambda comm, buffer: None)(comm, vector)
    assert vector.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(WrongSum):
        audited(changed)(comm, vector)
