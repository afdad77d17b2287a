"""A user's own data: worker processes that read ahead, and streams."""

from __future__ import annotations

import json
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import torch

from farandole import LaunchError, Run, UsageError, launch
from farandole.methods import METHODS
from farandole.runtime import devices
from tests.tasks import reading, streams, waves

FILE, STREAMS = Path(reading.__file__), Path(streams.__file__)
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
    ("elastic_diloco", 3, {"period": 4, "fail": "rank=2,step=5"}),
]


def trained(method: str, ranks: int, options: dict[str, Any], task: str, folder: Path) -> Run:
    return launch(method, ranks, task=f"{FILE}:{task}", out=folder / task, timeout_s=120, **SAME | options)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("method", "ranks", "options"), READ_AHEAD)
def test_workers_read_the_same_batches(method: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    alone, by_workers = (trained(method, ranks, options, task, tmp_path) for task in ("alone", "by_workers"))
    assert [line["loss"] for line in by_workers.metrics] == [line["loss"] for line in alone.metrics]
    assert by_workers.summary.params_sha256 == alone.summary.params_sha256
    assert by_workers.summary.test_metrics == alone.summary.test_metrics


@pytest.mark.soak  # each imports torch again
def test_spawned_workers_do_too(tmp_path: Path) -> None:
    alone, spawned = (trained("sync_sgd", 2, {}, task, tmp_path) for task in ("alone", "by_spawned_workers"))
    assert spawned.summary.params_sha256 == alone.summary.params_sha256


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("worker_dies", r"rank 1 at step \d+ raised .*WorkerLost: loader=: DataLoader worker \(pid.*\) exited"),
        ("worker_hangs", r"rank 1 at step \d+ raised .*WorkerLost: loader=: no batch within timeout=2 seconds"),
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


BATCH, STEPS, LR = 14, 11, 0.1  # more than a pass over the stream, and no whole number of batches
OF_A_STREAM: dict[str, Any] = {"steps": STEPS, "batch": BATCH, "lr": LR}
# Methods whose step is one of gradient descent on the batch, on any number of ranks.
DESCENDING: list[tuple[str, int, dict[str, Any]]] = [
    ("sync_sgd", 1, {}),
    ("sync_sgd", 3, {}),
    ("sync_sgd", 2, {"capabilities": (3, 1)}),
    ("horovod_sgd", 2, {}),
    ("ddp_sgd", 2, {}),
    ("sharded", 2, {"optimizer": "sgd"}),
    ("fsdp_sgd", 2, {"optimizer": "sgd"}),
    ("local_sgd", 2, {"period": 1}),
    ("diloco", 2, {"optimizer": "sgd", "weight_decay": 0.0, "period": 1, "outer_lr": 1.0, "outer_momentum": 0.0}),
    ("parameter_server", 4, {"sync": "bsp"}),
]
LEARNING: list[tuple[str, int, dict[str, Any]]] = [
    ("agnostic_sgd", 2, {}),
    ("central_directions", 2, {}),
    ("compressed_sgd", 2, {}),
    ("dpsgd", 3, {}),
    ("push_sum", 2, {}),
    ("ad_psgd", 3, {}),
    ("choco_sgd", 2, {}),
    ("downpour", 3, {}),
]
# They have their own data, and accept no task.
NO_TASK = {
    *("small_network", "hybrid_parameters", "online", "adaptive"),
    *("tensor_split", "context_parallel", "expert_parallel", "grid"),
}
NUMBERED = sorted(set(METHODS) - NO_TASK - {method for method, _, _ in (*DESCENDING, *LEARNING)})


def streamed(method: str, ranks: int, options: dict[str, Any], task: str, folder: Path) -> Run:
    return launch(method, ranks, task=f"{STREAMS}:{task}", out=folder / task, timeout_s=120, **OF_A_STREAM | options)


def descended() -> list[float]:
    """Return the loss of each step of gradient descent over the stream, in this process."""
    devices.seed_everything(0)
    task, arrays = streams.lines(), map(torch.from_numpy, waves.waves(waves.TRAIN, 0))
    model, samples, losses = task.model(), cycle(zip(*arrays, strict=True)), []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(STEPS):
        batch = tuple(map(torch.stack, zip(*islice(samples, BATCH), strict=True)))
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "ranks", "options"), DESCENDING)
def test_a_stream_is_divided_batch_by_batch(method: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    run = streamed(method, ranks, options, "lines", tmp_path)
    assert [line["loss"] for line in run.metrics] == pytest.approx(descended(), rel=1e-4)
    assert [line["samples"] for line in run.metrics] == [BATCH] * STEPS
    recorded = json.loads((run.folder / "stream.json").read_text())
    assert recorded["divided"] == "by position in the batch"
    assert sum(recorded["samples_of_a_batch"]) == BATCH


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "ranks", "options"), LEARNING)
def test_other_methods_learn_from_a_stream(method: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    run = streamed(method, ranks, {"steps": 60} | options, "lines", tmp_path)
    assert run.summary.final_loss is not None
    assert run.summary.final_loss < descended()[0] / 2


def test_a_worker_reads_a_stream_ahead(tmp_path: Path) -> None:
    run = streamed("sync_sgd", 2, {}, "lines_ahead", tmp_path)
    assert [line["loss"] for line in run.metrics] == pytest.approx(descended(), rel=1e-4)


def test_a_stream_may_divide_itself(tmp_path: Path) -> None:
    run = streamed("sync_sgd", 2, {}, "divided", tmp_path)
    assert [line["samples"] for line in run.metrics] == [BATCH] * STEPS
    assert "shard(num_shards, index)" in (run.folder / "stream.json").read_text()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", NUMBERED)
def test_methods_that_need_numbers_say_which_do_not(method: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 16} if method == "sync_cost" else {}
    if method in ("federated", "dynamic_sync"):
        options = {"concentration": "inf"}
    with pytest.raises(UsageError, match=r"no sample number i, which this method needs: train it by sync_sgd"):
        streamed(method, 4 if method == "hybrid" else 2, options, "lines", tmp_path)


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("by_two_workers", {}, "a stream is read in its order: give 0 or 1"),
        ("endless_test", {}, "test= and validation= have to end: give a map-style Dataset, or arrays"),
        ("nothing", {}, "the IterableDataset yields no sample"),
        ("lines", {"batch": 1}, "--batch 1: a stream's batch needs a sample for each of the 2 ranks"),
    ],
)
def test_a_stream_that_does_not_fit_is_refused(task: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        streamed("sync_sgd", 2, options, task, tmp_path)
