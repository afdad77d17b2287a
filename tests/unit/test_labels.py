"""Label alignment: one space for all names, and the way there and back."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.parameter_server.labels import ABSENT, align, local_label_sets

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

label_sets = st.lists(
    st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=8, unique=True), min_size=1, max_size=6
)


def test_two_animal_collections_share_one_numbering() -> None:
    alignment = align([["dog", "cat"], ["owl", "dog"]])
    assert alignment.names == ("cat", "dog", "owl")
    assert [own.tolist() for own in alignment.to_common] == [[1, 0], [2, 1]]
    assert alignment.to_local(0).tolist() == [1, 0, ABSENT]
    assert alignment.to_local(1).tolist() == [ABSENT, 1, 0]
    assert alignment.to_common[0][np.array([1, 1, 0])].tolist() == [0, 0, 1], "a whole array of targets at once"


@given(label_sets)
def test_a_label_keeps_its_name_in_the_common_space(local_names: list[list[str]]) -> None:
    alignment = align(local_names)
    assert list(alignment.names) == sorted({name for names in local_names for name in names})
    for names, to_common in zip(local_names, alignment.to_common, strict=True):
        assert to_common.dtype == np.int64
        assert [alignment.names[number] for number in to_common] == names


@given(label_sets)
def test_there_and_back_is_where_it_began(local_names: list[list[str]]) -> None:
    alignment = align(local_names)
    for worker, names in enumerate(local_names):
        back = alignment.to_local(worker)
        assert back[alignment.to_common[worker]].tolist() == list(range(len(names)))
        assert (back == ABSENT).sum() == len(alignment.names) - len(names)


@given(label_sets, st.randoms(use_true_random=False))
def test_the_order_of_the_workers_does_not_matter(local_names: list[list[str]], random: Random) -> None:
    order = list(range(len(local_names)))
    random.shuffle(order)
    alignment, shuffled = align(local_names), align([local_names[worker] for worker in order])
    assert shuffled.names == alignment.names
    assert all(
        np.array_equal(shuffled.to_common[place], alignment.to_common[worker]) for place, worker in enumerate(order)
    )


@pytest.mark.parametrize(
    ("local_names", "message"),
    [
        ([], "no worker"),
        ([["a"], []], "worker 1 has no labels"),
        ([["a", ""]], "worker 0 has a label without a name"),
        ([["a"], ["b", "c", "b"]], "worker 1 has the label 'b' twice"),
    ],
)
def test_impossible_labels_are_refused(local_names: list[list[str]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        align(local_names)


@given(st.integers(1, 12), st.integers(1, 10), st.integers(0, 20))
def test_demonstration_sets_cover_all_classes(workers: int, per_worker: int, seed: int) -> None:
    if workers * per_worker < len(DIGITS):
        with pytest.raises(UsageError, match="cannot cover 10 classes"):
            local_label_sets(DIGITS, workers, per_worker, seed)
        return
    sets = local_label_sets(DIGITS, workers, per_worker, seed)
    assert [len(set(own)) for own in sets] == [per_worker] * workers
    assert set(align(sets).names) == set(DIGITS)
    if workers * per_worker > len(DIGITS):
        assert any(set(one) & set(other) for place, one in enumerate(sets) for other in sets[:place])


def test_demonstration_sets_are_numbered_by_each_worker_on_its_own_and_repeatable() -> None:
    sets = local_label_sets(DIGITS, workers=3, per_worker=5, seed=0)
    assert sets == local_label_sets(DIGITS, 3, 5, seed=0)
    assert sets != local_label_sets(DIGITS, 3, 5, seed=1)
    for one, other in (sets[:2], sets[1:]):
        shared = set(one) & set(other)
        assert shared
        assert all(one.index(name) != other.index(name) for name in shared)


@pytest.mark.parametrize(("workers", "per_worker"), [(3, 0), (3, 11), (0, 5)])
def test_impossible_demonstrations_are_refused(workers: int, per_worker: int) -> None:
    with pytest.raises(UsageError, match="labels"):
        local_label_sets(DIGITS, workers, per_worker, seed=0)
