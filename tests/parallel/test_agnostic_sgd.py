"""Synchronisation-agnostic SGD: the rounds of one process, the right optimum, its cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farandole import UsageError, launch

PARAMETERS = 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_round_equals_the_loop_in_one_process_and_only_normalised_ends_at_the_optimum(
    under_mpirun: Callable[..., Any], ranks: int
) -> None:
    found = under_mpirun("agnostic_rounds.py", ranks)
    mean = (ranks - 1) / 2
    steps = [rank + 1 for rank in range(ranks)]
    assert found["normalised"] == pytest.approx(mean, abs=0.01 * ranks)
    weighted = sum(rank * its for rank, its in enumerate(steps)) / sum(steps)  # a rank with more steps has more weight
    assert found["plain"] == pytest.approx(weighted, abs=0.01 * ranks)


def test_it_learns_with_unequal_steps_at_an_all_reduce_a_round(tmp_path: Path) -> None:
    recipe: dict[str, Any] = {"steps": 60, "hidden": 16, "capabilities": [1, 3], "local_batch": 8}
    run = launch("agnostic_sgd", 2, **recipe, out=tmp_path / "run")
    assert run.summary.messages_sent == [60 * 2] * 2
    assert run.summary.bytes_sent
    assert sum(run.summary.bytes_sent) == 60 * 2 * 4 * (PARAMETERS + 1)
    assert len(set(run.summary.params_sha256 or [])) == 1
    assert run.summary.test_accuracy is not None
    assert run.summary.test_accuracy > 0.8


def test_paces_are_one_a_rank(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--paces has 3 numbers: give one for each of 2 ranks"):
        launch("agnostic_sgd", 2, paces=[1, 1, 2], out=tmp_path / "run")
