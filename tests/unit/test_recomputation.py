"""Recomputation keeps the gradients, to the bit, and takes the stated memory and operations."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.overrides import TorchFunctionMode

from farandole.cost.memory import Numbers, by_stage
from farandole.cost.training_plan import TrainingPlan
from farandole.errors import UsageError
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.memory import ActivationMeter
from farandole.model_parallel.stage import Stage
from farandole.models.recomputation import recompute, unfuse
from farandole.models.shape import Shape
from farandole.models.training_state import BytesPerParameter
from farandole.models.transformer import Block, transformer
from farandole.runtime.command_line import parse, to_arguments
from farandole.scenarios import hybrid, pipeline, sharded, tensor_split

SAMPLES, CONTEXT, WIDTH, HEADS, SYMBOLS, BLOCKS = 2, 32, 32, 2, 11, 3


class Products(TorchFunctionMode):
    """Counts the operations of matrix products in its block."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if function.__name__ in ("linear", "matmul", "__matmul__"):
            self.count += 2 * found.numel() * args[0].shape[-1]
        return found


class Dropping(Block):
    """A block that draws random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.3)


def model_of(what: str, watching: Any = nullcontext, unfused: bool = True, dropping: bool = False) -> Any:
    torch.manual_seed(0)
    model = transformer((CONTEXT,), SYMBOLS, WIDTH, BLOCKS).double()
    for block in model[1:-1]:
        block.__class__ = Dropping if dropping else Block
    if unfused:
        unfuse(model)
    recompute(model, what, watching)  # type: ignore[arg-type]
    return model


def backward(model: nn.Module, watching: Any = nullcontext) -> list[Tensor]:
    """The gradients of all parameters, and the random number that follows."""
    characters = torch.arange(SAMPLES * CONTEXT).view(SAMPLES, CONTEXT) % SYMBOLS
    with watching():
        loss = cross_entropy(model(characters).flatten(0, 1), characters.flatten())
    loss.backward()
    return [*(each.grad for each in model.parameters() if each.grad is not None), torch.rand(1)]


@pytest.mark.parametrize("dropping", [False, True])
@pytest.mark.parametrize("unfused", [False, True])
def test_gradients_are_the_same_to_the_bit_with_the_same_random_numbers(unfused: bool, dropping: bool) -> None:
    expected = backward(model_of("none", unfused=unfused, dropping=dropping))
    assert len(expected) > 40
    for what in ("selective", "full"):
        found = backward(model_of(what, unfused=unfused, dropping=dropping))
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True)), what


def test_a_region_uses_the_parameters_of_its_forward_pass() -> None:
    """Of PipeDream's versions, for instance: those passed in by functional_call."""
    block, x = Block(WIDTH, HEADS), torch.randn(1, 4, WIDTH, requires_grad=True)
    given = {name: torch.randn_like(each).requires_grad_() for name, each in block.named_parameters()}
    gradients = []
    for what in ("none", "full"):
        recompute(block, what)  # type: ignore[arg-type]
        found = torch.func.functional_call(block, given, (x,)).sum()
        gradients.append(torch.autograd.grad(found, [x, *given.values()]))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert all(each.grad is None for each in block.parameters())


@pytest.mark.parametrize("unfused", [False, True])
def test_memory_is_that_of_the_formula_and_of_the_calculator(unfused: bool) -> None:
    each = BytesPerParameter(8, 8, 0)
    shape = Shape(layers=BLOCKS, hidden=WIDTH, heads=HEADS, sequence=CONTEXT, vocabulary=SYMBOLS, tied=False)
    measured = {}
    with torch.device("meta"):
        layers = transformer((CONTEXT,), SYMBOLS, WIDTH, BLOCKS).double()
        inputs = torch.empty((SAMPLES, CONTEXT), dtype=torch.int64)
    for what in ("none", "selective", "full"):
        meter = ActivationMeter(())
        model = model_of(what, meter.watching, unfused)
        meter.ignore(model.parameters())
        backward(model, meter.watching)
        kept = footprint(layers, inputs, loss=True, recompute=what, fused=not unfused)  # type: ignore[arg-type]
        assert kept
        held = inputs.nbytes  # by the batch's owner
        assert meter.most + held == pytest.approx(kept.activations + kept.again, rel=0.01)
        plan = TrainingPlan(micro_batch=SAMPLES, recompute=what)  # type: ignore[arg-type]
        [calculated] = by_stage(shape, plan, Numbers(each, 8, fused=not unfused, dropout=False))
        assert meter.most == pytest.approx(calculated.activations, rel=0.1), what
        measured[what] = meter.most
    square = SAMPLES * HEADS * CONTEXT * (CONTEXT if unfused else 1) * 8
    assert measured["none"] - measured["selective"] == pytest.approx(BLOCKS * square, rel=0.1)
    assert measured["full"] < 0.5 * measured["selective"]


@pytest.mark.parametrize("what", ["none", "selective", "full"])
def test_operations_are_those_of_the_record(what: str) -> None:
    forward, again = Products(), Products()
    backward(model_of(what, lambda: again), lambda: forward)
    options = parse(pipeline.Config, ["--model", "transformer", "--data", "pydoc", "--recompute", what])
    context, positions, per_position = 64, SAMPLES * CONTEXT, 24 * WIDTH**2 + 4 * CONTEXT * WIDTH
    of_block = {"none": 0, "selective": 4 * CONTEXT * WIDTH, "full": per_position}[what]
    assert forward.count == positions * (BLOCKS * per_position + 2 * WIDTH * SYMBOLS)
    assert again.count == positions * BLOCKS * of_block
    large = {"none": 0, "selective": 4 * context * 128, "full": 24 * 128**2 + 4 * context * 128}[what]
    assert options.recomputed_flops_per_sample() == context * 2 * large


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "none"),
        (["--recompute"], "stage"),
        (["--recompute", "--steps", "3"], "stage"),
        (["--recompute", "full"], "full"),
        (["--recompute=selective"], "selective"),
        (["--no-recompute"], "none"),
        (to_arguments({"recompute": True}), "stage"),
        (to_arguments({"recompute": False, "steps": 3}), "none"),
    ],
)
def test_the_bare_option_is_the_former_one(words: list[str], expected: str) -> None:
    assert parse(pipeline.Config, words).recompute == expected


def test_a_stage_is_computed_again_with_all_its_layers() -> None:
    options = parse(hybrid.Config, ["--recompute"])
    assert options.recomputed_flops_per_sample() == 2 * (64 * 128 + 128 * 128 + 128 * 10)


@pytest.mark.parametrize(
    ("config", "words", "says"),
    [
        (pipeline.Config, ["--recompute", "full"], "give --model transformer --data pydoc, or --recompute stage"),
        (sharded.Config, ["--recompute", "full"], "--recompute full is for the blocks of the small transformer"),
        (tensor_split.Config, ["--unfused-attention"], "--unfused-attention is for the blocks of"),
        (sharded.Config, ["--recompute", "stage"], 'Choose from: "none", "selective", "full"'),
        (sharded.Config, ["--recompute"], "--recompute"),
    ],
)
def test_what_has_no_such_parts_is_refused(config: Any, words: list[str], says: str) -> None:
    with pytest.raises(UsageError) as told:
        parse(config, words).recomputed()
    assert says in str(told.value)
    assert "\n" not in str(told.value)


class OneBatch:
    """A micro-batch of a pipeline of one stage."""

    def rows(self, micro_batch: int) -> int:
        return 4

    def inputs(self, micro_batch: int) -> Tensor:
        return torch.ones(4, 3)

    def weighted_loss(self, micro_batch: int, outputs: Tensor) -> Tensor:
        return outputs.sum()


def test_a_stage_that_is_computed_again_draws_the_same_random_numbers() -> None:
    gradients = []
    for again in (False, True):
        torch.manual_seed(1)
        piece, batch = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5)), OneBatch()
        stage = Stage({0: piece}, last=0, recompute=again)
        for micro_batch in (0, 1):
            stage.forward(0, micro_batch, batch.inputs(micro_batch), batch)
        for micro_batch in (0, 1):
            stage.backward(0, micro_batch, torch.tensor(1.0), batch)
        gradients.append([*(each.grad for each in piece.parameters()), torch.rand(1)])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
