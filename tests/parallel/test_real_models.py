"""Features of real models under the built-in methods, compared with torch in this process."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from farandole import LaunchError, Run, UsageError, launch
from farandole.data.sampler import EpochSampler
from farandole.data.shares import equal_shares, slices
from farandole.runtime import devices
from tests.tasks import real, waves

FILE = Path(real.__file__)
STEPS, LR = 12, 0.2
SAME: dict[str, Any] = {"steps": STEPS, "lr": LR, "batch": waves.TRAIN}
# Each with the number of training ranks, and each rank's local steps.
WITH_STATISTICS: list[tuple[str, int, dict[str, Any], int, int]] = [
    *(("sync_sgd", ranks, {}, ranks, 1) for ranks in (1, 2, 4)),
    ("sync_sgd", 2, {"overlap": True, "bucket_kb": 1}, 2, 1),
    ("horovod_sgd", 2, {}, 2, 1),
    *(("local_sgd", ranks, {"period": 3}, ranks, 3) for ranks in (1, 2, 4)),
    *(("parameter_server", workers + 2, {"sync": "bsp"}, workers, 1) for workers in (1, 2, 4)),
    ("federated", 1, {"clients": 1, "per_round": 1, "epochs": 1, "concentration": "inf"}, 1, 1),
    ("restart", 2, {"optimizer": "sgd"}, 2, 1),
    ("membership", 2, {"optimizer": "sgd"}, 2, 1),
    ("elastic_horovod", 2, {"optimizer": "sgd"}, 2, 1),
    ("backup", 4, {"optimizer": "sgd"}, 4, 1),
    ("layer_split", 2, {"optimizer": "sgd"}, 1, 1),
]


def trained(method: str, ranks: int, options: dict[str, Any], task: str, folder: Path) -> Run:
    return launch(method, ranks, task=f"{FILE}:{task}", out=folder / "run", timeout_s=120, **SAME | options)


def mean(models: Sequence[nn.Module]) -> dict[str, torch.Tensor]:
    """Return the state of a model that is the mean of these; integers are equal in all."""
    states = [model.state_dict() for model in models]
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if first.is_floating_point() else first
        for name, first in states[0].items()
    }


def with_statistics(ranks: int, period: int) -> tuple[list[float], float]:
    """Return each step's loss and the test error; each rank has its part of the set, statistics, and `period` steps."""
    devices.seed_everything(0)
    task = real.normalised()
    first = task.model()
    models = [copy.deepcopy(first) for _ in range(ranks)]
    x, y = map(torch.from_numpy, real.doubled(waves.TRAIN, 0))
    parts = [(x[rows], y[rows]) for rows in slices(equal_shares(len(x), ranks))]
    losses = []
    for step in range(STEPS):
        of_rank = []
        for model, part in zip(models, parts, strict=True):
            loss = task.loss(model, part)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter -= LR * gradient
            of_rank.append(loss.item())
        losses.append(float(np.mean(of_rank)))  # the parts are equal
        if (step + 1) % period == 0:
            average = mean(models)
            for model in models:
                for name, parameter in model.named_parameters():
                    parameter.data.copy_(average[name])
    whole = models[0]
    whole.load_state_dict(mean(models))
    with torch.no_grad():
        return losses, float(real.absolute(whole.eval(), _tensors(waves.TEST, 1)).mean())


def _tensors(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = map(torch.from_numpy, real.doubled(count, seed))
    return x, y


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "ranks", "options", "training", "period"), WITH_STATISTICS)
def test_each_rank_has_its_statistics_and_the_mean_is_judged(
    method: str, ranks: int, options: dict[str, Any], training: int, period: int, tmp_path: Path
) -> None:
    run = trained(method, ranks, options, "normalised", tmp_path)
    losses, error = with_statistics(training, period)
    rel = 1e-5 if method == "federated" else 1e-9  # its clients send float32
    assert [line["loss"] for line in run.metrics] == pytest.approx(losses, rel=rel)
    assert run.summary.test_metrics == {"error": pytest.approx(error, rel=rel)}


@pytest.mark.parametrize("options", [{}, {"precision": "bfloat16"}])
def test_a_spare_takes_over_a_dead_ranks_statistics(options: dict[str, Any], tmp_path: Path) -> None:
    kept = {"spares": 1, "backup_every": 2}
    task = "normalised_in_float32"
    whole = trained("backup", 4, options | kept, task, tmp_path / "whole")
    killed = trained("backup", 4, options | kept | {"fail": "rank=2,step=7"}, task, tmp_path / "killed")
    assert killed.summary.faults
    assert set(killed.summary.params_sha256) == set(whole.summary.params_sha256)
    assert killed.summary.test_metrics == whole.summary.test_metrics


def test_without_a_spare_the_others_keep_their_statistics(tmp_path: Path) -> None:
    run = trained("backup", 4, {"optimizer": "sgd", "fail": "rank=2,step=7"}, "normalised", tmp_path)
    _, error = with_statistics(4, 1)
    assert run.summary.test_metrics == {"error": pytest.approx(error, rel=0.2)}, "other parts, a similar model"


def test_a_spare_that_nobody_kept_anything_for_begins_with_anothers_statistics(tmp_path: Path) -> None:
    """It takes only two steps itself: with a new model's statistics the error would be twice as large."""
    run = trained("membership", 3, {"optimizer": "sgd", "spares": 1, "fail": "rank=1,step=10"}, "normalised", tmp_path)
    _, error = with_statistics(2, 1)
    assert run.summary.test_metrics == {"error": pytest.approx(error, rel=0.1)}


def test_a_restart_has_the_statistics_again(tmp_path: Path) -> None:
    whole = trained("restart", 2, {}, "normalised", tmp_path / "whole")
    with pytest.raises(Exception, match="rank 1"):
        trained("restart", 2, {"fail": "rank=1,step=7", "checkpoint_every": 3}, "normalised", tmp_path)
    again = trained("restart", 2, {"fail": "rank=1,step=7", "checkpoint_every": 3}, "normalised", tmp_path)
    assert again.summary.test_metrics == whole.summary.test_metrics
    assert again.summary.params_sha256 == whole.summary.params_sha256


def test_a_trial_of_a_search_moves_with_its_statistics(tmp_path: Path) -> None:
    options = {"trials": 4, "steps": 24, "spread": 1.5, "batch": 30}
    alone = trained("search", 1, options, "normalised", tmp_path / "alone")
    spread = trained("search", 3, options, "normalised", tmp_path / "spread")
    assert spread.summary.test_metrics == {"error": pytest.approx(alone.summary.test_metrics["error"], rel=1e-9)}
    assert spread.summary.final_loss == pytest.approx(alone.summary.final_loss, rel=1e-9)


@pytest.mark.parametrize(
    ("task", "method", "options", "said"),
    [
        ("normalised_together", "sync_sgd", {}, "the model's 1 is a SyncBatchNorm, which communicates by torch.distr"),
        ("normalised", "parameter_server", {"stop_below": 0.1}, "only the workers know the model's running statistics"),
    ],
)
def test_what_cannot_be_right_is_refused(
    task: str, method: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        trained(method, 3, options, task, tmp_path)


# Methods whose step is one of gradient descent on the whole set, with the tolerance for losses in compression.
IN_FLOAT64: list[tuple[str, int, dict[str, Any], float]] = [
    ("sync_sgd", 2, {}, 1e-9),
    ("sync_sgd", 4, {"overlap": True, "bucket_kb": 1}, 1e-9),
    ("horovod_sgd", 2, {}, 1e-9),
    ("ddp_sgd", 2, {}, 1e-9),
    ("local_sgd", 3, {"period": 1}, 1e-9),
    ("dpsgd", 3, {"topology": "complete", "mix_after_update": True}, 1e-9),
    ("choco_sgd", 1, {}, 1e-9),
    ("parameter_server", 4, {"sync": "bsp"}, 1e-9),
    ("restart", 2, {"optimizer": "sgd"}, 1e-9),
    ("membership", 2, {"optimizer": "sgd"}, 1e-9),
    ("backup", 3, {"optimizer": "sgd"}, 1e-9),
    ("compressed_sgd", 2, {"compressor": "top-k", "fraction": 1.0}, 1e-5),
    ("parameter_server", 4, {"sync": "bsp", "compressor": "float16"}, 1e-2),
]


def descended(name: str) -> tuple[list[float], float]:
    """Return the loss before each step of gradient descent, and the test error after the last, by torch alone."""
    devices.seed_everything(0)
    task = getattr(real, name)()
    model, whole, losses = task.model(), _tensors(waves.TRAIN, 0), []
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=LR)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = task.loss(model, whole)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return losses, float(real.absolute(model.eval(), _tensors(waves.TEST, 1)).mean())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("task", ["double", "transposed"])
@pytest.mark.parametrize(("method", "ranks", "options", "rel"), IN_FLOAT64)
def test_float64_is_trained_as_such(
    method: str, ranks: int, options: dict[str, Any], rel: float, task: str, tmp_path: Path
) -> None:
    run = trained(method, ranks, options, task, tmp_path)
    losses, error = descended(task)
    assert [line["loss"] for line in run.metrics] == pytest.approx(losses, rel=rel)
    assert run.summary.test_metrics == {"error": pytest.approx(error, rel=rel)}


def test_a_kill_changes_nothing_of_it(tmp_path: Path) -> None:
    options = {"optimizer": "sgd", "fail": "rank=2,step=6", "backup_every": 2}
    run = trained("backup", 4, options, "transposed", tmp_path)
    losses, error = descended("transposed")
    assert [line["loss"] for line in run.metrics][7:] == pytest.approx(losses[7:], rel=1e-9)
    assert run.summary.test_metrics == {"error": pytest.approx(error, rel=1e-9)}


FLAT = ["sync_sgd", "local_sgd", "dpsgd", "compressed_sgd", "choco_sgd", "parameter_server", "backup"]
BRAIN = ("brain", "parameter inner.0.weight is bfloat16: parameters must be float32, float64 or float16")
MIXED = ("mixed", "parameter second.weight is float64 and first.weight is float32: one flat vector holds one")


@pytest.mark.one_in(2)  # each method with one of the two
@pytest.mark.parametrize(
    ("method", "task", "said"),
    [(method, *each) for turn, method in enumerate(FLAT) for each in ([BRAIN, MIXED] if turn % 2 else [MIXED, BRAIN])],
)
def test_types_that_cannot_be_added_are_named(method: str, task: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        trained(method, 3 if method == "parameter_server" else 2, {}, task, tmp_path)


def test_horovod_names_a_type_that_it_does_not_add(tmp_path: Path) -> None:
    said = "parameter inner.0.weight is bfloat16, and Horovod adds float32, float64 and"
    with pytest.raises(UsageError, match=said):
        trained("horovod_sgd", 2, {}, "brain", tmp_path)


@pytest.mark.parametrize(("task", "method"), [("mixed", "ddp_sgd"), ("mixed", "horovod_sgd"), ("brain", "ddp_sgd")])
def test_libraries_that_can_train_them(task: str, method: str, tmp_path: Path) -> None:
    run = trained(method, 2, {"steps": 40}, task, tmp_path)
    assert run.metrics[-1]["loss"] < run.metrics[0]["loss"] / 2


# Each with the number of ranks that train; the last of them reads the sample without a target.
NOT_A_NUMBER: list[tuple[str, int, dict[str, Any], int]] = [
    ("sync_sgd", 3, {}, 3),
    ("sync_sgd", 2, {"overlap": True, "bucket_kb": 1}, 2),
    ("sync_sgd", 2, {"background_metrics": True}, 2),
    ("local_sgd", 3, {}, 3),
    ("dpsgd", 3, {}, 3),
    ("push_sum", 2, {}, 2),
    ("central_directions", 2, {}, 2),
    ("horovod_sgd", 2, {}, 2),
    ("ddp_sgd", 2, {}, 2),
    ("parameter_server", 4, {"sync": "bsp"}, 2),
    ("parameter_server", 4, {"sync": "ssp"}, 2),
    ("restart", 2, {}, 2),
    ("membership", 3, {}, 3),
    ("backup", 3, {}, 3),
]


def step_of_the_nan(workers: int, batch: int) -> int:
    """Return the step in which the last worker reads the sample without a target."""
    share = equal_shares(waves.TRAIN, workers)[-1]
    sampler = EpochSampler(share, -(-waves.TRAIN // batch), 0, workers - 1)
    return next(step for step in range(share) if share - (waves.TRAIN - real.NAN_IN) in next(sampler))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "ranks", "options", "workers"), NOT_A_NUMBER)
def test_a_loss_that_is_no_number_is_named_with_rank_and_step(
    method: str, ranks: int, options: dict[str, Any], workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(method, ranks, options | {"batch": 30, "steps": 6}, "with_a_nan", tmp_path)
    step = step_of_the_nan(workers, 30)
    assert step > 0
    assert run.summary.diverged == {"step": step, "rank": ranks - 1}
    [line] = capsys.readouterr().err.strip().splitlines()
    assert f"{method} diverged: the loss of rank {ranks - 1} is not finite at step {step}" in line


@pytest.mark.parametrize("method", ["compressed_sgd", "choco_sgd"])
def test_what_is_no_number_is_not_compressed(method: str, tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as caught:
        trained(method, 2, {"batch": 30}, "with_a_nan", tmp_path)
    [line] = caught.value.message.splitlines()
    assert f"at step {step_of_the_nan(2, 30)} cannot go on" in line
    assert "rank 1" in line


# Methods in which a rank may have no sample in a step, on three workers.
WITH_EMPTY_PARTS: list[tuple[str, int, dict[str, Any]]] = [
    ("sync_sgd", 3, {}),
    ("sync_sgd", 3, {"overlap": True, "bucket_kb": 1}),
    ("horovod_sgd", 3, {}),
    ("ddp_sgd", 3, {}),
    ("local_sgd", 3, {"period": 1}),
    ("parameter_server", 5, {"sync": "bsp"}),
    ("membership", 3, {"optimizer": "sgd"}),
    ("backup", 3, {"optimizer": "sgd"}),
]


def descended_on_few() -> list[float]:
    """Return the loss of each step of gradient descent on the batches of three workers together."""
    devices.seed_everything(0)
    task = real.few()
    model, (x, y) = task.model(), map(torch.from_numpy, waves.waves(real.FEW, 0))
    shares = equal_shares(real.FEW, 3)
    samplers = [EpochSampler(share, 2, 0, worker) for worker, share in enumerate(shares)]
    losses = []
    for _ in range(6):
        rows = np.concatenate([part.start + next(each) for part, each in zip(slices(shares), samplers, strict=True)])
        loss = task.loss(model, (x[rows], y[rows]))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= LR * gradient
        losses.append(loss.item())
    return losses


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("method", "ranks", "options"), WITH_EMPTY_PARTS)
def test_a_rank_without_a_sample_keeps_nobody_waiting(
    method: str, ranks: int, options: dict[str, Any], tmp_path: Path
) -> None:
    run = trained(method, ranks, options | {"batch": 3, "steps": 6}, "few", tmp_path)
    assert [line["samples"] for line in run.metrics] == [3, 2] * 3, "two of three have one, then"
    assert [line["loss"] for line in run.metrics] == pytest.approx(descended_on_few(), rel=1e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["sync_sgd", "ddp_sgd", "local_sgd", "dpsgd", "parameter_server", "backup"])
def test_more_ranks_than_samples_are_refused(method: str, tmp_path: Path) -> None:
    ranks = 8 if method == "parameter_server" else 6
    with pytest.raises(UsageError, match="5 samples are too few for 6 ranks: use at most 5"):
        trained(method, ranks, {"batch": 5}, "few", tmp_path)
