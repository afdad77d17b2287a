"""Lab 5: the network computes what it says, a correct answer may look different, and misuse gets a plain message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from farandole_tools.lab import labs
from farandole_tools.lab.grading import grade
from farandole_tools.lab.half_network import ELEMENTS, OUTLIER, HalfNetwork, start
from tests.labs.labs_for_tests import LIMIT_S, on

LAB = labs.find("5")
CHECK = sys.modules[LAB.checks[0].run.__module__]  # its check.py
SCALE = """
class LossScale:
    def __init__(self, value=65536, patience=2000):
        self.value, self.patience, self.left = value, patience, patience

    def observe(self, finite):
        self.left -= 1
        if not finite or not self.left:
            self.value, self.left = self.value * 2 if finite else max(self.value / 2, 1), self.patience
"""

# Divides by the scale after the sum, as torch does, and detects NaN by a comparison with itself.
ANOTHER = f"""
import numpy as np
{SCALE}
class MixedPrecision:
    def __init__(self, network, values, rate, scale, comm):
        self.network, self.master, self.rate, self.scale, self.comm = network, values, rate, scale, comm

    def step(self, samples, share):
        scale = np.float32(self.scale.value)
        total = np.float32(share) * self.network.backward(np.float16(self.master), samples, scale)
        total = total.astype(np.float32)
        self.comm.all_reduce(total)
        good = abs(total).max() < np.inf
        if good:
            self.master = self.master - np.float32(self.rate) * (total / scale)
        self.scale.observe(good)
"""

PLAIN = f"""
import numpy as np
{SCALE}
class MixedPrecision:
    def __init__(self, network, values, rate, scale, comm):
        self.network, self.master, self.rate, self.scale, self.comm = network, values.copy(), rate, scale, comm
        self.half = values.astype(np.float16)

    def step(self, samples, share):
        gradient = self.network.backward(self.half, samples, self.scale.value).astype(np.float32)
        gradient *= share / self.scale.value
"""
SUM = "self.comm.all_reduce(gradient)"


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_right_answer_need_not_look_like_ours(tmp_path: Path, ranks: int) -> None:
    (tmp_path / "mine.py").write_text(ANOTHER)
    result = grade(on(LAB, ranks), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert [check.message for check in result.results if not check.passed] == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("pass", "step 0: rank 0 does not call all_reduce"),
        ("self.comm.all_reduce([1.0])", "all_reduce takes a vector of floating-point numbers, a numpy array"),
        ("self.comm.all_reduce(gradient > 0)", "all_reduce takes a vector of floating-point numbers"),
        ("self.network.backward(self.master, samples, 1.0)", "it takes a vector of 43 float16, not float32 of shape"),
        ("self.network.backward(list(self.half), samples, 1.0)", "it takes a vector of 43 float16, not list"),
        (f"{SUM}; self.master = None", "step 0: master is to be one vector of 43 numbers"),
        (SUM, "step 0: master does not move"),
        (f"{SUM}; self.master += self.rate * gradient", "step 0: master moves by the gradient upwards: subtract it"),
        (f"{SUM}; self.master -= self.rate * gradient / self.scale.value", "step 0: master moves by too little"),
        (f"{SUM}; self.master *= np.inf", "step 0: master is not finite any more"),
        (f"{SUM}; self.master[3] -= self.rate * gradient[3]", "of master moves by 0.000000, and should by"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(f"{PLAIN}        {body}\n")
    result = grade(on(LAB, 1, checks=("steps",)), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert message in result.results[0].message


def test_parts_of_the_gradient_that_are_not_of_one_length_are_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{PLAIN}        self.comm.all_reduce(gradient[self.comm.rank:])\n")
    result = grade(on(LAB, 2, checks=("one message",)), tmp_path / "mine.py", limit_s=LIMIT_S, ours=True)
    assert "of 43 elements on rank 0 and of 42 on rank 1" in result.results[0].message


def test_the_gradient_is_that_of_the_loss() -> None:
    """Compared with differences of the loss itself, in float64."""
    samples, small, network = [3, 1, 4], 1e-6, HalfNetwork(unit=0.5)
    values = start().astype(np.float64)
    losses = [[network.loss(values + sign * step, samples) for sign in (1, -1)] for step in small * np.eye(ELEMENTS)]
    slopes = [(up - down) / (2 * small) for up, down in losses]
    found = network.backward(start().astype(np.float16), samples, scale=4.0)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found / 4, slopes, atol=3e-3)
    assert not network.backward(start().astype(np.float16), [], scale=4.0).any()


def test_the_first_parameters_are_held_by_float16_and_none_is_small() -> None:
    assert np.array_equal(start().astype(np.float16), start())
    assert start().dtype == np.float32
    assert (abs(start()) >= 0.5).all()


@pytest.mark.parametrize("size", CHECK.ALL)
@pytest.mark.parametrize("parts", [CHECK.alike, CHECK.unlike])
def test_everything_is_in_the_window_where_bits_are_compared(
    parts: Callable[[int, int], list[list[int]]], size: int
) -> None:
    """Neither infinite nor with fewer digits: otherwise the scale would change bits of a correct answer."""
    for step in range(CHECK.STEPS):
        samples = parts(step, size)
        assert sorted(chain(*samples)) == list(range(step * CHECK.BATCH, (step + 1) * CHECK.BATCH))
        for first, patience in CHECK.SCALES:
            scale = first * 2 ** (step if patience == 1 else 0)
            for part in filter(None, samples):
                found = abs(HalfNetwork().backward(start().astype(np.float16), part, scale).astype(np.float64))
                assert found.max() < 2.0**15
                assert found.min() > 2.0**-13


@pytest.mark.parametrize("size", CHECK.ALL)
def test_what_the_checks_take_for_an_overflow_is_one(size: int) -> None:
    scale, half = CHECK.BEFORE_OVERFLOW, start().astype(np.float16)
    for step in range(max(CHECK.OVERFLOWS) + 2):
        found = [HalfNetwork().backward(half, part, scale) for part in CHECK.overflowing(step, size)]
        with np.errstate(all="ignore"):
            total = sum(each.astype(np.float32) for each in found)
        finite = [bool(np.isfinite(each).all()) for each in found]
        assert finite == [
            step not in CHECK.OVERFLOWS or not {OUTLIER, OUTLIER + 1} & set(part)
            for part in CHECK.overflowing(step, size)
        ]
        assert np.isfinite(total).all() == (step not in CHECK.OVERFLOWS)
        if step in CHECK.OVERFLOWS:
            assert np.isfinite(total).any(), "who puts 0 for what is infinite would move"
            scale /= 2
        if step == 3:
            assert not np.isinf(total).any(), "who looks for infinities only would see none"


def test_float16_makes_nothing_of_small_gradients_and_shows_no_small_update() -> None:
    half, moves = start().astype(np.float16), []
    for step in range(CHECK.MANY_STEPS):
        samples = CHECK.alike(step, 1)[0]
        assert not HalfNetwork(CHECK.TINY).backward(half, samples, scale=1.0).any()
        moves.append(CHECK.SLOWLY * HalfNetwork().backward(half, samples, scale=1.0).astype(np.float32))
        assert np.array_equal((start() - moves[-1]).astype(np.float16), half)
    together = (start() - sum(moves)).astype(np.float16)
    assert (together != half).mean() > 0.5
