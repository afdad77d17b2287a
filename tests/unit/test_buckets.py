"""Buckets: all of the gradient, once, in the order of backward."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.data_parallel.buckets import Bucket, cut

LENGTHS = st.lists(st.integers(1, 50), max_size=30)


@given(LENGTHS, st.integers(1, 200))
def test_they_are_the_whole_vector_from_its_end_on(lengths: list[int], most: int) -> None:
    stop, last = sum(lengths), len(lengths)
    for bucket in cut(lengths, most):
        assert (bucket.place.stop, bucket.parameters.stop) == (stop, last)
        assert bucket.place.stop - bucket.place.start == sum(lengths[number] for number in bucket.parameters)
        stop, last = bucket.place.start, bucket.parameters.start
    assert (stop, last) == (0, 0)


@given(LENGTHS, st.integers(1, 200))
def test_they_are_as_full_as_they_may_be(lengths: list[int], most: int) -> None:
    buckets = cut(lengths, most)
    sizes = [bucket.place.stop - bucket.place.start for bucket in buckets]
    assert all(size <= most or len(bucket.parameters) == 1 for size, bucket in zip(sizes, buckets, strict=True))
    for size, bucket in zip(sizes, buckets, strict=True):
        before = bucket.parameters.start - 1
        assert before < 0 or size + lengths[before] > most


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (100, [Bucket(slice(0, 13), range(4))]),
        (8, [Bucket(slice(5, 13), range(1, 4)), Bucket(slice(0, 5), range(1))]),
        (1, [Bucket(slice(12, 13), range(3, 4)), Bucket(slice(10, 12), range(2, 3)),
             Bucket(slice(5, 10), range(1, 2)), Bucket(slice(0, 5), range(1))]),
    ],
)  # fmt: skip
def test_four_parameters(most: int, expected: list[Bucket]) -> None:
    assert cut([5, 5, 2, 1], most) == expected
