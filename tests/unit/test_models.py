"""Models as the options name them: with the requested depth, and refused where they cannot read the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from farandole.data import datasets
from farandole.errors import UsageError
from farandole.models.choices import MODELS, READERS, build, check
from farandole.models.options import TrainingOptions
from farandole.runtime.buffers import sha256
from farandole.runtime.command_line import parse
from farandole.scenarios.sync_sgd import Config

FITTING = [("digits", "mlp"), ("digits", "cnn"), ("mnist5k", "mlp"), ("mnist5k", "cnn"), ("pydoc", "transformer")]


@pytest.mark.parametrize(("data", "model"), FITTING)
def test_a_model_answers_in_the_shape_of_the_targets(data: Any, model: Any) -> None:
    samples = datasets.load(data)[slice(0, 3)]
    logits = build(TrainingOptions(data=data, model=model, hidden=16))(torch.from_numpy(samples.inputs))
    assert logits.shape == (*samples.targets.shape, datasets.classes(data))


@pytest.mark.parametrize("data", datasets.NAMES)
@pytest.mark.parametrize("model", MODELS)
def test_what_does_not_fit_is_refused_and_what_would_is_named(data: Any, model: Any) -> None:
    options = TrainingOptions(data=data, model=model)
    if (data, model) in FITTING:
        check(options)
        return
    with pytest.raises(UsageError) as refused:
        check(options)
    message = str(refused.value)
    assert message.startswith(f"--model {model} reads ")
    assert "\n" not in message
    advised = [name for name in MODELS if name in message.split("give --model ")[1].split(",")[0].split(" or ")]
    assert advised == [fitting for of_data, fitting in FITTING if of_data == data]
    advised = [name for name in datasets.NAMES if name in message.split("--data ")[-1].split(" or ")]
    assert advised == [fitting for fitting, of_model in FITTING if of_model == model]


def test_every_model_reads_something() -> None:
    assert sorted(name for models in READERS.values() for name in models) == sorted(MODELS)


@pytest.mark.parametrize("words", [["--hidden", "100"], ["--hidden", "8"]])
def test_widths_that_are_no_whole_number_of_heads_are_refused(words: list[str]) -> None:
    check(parse(Config, words))  # the perceptron may be as wide as one likes
    with pytest.raises(UsageError, match=f"--hidden {words[1]}: the transformer's heads are 16 wide"):
        check(parse(Config, ["--data", "pydoc", "--model", "transformer", *words]))


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_depth_counts_the_hidden_layers_of_the_perceptron(depth: int) -> None:
    linears = [layer for layer in build(TrainingOptions(hidden=20, depth=depth)) if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in linears] == [20] * depth + [10]


@pytest.mark.parametrize(("data", "most"), [("digits", 3), ("mnist5k", 4)])
def test_depth_counts_the_convolutions(data: Any, most: int) -> None:
    for depth in range(1, most + 1):
        model = build(TrainingOptions(data=data, model="cnn", depth=depth))
        channels = [layer.out_channels for layer in model if isinstance(layer, nn.Conv2d)]
        assert channels == [16, 32, 64, 128][:depth]
        assert model(torch.rand(2, *datasets.shape(data))).shape == (2, 10)
    with pytest.raises(UsageError, match=f"can be halved {most} times at most"):
        check(TrainingOptions(data=data, model="cnn", depth=most + 1))


BY_HAND: dict[str, Callable[[], nn.Sequential]] = {
    "mlp": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    ),
    "cnn": lambda: nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    ),
}


@pytest.mark.parametrize("model", BY_HAND)
def test_the_usual_models_are_these_bit_for_bit(model: Any) -> None:
    torch.manual_seed(4)
    built = build(TrainingOptions(data="mnist5k", model=model))
    torch.manual_seed(4)
    assert sha256(built) == sha256(BY_HAND[model]())
    assert str(built) == str(BY_HAND[model]())


@pytest.mark.parametrize(("data", "model"), FITTING)
@pytest.mark.parametrize(("hidden", "depth"), [(16, 1), (160, 2), (320, 4)])
def test_the_memory_of_a_model_is_bounded_from_below(data: Any, model: Any, hidden: int, depth: int) -> None:
    options = TrainingOptions(data=data, model=model, hidden=hidden, depth=min(depth, 3) if model == "cnn" else depth)
    needed = 2 * sum(each.nbytes for each in build(options).parameters())
    assert options.least_bytes() <= needed
    if model != "cnn" and (hidden, depth) == (320, 4):
        assert options.least_bytes() > 0.5 * needed
