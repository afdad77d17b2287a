"""The built-in tasks: models, data, losses and metrics match each other; methods know none of them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import farandole
from farandole import tasks
from farandole.errors import UsageError
from farandole.model_parallel.options import ModelParallelOptions
from farandole.models import operations
from farandole.models.options import TrainingOptions
from farandole.tasks import Task

FITTING = [("digits", "mlp"), ("mnist5k", "cnn"), ("pydoc", "transformer")]
# Rooms whose methods train any task.
METHODS = (
    "compression",
    "data_parallel",
    "decentralised",
    "federated",
    "model_parallel",
    "parameter_server",
    "recovery",
)
KNOWS = {"load", "build", "cross_entropy", "mean_cross_entropy"}
# The loss of logits divided by class is a separate method.
DIVIDED = {"model_parallel/parts.py", "model_parallel/tensor/cross_entropy.py"}


@pytest.mark.parametrize(("data", "model"), FITTING)
def test_a_tasks_parts_fit_each_other(data: Any, model: Any) -> None:
    task = tasks.built_in(TrainingOptions(data=data, model=model, hidden=16))
    samples = task.data(0).train[slice(0, 4)]
    batch, its_model = samples.on(torch.device("cpu"))[np.arange(4)], task.model()
    outputs, targets = its_model(batch[0]), batch[1]
    assert samples.inputs.shape[1:] == task.shape
    assert outputs.shape == (*targets.shape, task.classes)
    assert task.is_text == (data == "pydoc")
    assert 0 < task.loss(its_model, batch).item() < 10
    assert task.metrics["accuracy"](its_model, batch).shape == targets.shape


def test_the_same_seed_gives_the_same_samples() -> None:
    task = tasks.of(TrainingOptions())
    one, again, other = (task.data(seed).test.inputs for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_the_loss_of_no_sample_is_0_and_moves_nothing() -> None:
    none, linear = (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)), nn.Linear(2, 3)
    own = Task(lambda: linear, none, none, loss=lambda model, batch: model(batch[0]).mean())  # nan of no sample
    for loss in (tasks.classification, own.loss):
        linear.zero_grad()
        value = loss(linear, none)
        value.backward()
        assert value.item() == 0
        assert linear.weight.grad is not None
        assert not linear.weight.grad.any()


def test_the_metric_judges_each_target() -> None:
    logits = torch.tensor([[[0.1, 0.9], [0.8, 0.2]], [[0.3, 0.7], [0.4, 0.6]]])
    right = tasks.is_right(nn.Identity(), (logits, torch.tensor([[1, 1], [1, 1]])))
    assert right.tolist() == [[True, False], [True, True]]


def test_a_model_that_cannot_read_the_data_is_refused() -> None:
    with pytest.raises(UsageError, match="--model transformer reads text"):
        tasks.of(TrainingOptions(model="transformer"))


def test_a_text_has_the_length_that_is_asked_for() -> None:
    text = {"data": "pydoc", "model": "transformer", "hidden": 16, "depth": 1}
    assert ModelParallelOptions(**text).sample_shape() == TrainingOptions(**text).sample_shape() == (64,)
    options = ModelParallelOptions(**text, context=100)
    task = tasks.of(options)
    inputs, _ = task.data(0).train.on(torch.device("cpu"))[np.arange(2)]
    assert inputs.shape == (2, 100)
    outputs = task.model()(inputs)
    assert outputs.shape == (2, 100, task.classes)
    assert options.flops_per_sample() == 3 * operations.transformer((100,), task.classes, 16, 1)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "--context 100 is the length of a text: give --data pydoc --model transformer, or leave it out"),
        ({"task": "tests/tasks/letters.py"}, "--task brings its own model and data: leave out --context"),
    ],
)
def test_what_is_no_text_of_ours_has_no_context(given: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        tasks.of(ModelParallelOptions(context=100, **given))


def test_methods_know_no_data_set_and_no_loss() -> None:
    package = Path(farandole.__file__).parent
    for path in (path for room in METHODS for path in (package / room).rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if path.name == "minimal.py":  # a whole training in one file
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in ("farandole.data.datasets", "farandole.tasks"):
                assert not {each.name for each in node.names} & KNOWS, name
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.nn"):
                assert name in DIVIDED or not {each.name for each in node.names} & KNOWS, name
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "datasets":
                assert node.attr not in {"load", "split", "classes", "shape"}, f"{name}: datasets.{node.attr}"
