"""Data of a user's own: worker processes that read ahead, and streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole import LaunchError, Run, UsageError, launch
from tests.tasks import reading

FILE = Path(reading.__file__)
SAME: dict[str, Any] = {"steps": 12, "batch": 30, "lr": 0.1}
# Methods that are deterministic: their ranks' batches come from a sampler, and are not drawn from a queue.
READ_AHEAD: list[tuple[str, int, dict[str, Any]]] = [
    ("sync_sgd", 3, {}),
    ("local_sgd", 2, {}),
    ("dpsgd", 3, {"background_metrics": True}),
    ("ad_psgd", 1, {}),
    ("parameter_server", 4, {"sync": "bsp", "servers": 2}),
    ("downpour", 3, {"overlap": False}),
    ("restart", 2, {}),
    ("backup", 4, {"fail": "rank=2,step=5", "backup_every": 2, "spares": 1}),
    ("membership", 3, {"fail": "rank=2,step=5"}),
]


def trained(method: str, ranks: int, options: dict[str, Any], task: str, folder: Path) -> Run:
    return launch(method, ranks, task=f"{FILE}:{task}", out=folder / task, timeout_s=120, **SAME | options)


@pytest.mark.parametrize(("method", "ranks", "options"), READ_AHEAD)
def test_workers_read_the_same_batches(method: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    alone, by_workers = (trained(method, ranks, options, task, tmp_path) for task in ("alone", "by_workers"))
    assert [line["loss"] for line in by_workers.metrics] == [line["loss"] for line in alone.metrics]
    assert by_workers.summary.params_sha256 == alone.summary.params_sha256
    assert by_workers.summary.test_metrics == alone.summary.test_metrics


def test_spawned_workers_do_too(tmp_path: Path) -> None:
    alone, spawned = (trained("sync_sgd", 2, {}, task, tmp_path) for task in ("alone", "by_spawned_workers"))
    assert spawned.summary.params_sha256 == alone.summary.params_sha256


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("worker_dies", r"rank 1 at step \d+ raised .*WorkerLost: loader=: DataLoader worker \(pid.*\)"),
        ("worker_hangs", r"rank 1 at step \d+ raised .*WorkerLost: loader=: DataLoader timed out after 2 seconds"),
    ],
)
def test_a_lost_worker_ends_the_run_with_one_line(task: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=said):
        trained("sync_sgd", 2, {}, task, tmp_path)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("shuffled", "loader= has shuffle, which the method decides: it takes num_workers, prefetch_factor, timeout"),
        ("prefetching_nobody", "prefetch_factor option should be non-negative"),
        ("arrays_by_workers", "loader= is for a Dataset; rows of arrays are read by the training process"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(task: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        trained("sync_sgd", 2, {}, task, tmp_path)
