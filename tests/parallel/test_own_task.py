"""A user's own model, data, loss and metric under every method, compared with plain gradient descent in this process.

The batch is the whole training set, so that a step is the same on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from farandole import Run, UsageError, launch, methods, own_task, train
from farandole.cli import tour
from farandole.data import batch as batches
from farandole.data.samples import Reader
from farandole.methods import METHODS, Stop
from farandole.report import tour as tour_page
from farandole.runtime import devices
from tests.parallel.test_cli import Command, farandole
from tests.tasks import waves

FILE = Path(waves.__file__)
STEPS, LR, DEATH = 8, 0.2, 5
SAME: dict[str, Any] = {"steps": STEPS, "lr": LR, "batch": waves.TRAIN}
# Methods whose step is one of gradient descent if the batch is the whole set; each with ranks and options.
PROMISED: list[tuple[str, int, dict[str, Any]]] = [
    ("sync_sgd", 3, {}),
    ("sync_sgd", 2, {"overlap": True, "bucket_kb": 1, "accumulate": 3}),
    ("sync_sgd", 2, {"collective": "window", "background_metrics": True}),
    ("horovod_sgd", 2, {"accumulate": 3}),
    ("ddp_sgd", 2, {"accumulate": 3}),
    ("sharded", 3, {"optimizer": "sgd", "accumulate": 3}),
    ("fsdp_sgd", 3, {"optimizer": "sgd", "accumulate": 3}),
    ("local_sgd", 3, {"period": 1, "accumulate": 2}),
    ("diloco", 2, {"optimizer": "sgd", "weight_decay": 0.0, "period": 1, "outer_lr": 1.0, "outer_momentum": 0.0}),
    ("elastic_diloco", 2, {"optimizer": "sgd", "period": 1, "outer_lr": 1.0, "outer_momentum": 0.0}),
    ("agnostic_sgd", 2, {"accumulate": 3}),
    ("central_directions", 2, {"own_weight": 0.0, "accumulate": 3}),
    ("parameter_server", 4, {"sync": "bsp", "servers": 2, "accumulate": 6}),
    ("federated", 2, {"clients": 4, "per_round": 4, "epochs": 1, "concentration": "inf"}),
    ("restart", 2, {"optimizer": "sgd"}),
    ("membership", 3, {"optimizer": "sgd", "fail": f"rank=1,step={DEATH}", "accumulate": 3}),
    ("backup", 3, {"optimizer": "sgd", "fail": f"rank=2,step={DEATH}", "backup_every": 2}),
    ("elastic_horovod", 2, {"optimizer": "sgd", "accumulate": 3}),
]
PIPELINED: list[tuple[str, int, dict[str, Any]]] = [
    ("layer_split", 3, {}),
    ("pipeline", 2, {"micro_batches": 4}),
    ("hybrid", 4, {"pipeline_ranks": 2, "micro_batches": 2}),
    ("hybrid", 2, {"pipeline_ranks": 1, "shard_optimizer": True}),
]
# Other methods; their loss has to fall.
OTHERS: list[tuple[str, int, dict[str, Any]]] = [
    ("sync_sgd", 2, {"precision": "bfloat16", "accumulate": 3}),
    ("compressed_sgd", 2, {"compressor": "top-k", "accumulate": 3}),
    ("dpsgd", 3, {"topology": "complete", "accumulate": 2}),
    ("push_sum", 2, {"accumulate": 3}),
    ("ad_psgd", 3, {"accumulate": 2}),
    ("choco_sgd", 2, {"accumulate": 3}),
    ("dynamic_sync", 2, {"batch": 30}),
    ("parameter_server", 3, {"sync": "ssp", "batch": 30}),
    ("downpour", 3, {"lr": 0.05, "batch": 30}),
    ("search", 2, {"trials": 4}),
    ("sync_cost", 2, {"batch": 30, "methods": ("ring", "top-k"), "calibration_steps": 5}),
]
OF_ITS_OWN = {
    *("small_network", "hybrid_parameters", "online", "adaptive"),
    *("tensor_split", "context_parallel", "expert_parallel", "grid"),
}


def descended(name: str) -> tuple[list[float], dict[str, float]]:
    """Return the loss before each step of gradient descent, and the metrics after the last, by torch alone."""
    task = getattr(waves, name)()
    devices.seed_everything(0)
    model, losses = task.model(), []
    train, test = (_whole(part) for part in (task.data(0).train, task.data(0).test))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = task.loss(model, train)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        metrics = {name: float(torch.as_tensor(metric(model, test)).mean()) for name, metric in task.metrics.items()}
    return losses, metrics


def _whole(samples: Any) -> Any:
    reader: Reader = samples.on(torch.device("cpu"))
    return reader[np.arange(len(samples))]


def trained(method: str, ranks: int, options: dict[str, Any], name: str, folder: Path) -> Run:
    name = "in_micro_batches" if "accumulate" in options else name
    return launch(method, ranks, task=f"{FILE}:{name}", out=folder / "run", timeout_s=120, **SAME | options)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "ranks", "options"), PROMISED)
def test_it_is_gradient_descent(method: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    run = trained(method, ranks, options, "task", tmp_path)
    losses, metrics = descended("task")
    found = [line["loss"] for line in run.metrics]
    first = DEATH + 1 if "fail" in options else 0  # the dead rank's part of the earlier losses is lost
    assert found[first:] == pytest.approx(losses[first:], rel=1e-4)
    assert len(found) == STEPS
    assert run.summary.test_accuracy is None
    assert run.summary.test_metrics == {name: pytest.approx(value, rel=1e-4) for name, value in metrics.items()}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "ranks", "options"), PIPELINED)
def test_a_pipeline_is_too(method: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    run = trained(method, ranks, options | {"optimizer": "sgd"}, "pairs", tmp_path)
    losses, metrics = descended("pairs")
    assert [line["loss"] for line in run.metrics] == pytest.approx(losses, rel=1e-4)
    assert run.summary.test_metrics == {"error": pytest.approx(metrics["error"], rel=1e-4)}


def test_a_pipeline_takes_arrays(tmp_path: Path) -> None:
    run = trained("pipeline", 2, {"optimizer": "sgd"}, "without_metric", tmp_path)
    losses, metrics = descended("without_metric")
    assert [line["loss"] for line in run.metrics] == pytest.approx(losses, rel=1e-4)
    assert run.summary.test_metrics == {"loss": pytest.approx(metrics["loss"], rel=1e-4)}
    assert run.summary.memory, "counted by formula too"


@pytest.mark.parametrize(("method", "options"), [("search", {}), ("parameter_server", {"stop_below": 0.1})])
def test_choosing_needs_validation_samples(method: str, options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give the task validation="):
        trained(method, 3, options, "task", tmp_path)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "ranks", "options"), OTHERS)
def test_it_learns(method: str, ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    run = trained(method, ranks, {"steps": 40} | options, "searched" if method == "search" else "task", tmp_path)
    untrained, _ = descended("task")
    assert run.summary.final_loss is not None
    assert run.summary.final_loss < untrained[0] / 2


def test_every_method_is_tried_or_refuses() -> None:
    tried = {method for method, _, _ in (*PROMISED, *PIPELINED, *OTHERS)}
    assert tried | OF_ITS_OWN == set(METHODS)


def test_each_rank_reads_its_share_only(tmp_path: Path) -> None:
    samples = waves.Listed(waves.TRAIN, 0)
    task = waves.pairs()
    shard = task.data(0).train[slice(30, 60)]
    reader = shard.on(torch.device("cpu"))
    seen, following = reader[np.array([0, 29])]
    assert torch.equal(seen, samples.seen[[30, 59]])
    assert torch.equal(following, samples.following[[30, 59]])
    assert task.train.asked == {30, 59}
    empty = reader[np.array([], np.intp)]
    assert [tuple(part.shape) for part in batches.leaves(empty)] == [(0, waves.SEEN), (0, 1)]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("missing", "has no function missing(), which returns a Task"),
        ("not_a_task", "not_a_task returned dict, and should return a farandole.Task"),
        ("fails", "ZeroDivisionError: nothing to divide by"),
        ("text_samples", "samples must be arrays, a tuple or dict of them, or a Dataset of torch, and are str"),
        ("unequal", "arrays of samples must have the same length, and have [120, 119]"),
        ("both", "a task has a loss or a criterion: leave out one of them"),
        ("vector_loss", "the task's loss must be the mean over the batch, a scalar tensor, and is a tensor of shape"),
        ("no_module", "the task's model() returned function, and should return an nn.Module"),
        ("few", "--batch 64: must be from 1 to the 3 training samples"),
        ("strange_metric", "the task's metric 'answer' must be a number or a tensor, and is str"),
    ],
)
def test_a_mistake_is_named_in_one_line(function: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        launch("sync_sgd", 2, task=f"{FILE}:{function}", steps=2, out=tmp_path / "run")
    [line] = str(refused.value).splitlines()
    assert said in line


def test_a_mistake_ends_the_command_with_its_line(tmp_path: Path) -> None:
    done = farandole("run", "sync_sgd", "-n", "2", "--task", f"{FILE}:fails", "--steps", "2", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.strip().splitlines()
    assert "ZeroDivisionError: nothing to divide by" in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": "nowhere.py"}, "there is no file nowhere.py; farandole new task my_task.py writes one"),
        ({"task": "nowhere"}, "give a file as my_task.py, or a function as package.module:function"),
        ({"task": FILE, "hidden": 16}, "--task brings its own model and data: leave out --hidden"),
        ({"task": FILE, "loading": "files"}, "--task brings its own model and data: leave out --loading"),
    ],
)
def test_what_does_not_go_with_it_is_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        launch("sync_sgd", 2, **options, out=tmp_path / "run")
    assert said in str(refused.value)


@pytest.mark.parametrize("method", sorted(OF_ITS_OWN - {"small_network", "tensor_split"}))
def test_a_method_with_data_of_its_own_refuses(method: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trains no --task"):
        launch(method, 4 if method == "online" else 2, task=str(FILE), out=tmp_path / "run")


def test_a_loss_without_criterion_cannot_be_cut(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in a pipeline no rank has both the inputs and the targets"):
        trained("pipeline", 2, {}, "task", tmp_path)


def test_a_module_can_be_named_and_its_task_is_made_once() -> None:
    assert own_task.load("tests.tasks.waves:pairs") is own_task.load("tests.tasks.waves:pairs")
    with pytest.raises(UsageError, match="ModuleNotFoundError"):
        own_task.load("tests.tasks.nowhere:task")


def test_a_new_task_runs_and_is_compared(command: Command, tmp_path: Path) -> None:
    assert command("new", "task", "mine.py", cwd=tmp_path).returncode == 0
    again = command("new", "task", "mine.py", cwd=tmp_path)
    assert (again.returncode, "exists, and is left as it is" in again.stderr) == (2, True)
    words = ["sync_sgd", "ssp", "-n", "3", "--task", "mine.py", "--steps", "5"]
    done = command("compare", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "error" in done.stdout
    assert "accuracy" not in done.stdout


def test_a_program_trains_by_two_methods_on_its_own_ranks(under_mpirun: Callable[..., Any], tmp_path: Path) -> None:
    found = under_mpirun("own_program.py", 3, str(tmp_path))
    assert found["sync_sgd"] == pytest.approx(found["parameter_server"], rel=1e-4), "the batch is the whole set"
    assert found["sync_sgd"][-1] < found["sync_sgd"][0]
    assert Run.open(tmp_path / "sync_sgd").config["task"] == "given: a task of your own"


def test_a_program_cannot_train_by_a_method_that_starts_its_workers() -> None:
    with pytest.raises(UsageError, match="starts its workers itself"):
        train("elastic_horovod", waves.task())


def test_the_tour_leaves_out_what_cannot_train_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stops = [("sync_sgd", Stop("ring all-reduce", "the ring")), ("pipeline", Stop("pipeline", "in stages"))]
    monkeypatch.setattr(methods, "stops", lambda: stops)
    monkeypatch.setattr(tour_page, "CONDITIONS", {"even": {}})
    tour.tour(out=tmp_path / "tour", steps=21, task=str(FILE), lr=0.2)
    assert "pipeline is left out: a task of your own: in a pipeline" in capsys.readouterr().out
    page = (tmp_path / "tour" / "index.html").read_text()
    assert '<th scope="col">error</th><th scope="col">squared</th>' in page
    assert "pipeline is left out: a task of your own" in page
    with pytest.raises(UsageError, match="--batch and --lr are for a task of your own"):
        tour.tour(out=tmp_path / "tour", lr=0.2)
