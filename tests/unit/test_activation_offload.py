"""Kept activations leave the device and return in time: the same gradients, two layers at a time."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from farandole.errors import UsageError
from farandole.model_parallel import activation_offload, offload_places
from farandole.model_parallel.activation_offload import ActivationOffload
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.memory import ActivationMeter
from farandole.models.recomputation import recompute, unfuse
from farandole.models.transformer import transformer
from farandole.runtime.command_line import parse
from farandole.scenarios import pipeline, sharded

SAMPLES, CONTEXT, WIDTH, SYMBOLS, BLOCKS = 2, 16, 32, 11, 4


class Step:
    """A forward pass of the language model; its backward pass is up to the test."""

    def __init__(self, place: str | None, what: Any = "none") -> None:
        torch.manual_seed(0)
        self.model = transformer((CONTEXT,), SYMBOLS, WIDTH, BLOCKS).double()
        self.meter = ActivationMeter(self.model.parameters())
        unfuse(self.model)
        recompute(self.model, what, self.meter.watching)
        self.offload = ActivationOffload(place, self.model, self.meter) if place else None  # type: ignore[arg-type]
        self.characters = torch.arange(SAMPLES * CONTEXT).view(SAMPLES, CONTEXT) % SYMBOLS
        with (self.offload or self.meter).watching():
            self.loss = cross_entropy(self.model(self.characters).flatten(0, 1), self.characters.flatten())

    def gradients(self) -> list[Tensor]:
        self.loss.backward()
        return [each.grad for each in self.model.parameters() if each.grad is not None]


@pytest.mark.parametrize("what", ["none", "selective", "full"])
def test_gradients_memory_and_bytes(what: Any) -> None:
    """The device holds nothing between the passes, and two layers within them; each byte goes out and in once."""
    expected = Step(None, what).gradients()
    with torch.device("meta"):
        layers = transformer((CONTEXT,), SYMBOLS, WIDTH, BLOCKS).double()
        inputs = torch.empty((SAMPLES, CONTEXT), dtype=torch.int64)
    kept = footprint(layers, inputs, loss=True, recompute=what, fused=False)
    assert kept
    for place in ("host", "disk"):
        step = Step(place, what)
        assert step.offload
        assert step.meter.now == 0
        found = step.gradients()
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
        assert step.offload.account() == {"out": kept.activations, "in": kept.activations}
        assert step.meter.most == pytest.approx(kept.in_flight, rel=0.01)
        assert step.meter.now == 0
        step.offload.close()
    assert kept.in_flight < 0.6 * (kept.activations + kept.again) or what == "full"


def test_a_layer_is_fetched_while_the_one_behind_it_computes() -> None:
    step = Step("host")
    events: list[tuple[str, int]] = []
    assert step.offload

    def number(layer: Any) -> int:
        return number(layer.before) + 1 if layer.before else 0

    fetch, view = step.offload._fetch, activation_offload._View.tensor

    def noting_fetch(layer: Any) -> None:
        if layer.arriving is None:
            events.append(("fetch", number(layer)))
        fetch(layer)

    step.offload._fetch = noting_fetch  # type: ignore[method-assign]

    def noting_use(self: Any) -> Tensor:
        if ("use", number(self.stored.layer)) not in events:
            events.append(("use", number(self.stored.layer)))
        return view(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activation_offload._View, "tensor", noting_use)
        step.gradients()
    last = BLOCKS + 1
    expected = [("fetch", last)]
    for layer in range(last, -1, -1):
        expected += [("fetch", layer - 1), ("use", layer)] if layer else [("use", 0)]
    assert events == expected


def test_what_is_never_used_is_let_go() -> None:
    step = Step("disk")
    del step.loss
    assert step.offload
    assert step.offload.bytes_in == 0
    assert step.meter.now == 0


def test_a_layer_that_overwrites_what_it_needs_is_refused() -> None:
    class Overwriting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept = x.exp()
            kept.add_(1)
            return kept

    model = nn.Sequential(nn.Linear(3, 3), Overwriting())
    offload = ActivationOffload("host", model, ActivationMeter(model.parameters()))
    with pytest.raises(RuntimeError, match="train without --offload-activations"), offload.watching():
        model(torch.ones(2, 3))


def test_a_full_disk_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(offload_places.tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(UsageError, match=r"No space left on device: .* set TMPDIR to a folder with more space"):
        Step("disk")


def test_the_bare_option_is_host_and_a_stage_computed_again_has_nothing_to_offload() -> None:
    options = parse(pipeline.Config, ["--offload-activations", "--recompute"])
    assert options.offload_activations == "host"
    with pytest.raises(UsageError, match="--offload-activations: --recompute stage keeps only a stage's inputs"):
        options.recomputed()
    assert parse(sharded.Config, ["--offload-activations", "disk"]).offload_activations == "disk"
