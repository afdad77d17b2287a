"""Local SGD is a loop over models that drift and are averaged; its cost is an all-reduce in every period."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole import launch
from farandole.data_parallel.random_factors import with_random_factors
from farandole.runtime.communicator import Communicator

PARAMETERS = 64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_step_equals_the_loop_in_one_process(under_mpirun: Callable[..., Any], ranks: int) -> None:
    found = under_mpirun("local_steps.py", ranks)
    if ranks == 1:
        assert {case["steps_apart"] for case in found.values()} == {0}
        return
    # In 11 steps: averages after 3, 6, 9 and 11; with alpha 0.5 the copies differ until the last; and so on.
    assert {name: case["steps_apart"] for name, case in found.items()} == {
        "whole way": 7, "half the way": 10, "post-local": 6, "once": 10,
    }  # fmt: skip
    assert [case["averages"] for case in found.values()] == list(np.cumsum([4, 4, 3 + 2, 1])), "counted on"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("options", "averages"),
    [
        ({"period": 8}, 20),
        ({"period": 8, "alpha": 0.5}, 21),
        ({"once": True}, 1),
        ({"synchronous": 20, "period": 10}, 34),
    ],
)
def test_local_sgd_learns_with_one_all_reduce_per_period(
    options: dict[str, Any], averages: int, tmp_path: Path
) -> None:
    run = launch("local_sgd", 3, steps=160, hidden=32, **options, out=tmp_path / "run")
    assert len(set(run.summary.params_sha256)) == 1
    assert run.summary.messages_sent == [averages * 2 * 2] * 3
    assert run.summary.bytes_sent == [pytest.approx(averages * 4 / 3 * 4 * PARAMETERS, rel=1e-3)] * 3
    assert run.summary.test_accuracy > 0.85


def test_random_factors_are_right_on_average_and_add_noise(tmp_path: Path) -> None:
    def reduced(spread: float) -> np.ndarray:
        """One rank's contribution, 1, many times."""
        all_reduce = with_random_factors(lambda comm, buffer: None, spread, seed=5)
        draws = [np.ones(1) for _ in range(4000)]
        for buffer in draws:
            all_reduce(alone, buffer)
        return np.concatenate(draws)

    class Alone:
        rank = 0

    alone: Communicator = Alone()  # type: ignore[assignment]
    assert set(reduced(0.0)) == {1.0}
    noisy = reduced(0.6)
    deviation = np.sqrt(0.6**2 / 3)
    assert abs(noisy.mean() - 1) < 4 * deviation / np.sqrt(4000), "by chance once in 16,000"
    assert noisy.std() == pytest.approx(deviation, rel=0.05)
    assert (noisy.min() >= 0.4, noisy.max() <= 1.6) == (True, True)

    plain = launch("sync_sgd", 2, steps=10, hidden=16, out=tmp_path / "plain")
    none = launch("sync_sgd", 2, steps=10, hidden=16, random_factors=0.0, out=tmp_path / "none")
    some = launch("sync_sgd", 2, steps=10, hidden=16, random_factors=0.5, out=tmp_path / "some")
    assert plain.summary.params_sha256 == none.summary.params_sha256 != some.summary.params_sha256
    assert len(set(some.summary.params_sha256)) == 1, "all copies still move alike"


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_ranks_draw_their_random_factors_independently(under_mpirun: Callable[..., Any], ranks: int) -> None:
    found = under_mpirun("random_factors.py", ranks)
    spread, draws = found["spread"], found["draws"]
    vectors = np.arange(1, ranks + 1)
    variance = spread**2 / 3 * (vectors**2).sum()  # had all the same factor: spread² / 3 · (Σ x)²
    assert abs(found["mean"] - vectors.sum()) < 4 * np.sqrt(variance / draws), "unbiased"
    assert found["variance"] == pytest.approx(variance, rel=4 * np.sqrt(2 / draws))  # a normal sum's bound, and wider
    apart = np.array(found["correlations"]) - np.eye(ranks)
    assert abs(apart).max() < 4 / np.sqrt(draws), "independent of each other"
