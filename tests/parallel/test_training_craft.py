"""Training beyond the step: rates, decay, evaluation, background metrics, boards, exports."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from farandole import LaunchError, Run, UsageError, launch
from farandole.data import datasets
from farandole.data_parallel import export
from farandole.models.choices import MODELS
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.launcher import run_ranks
from tests.parallel.conftest import is_rank

SMALL: dict[str, Any] = {"steps": 40, "hidden": 16}


def losses(run: Run) -> list[float]:
    return [line["loss"] for line in run.metrics]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_sharded_evaluation_equals_one_process(under_mpirun: Callable[..., Any], ranks: int) -> None:
    assert under_mpirun("evaluated.py", ranks)["sizes"] == 3


def test_the_optimizer_receives_its_options(tmp_path: Path) -> None:
    """Each of them changes the training."""
    plain: dict[str, Any] = {"optimizer": "adam", "lr": 0.01}
    cases = [
        plain,
        plain | {"l2": 0.3},
        plain | {"weight_decay": 0.3},
        *({"optimizer": name, "lr": 0.01} for name in ("sgd", "momentum", "lars", "lars-normalised", "lamb")),
    ]
    runs = [launch("sync_sgd", 2, **SMALL, **case, out=tmp_path / str(n)) for n, case in enumerate(cases)]
    assert len({run.summary.params_sha256[0] for run in runs}) == len(cases)
    assert len({losses(run)[0] for run in runs}) == 1, "the first step has another update, not another loss"
    for run in runs:
        assert len(set(run.summary.params_sha256)) == 1


def test_a_rate_that_warms_up_and_falls_is_the_same_on_all_ranks(tmp_path: Path) -> None:
    options = {"batch": 128, "lr_batch": 64, "lr": 0.2, "warm_up": 5, "lr_schedule": "cosine"}
    run = launch("sync_sgd", 3, **SMALL, **options, out=tmp_path / "run")
    rates = [line["lr"] for line in run.metrics]
    assert rates[:5] == pytest.approx([0.08, 0.16, 0.24, 0.32, 0.4])
    assert max(rates) == rates[5] == pytest.approx(0.4)
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert len(set(run.summary.params_sha256)) == 1


@pytest.mark.parametrize("scenario", ["sync_sgd", "local_sgd"])
def test_a_rate_that_follows_the_loss_is_the_same_on_all_ranks(scenario: str, tmp_path: Path) -> None:
    """At such a large rate nothing is learned, and the rate falls."""
    run = launch(scenario, 3, steps=130, hidden=16, lr=8.0, lr_schedule="plateau", out=tmp_path / "run")
    rates = [line["lr"] for line in run.metrics]
    assert rates[0] == 8.0
    assert rates[-1] in [pytest.approx(0.8), pytest.approx(0.08), pytest.approx(0.008)]
    assert rates == sorted(rates, reverse=True)
    changes = [step for step in range(1, 130) if rates[step] != rates[step - 1]]
    assert all(step % 10 == 0 for step in changes), "after an exchange of losses"
    assert len(set(run.summary.params_sha256)) == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("more", [{}, {"overlap": True, "bucket_kb": 4}])
def test_background_metrics_have_the_same_values(ranks: int, more: dict[str, Any], tmp_path: Path) -> None:
    options = {"steps": 33, "hidden": 16, **more}
    between = launch("sync_sgd", ranks, **options, out=tmp_path / "between")
    beside = launch("sync_sgd", ranks, **options, background_metrics=True, out=tmp_path / "beside")
    assert losses(between) == losses(beside)
    assert [line["samples"] for line in between.metrics] == [line["samples"] for line in beside.metrics]
    assert between.summary.params_sha256 == beside.summary.params_sha256
    assert beside.summary.final_loss == losses(beside)[-1]
    assert between.summary.bytes_sent == beside.summary.bytes_sent


@pytest.mark.parametrize("scenario", ["ddp_sgd", "horovod_sgd"])
def test_background_metrics_work_with_horovod_and_ddp(scenario: str, tmp_path: Path) -> None:
    run = launch(scenario, 2, steps=25, hidden=16, background_metrics=True, export=True, out=tmp_path / "run")
    assert [line["step"] for line in run.metrics] == list(range(25))
    assert accuracy_of_export(run) == run.summary.test_accuracy


def test_a_death_ends_all_ranks_while_a_metrics_thread_waits(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="rank 1 at step 15 was killed"):
        launch(
            "local_sgd", 3, **SMALL, once=True, background_metrics=True, fail=["rank=1,step=15,how=kill"],
            out=tmp_path / "run",
        )  # fmt: skip


def test_a_stop_signal_ends_the_training_in_order(tmp_path: Path) -> None:
    """One rank is signalled, all stop after the same step; copies that differ are averaged before."""
    out = tmp_path / "run"
    words = ["--steps", "100000", "--hidden", "16", "--period", "7", "--alpha", "0.5", "--out", str(out)]
    command = [sys.executable, "-m", "farandole", "run", "local_sgd", "-n", "3", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 180
    while not ((out / "metrics.jsonl").exists() and (out / "metrics.jsonl").read_text()):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ranks = [each for each in psutil.Process(process.pid).children(recursive=True) if is_rank(each)]
    assert len(ranks) == 3
    ranks[2].send_signal(signal.SIGUSR1)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 0, said
    run = Run.open(out)
    assert 0 < run.summary.steps < 100000
    assert [line["step"] for line in run.metrics] == list(range(run.summary.steps))
    assert len(set(run.summary.params_sha256)) == 1
    assert run.summary.final_loss == losses(run)[-1]


def test_a_plateau_schedule_with_background_metrics_is_refused() -> None:
    with pytest.raises(UsageError, match="--lr-schedule plateau goes without --background-metrics"):
        run_ranks(["-m", "farandole.scenarios.sync_sgd", "--lr-schedule", "plateau", "--background-metrics"], 1)


def test_tensorboard_shows_the_records_values(tmp_path: Path) -> None:
    run = launch("sync_sgd", 2, steps=25, hidden=16, tensorboard=tmp_path / "boards", out=tmp_path / "run")
    events = shown_on(tmp_path / "boards" / "run")
    shown = events.Scalars("loss")
    assert [each.step for each in shown] == [line["step"] for line in run.metrics]
    assert [each.value for each in shown] == [np.float32(loss) for loss in losses(run)]
    passed = [each.wall_time - shown[0].wall_time for each in shown]
    wall_s = [line["wall_s"] - run.metrics[0]["wall_s"] for line in run.metrics]
    assert passed == pytest.approx(wall_s, abs=0.05)
    [judged] = events.Scalars("test_accuracy")
    assert judged.value == np.float32(run.summary.test_accuracy)


def test_a_continued_run_continues_its_board(tmp_path: Path) -> None:
    """Repeated steps are shown once; another rank may show what a dead one cannot."""
    options: dict[str, Any] = {"tensorboard": tmp_path / "boards", "steps": 30}
    restart = options | {"checkpoint_every": 10, "fail": ["rank=1,step=17,how=kill"], "out": tmp_path / "restart"}
    with pytest.raises(LaunchError, match="rank 1 at step 17"):
        launch("restart", 2, **restart)
    runs = [
        launch("restart", 2, **restart),
        launch("membership", 3, **options, fail=["rank=0,step=17,how=kill"], out=tmp_path / "membership"),
    ]
    for run in runs:
        shown = shown_on(tmp_path / "boards" / run.folder.name).Scalars("loss")
        assert sorted(each.step for each in shown) == list(range(30))
        assert {each.step: each.value for each in shown} == {
            line["step"]: np.float32(line["loss"]) for line in run.metrics
        }


def shown_on(board: Path) -> EventAccumulator:
    events = EventAccumulator(str(board))
    events.Reload()
    return events


def test_a_board_that_cannot_be_written_leaves_the_record_complete(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        launch("sync_sgd", 2, **SMALL, tensorboard=tmp_path / "file", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def accuracy_of_export(run: Run) -> float:
    """On the test samples, by the exported program alone."""
    test = datasets.split(datasets.load(run.config["data"]), run.config["seed"]).test
    guesses = export.read(run.folder)(torch.from_numpy(test.inputs)).argmax(dim=-1).numpy()
    return float((guesses == test.targets).mean())


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "options",
    [
        {"hidden": 16},
        {"model": "cnn", "hidden": 8, "precision": "bfloat16"},
        {"data": "pydoc", "model": "transformer", "hidden": 16, "depth": 1, "batch": 16},
    ],
)
def test_an_exported_model_predicts_as_the_trained_one(options: dict[str, Any], tmp_path: Path) -> None:
    run = launch("sync_sgd", 2, steps=20, **options, export=True, out=tmp_path / "run")
    assert accuracy_of_export(run) == pytest.approx(run.summary.test_accuracy, abs=1e-9)
    with pytest.raises(UsageError, match="run the scenario with --export"):
        export.read(tmp_path)


WITHOUT_THE_PROJECT = """
import sys

sys.modules["farandole"] = None  # whoever asks for it gets an ImportError
import torch

torch.set_num_threads(1)
for file, samples, logits in zip(*[iter(sys.argv[1:])] * 3):
    torch.save(torch.export.load(file).module()(torch.load(samples)), logits)
"""


def test_an_exported_model_predicts_bitwise_without_this_package(tmp_path: Path) -> None:
    threads, expected, files = torch.get_num_threads(), [], []
    torch.set_num_threads(1)  # as over there: on another number sums may be rounded otherwise
    for kind, data, count in (("mlp", "digits", 5), ("cnn", "digits", 1), ("transformer", "pydoc", 3)):
        folder = tmp_path / kind
        folder.mkdir()
        samples = datasets.split(datasets.load(data), seed=0).test[:5].inputs
        model = MODELS[kind](datasets.shape(data), datasets.classes(data), 16, 2)
        FlatBuffers(model)
        asked = torch.from_numpy(samples[:count])
        torch.save(asked, folder / "samples")
        files += [export.write(model, samples[:2], folder), folder / "samples", folder / "logits"]
        with torch.no_grad():
            expected.append(model.eval()(asked))
    torch.set_num_threads(threads)
    subprocess.run([sys.executable, "-c", WITHOUT_THE_PROJECT, *map(str, files)], check=True, timeout=120)
    assert all(map(torch.equal, map(torch.load, files[2::3]), expected))
