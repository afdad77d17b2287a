"""Dynamic synchronisation on ranks: it adapts to changes, has the stated cost, and learns."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from farandole import LaunchError, Run, UsageError, launch

SMALL: dict[str, Any] = {"hidden": 16}
PARAMETERS = 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10


def lines(run: Run, first: int, end: int) -> list[dict[str, float]]:
    """Return the record's values of these steps."""
    return [line for line in run.metrics if first <= line["step"] < end]


@pytest.mark.parametrize(("ranks", "hops"), [(1, 0), (2, 1), (4, 2)])
def test_a_round_costs_an_all_reduce_and_an_exchange_of_measurements(ranks: int, hops: int, tmp_path: Path) -> None:
    run = launch("dynamic_sync", ranks, **SMALL, steps=30, period=8, equal_steps=True, out=tmp_path / "run")
    rounds = ceil(30 / 8)
    assert run.summary.steps == rounds * 8
    assert run.summary.messages_sent == [rounds * (2 * (ranks - 1) + hops)] * ranks
    assert run.summary.bytes_sent
    measurements = hops * ranks * 8 * 2 * ranks
    assert sum(run.summary.bytes_sent) == rounds * (2 * (ranks - 1) * 4 * (PARAMETERS + 1) + measurements)
    assert len(set(run.summary.params_sha256 or [])) == 1


def test_micro_batches_of_a_step_add_up_to_it(tmp_path: Path) -> None:
    options = SMALL | {"steps": 16, "period": 8, "equal_steps": True}
    runs = [launch("dynamic_sync", 2, **options, accumulate=parts, out=tmp_path / str(parts)) for parts in (1, 3)]
    whole, divided = ([line["loss"] for line in run.metrics] for run in runs)
    assert divided == pytest.approx(whole, rel=1e-5)
    assert runs[0].summary.params_sha256 != runs[1].summary.params_sha256, "rounded otherwise, so taken otherwise"
    with pytest.raises(UsageError, match="--accumulate 17: a rank's step has 16 samples: give 16 or less"):
        launch("dynamic_sync", 2, **options | {"batch": 32}, accumulate=17, out=tmp_path / "refused")


def test_a_slow_rank_takes_fewer_steps_while_it_is_slow(tmp_path: Path) -> None:
    slow = "rank=1,factor=60,from=40,until=140"  # far more than other processes on the machine can slow a rank
    # At most 16 steps a round: six rounds while the rank is slow, and more until the average forgets it.
    run = launch("dynamic_sync", 3, **SMALL, steps=420, kappa=16, longest=16, slow=slow, out=tmp_path / "run")
    among = [line["fewest_steps"] / line["most_steps"] for line in lines(run, 88, 140)]
    later = [line["fewest_steps"] / line["most_steps"] for line in lines(run, 280, 420)]  # forgotten by then
    assert among
    assert later
    assert median(among) < 1 / 3
    assert median(later) > 1.5 * median(among)


def test_a_slow_network_means_longer_rounds_and_a_fast_one_shorter_ones(tmp_path: Path) -> None:
    # An all-reduce takes at least 0.6 s at first, much longer than a message waits on a busy machine.
    links = {"link_mbps": 0.08, "link_change": "step=200,mbps=100000"}
    run = launch("dynamic_sync", 2, **SMALL, steps=900, longest=200, **links, out=tmp_path / "run")
    slow, fast = lines(run, 1, 200)[-1]["period"], lines(run, 800, 900)[-1]["period"]
    assert slow > 10
    assert fast < slow / 1.5


def test_a_fault_in_the_middle_of_a_round_occurs(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="rank 1 at step 11 was killed by SIGKILL"):
        launch("dynamic_sync", 2, period=8, steps=40, fail="rank=1,step=11", out=tmp_path / "run")


def test_ranks_with_label_skew_learn_all_classes(tmp_path: Path) -> None:
    skew: dict[str, Any] = {"concentration": 0.1, "period": 4, "equal_steps": True}  # otherwise measured times decide
    run = launch("dynamic_sync", 4, **SMALL, **skew, steps=400, out=tmp_path / "run")
    assert run.summary.test_accuracy is not None
    assert run.summary.test_accuracy > 0.7
    assert run.summary.final_loss is not None
    assert run.summary.final_loss < run.metrics[0]["loss"] / 4


def test_text_has_no_classes_to_divide(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="transformer on pydoc has no classes to divide: give --concentration inf"):
        launch("dynamic_sync", 1, data="pydoc", model="transformer", concentration=0.1, out=tmp_path / "run")
