"""The drifting stream: the angle is as scheduled, each worker gets its part, and the drift is real."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given
from hypothesis import strategies as st

from farandole.data import datasets
from farandole.data.streams import RotatingDigits, rotated
from farandole.errors import UsageError

DIGITS = datasets.load("digits")
FEW = DIGITS[slice(0, 30)]

workers_and_total = st.integers(1, 6).flatmap(lambda workers: st.tuples(st.just(workers), st.integers(workers, 150)))


@pytest.mark.parametrize("degrees", [0.0, 7.5, 45.0, 90.0, 123.0, 360.0, -30.0])
def test_rotation_is_that_of_scipy(degrees: float) -> None:
    images = np.random.default_rng(0).random((5, 2, 9, 8), dtype=np.float32)  # bright to the border
    expected = scipy.ndimage.rotate(images, degrees, axes=(2, 3), reshape=False, order=1, mode="grid-constant")
    np.testing.assert_allclose(rotated(images, np.full(5, degrees)), expected, atol=1e-5)


def test_rotation_is_exact_where_no_pixel_has_to_be_split() -> None:
    assert np.array_equal(rotated(DIGITS.inputs, np.zeros(len(DIGITS))), DIGITS.inputs)
    quarter = rotated(DIGITS.inputs, np.full(len(DIGITS), 90.0))
    np.testing.assert_allclose(quarter, np.rot90(DIGITS.inputs, axes=(2, 3)), atol=1e-6)


def test_each_image_has_an_angle_of_its_own() -> None:
    angles = np.array([0.0, 20.0, 90.0])
    together = rotated(DIGITS.inputs[:3], angles)
    one_by_one = [rotated(DIGITS.inputs[i : i + 1], angles[i : i + 1]) for i in range(3)]
    assert np.array_equal(together, np.concatenate(one_by_one))


@given(workers_and_total, st.integers(1, 20))
def test_sub_streams_are_disjoint_and_complete(given: tuple[int, int], batch: int) -> None:
    workers, total = given
    positions = []
    for worker in range(workers):
        stream = RotatingDigits(FEW, total, 90, 0, worker, workers, batch)
        own = [stream.positions(step) for step in range(stream.steps)]
        assert all(len(part) == batch for part in own[:-1])
        assert 1 <= len(own[-1]) <= batch
        positions += np.concatenate(own).tolist()
    assert sorted(positions) == list(range(total))


@given(workers_and_total)
def test_workers_see_the_same_angle_at_the_same_step(given: tuple[int, int]) -> None:
    workers, total = given
    streams = [RotatingDigits(FEW, total, 90, 0, worker, workers, batch=4) for worker in range(workers)]
    for step in range(min(stream.steps for stream in streams)):
        firsts = [stream.angles(stream.positions(step))[0] for stream in streams]
        assert max(firsts) - min(firsts) <= 90 * (workers - 1) / max(total - 1, 1) + 1e-9


def test_the_angle_grows_evenly_from_zero_to_the_last_position() -> None:
    stream = RotatingDigits(FEW, 91, 90, seed=0, batch=10)
    angles = np.concatenate([stream.angles(stream.positions(step)) for step in range(stream.steps)])
    np.testing.assert_allclose(angles, np.arange(91))


def test_batches_are_the_samples_at_their_positions_turned_by_their_angles() -> None:
    stream = RotatingDigits(DIGITS, 400, 60, seed=2, worker=1, workers=3, batch=16)
    steps = 0
    for step, (inputs, targets) in enumerate(stream):
        positions = stream.positions(step)
        numbers = stream.sample_numbers(positions)
        assert inputs.dtype == np.float32
        assert np.array_equal(inputs, rotated(DIGITS.inputs[numbers], 60 * positions / 399))
        assert np.array_equal(targets, DIGITS.targets[numbers])
        steps += 1
    assert steps == stream.steps == math.ceil(133 / 16)


def test_the_order_begins_anew_when_the_set_is_used_up_and_each_round_uses_every_sample_once() -> None:
    stream = RotatingDigits(FEW, 90, 90, seed=0)
    numbers = stream.sample_numbers(np.arange(90))
    rounds = [numbers[start : start + 30].tolist() for start in (0, 30, 60)]
    assert all(sorted(order) == list(range(30)) for order in rounds)
    assert len({tuple(order) for order in rounds}) == 3


def test_one_seed_gives_one_stream() -> None:
    def batches(seed: int) -> list[bytes]:
        return [inputs.tobytes() for inputs, _ in RotatingDigits(DIGITS, 200, 90, seed, worker=1, workers=2)]

    assert batches(5) == batches(5)
    assert batches(5) != batches(6)


@given(st.integers(0, 7))
def test_a_restored_stream_goes_on_exactly(taken: int) -> None:
    stream = RotatingDigits(FEW, 100, 90, seed=4, worker=1, workers=2, batch=8)
    for _ in range(taken):
        next(stream)
    restored = RotatingDigits(FEW, 100, 90, seed=0, batch=8)
    restored.restore(stream.state())
    rest, expected = list(restored), list(stream)
    assert len(rest) == len(expected) == 7 - taken
    for mine, other in zip(rest, expected, strict=True):
        assert np.array_equal(mine[0], other[0])
        assert np.array_equal(mine[1], other[1])


def test_a_model_that_has_stopped_learning_gets_much_worse() -> None:
    """The model: the mean image of each class. Right at the stream's upright end: 0.89; at the other: 0.14."""
    splits = datasets.split(DIGITS, seed=0)
    means = np.stack([splits.train.inputs[splits.train.targets == digit].mean(axis=0) for digit in range(10)])
    right = []
    for inputs, targets in RotatingDigits(splits.test, 1800, 90, seed=0, batch=180):
        distances = ((inputs[:, None] - means) ** 2).sum(axis=(2, 3, 4))
        right.append(np.mean(distances.argmin(axis=1) == targets))
    assert right[0] > 0.8
    assert right[-1] < 0.3
    assert right == sorted(right, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"worker": 2, "workers": 2}, "no worker 2"),
        ({"worker": -1}, "no worker -1"),
        ({"workers": 0}, "no worker 0"),
        ({"samples_total": 2, "workers": 3}, "too short for 3 workers"),
        ({"samples_total": 0}, "too short for 1 workers"),
        ({"batch": 0}, "batch of 0"),
        ({"degrees": math.nan}, "nan degrees"),
    ],
)
def test_impossible_streams_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RotatingDigits(FEW, **{"samples_total": 10, "degrees": 90, "seed": 0, **arguments})
