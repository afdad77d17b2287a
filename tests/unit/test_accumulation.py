"""Gradients of micro-batches are those of the whole part, and only one micro-batch's activations are held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from farandole.data_parallel.accumulation import backward, check_micro_batches, micro_batches
from farandole.data_parallel.loss_scale import LossScale
from farandole.data_parallel.mixed_precision import HalfCopy
from farandole.errors import UsageError
from farandole.model_parallel.memory import ActivationMeter
from farandole.runtime.buffers import FlatBuffers
from farandole.tasks import classification

SAMPLES, WEIGHT = 24, 0.375


def model() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch(samples: int) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(samples)
    inputs = torch.randn(samples, 6, generator=noise, dtype=torch.float64)
    return inputs, torch.randint(3, (samples,), generator=noise)


@pytest.mark.parametrize(("samples", "count"), [(24, 1), (24, 4), (23, 4), (5, 5), (3, 5), (0, 2)])
def test_the_gradient_and_the_loss_are_those_of_the_whole_part(samples: int, count: int) -> None:
    whole, divided, passes = model(), model(), []

    @contextmanager
    def around(is_last: bool) -> Iterator[None]:
        passes.append(is_last)
        yield

    expected = classification(whole, batch(samples))
    (expected * WEIGHT).backward()
    found = backward(partial(classification, divided), batch(samples), WEIGHT, count, around)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected.detach(), atol=1e-14, rtol=0)
    for one, other in zip(whole.parameters(), divided.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-14, rtol=0)
    sizes = [len(part[1]) for part, _ in micro_batches(batch(samples), count)]
    assert (sum(sizes), len(sizes)) == (samples, max(1, min(samples, count))), "none is empty but for an empty part"
    assert passes == [False] * (len(sizes) - 1) + [True]
    assert max(sizes) - min(sizes) <= 1


def test_activations_of_one_micro_batch_are_held() -> None:
    """For SAMPLES/k samples tanh's outputs and the log-softmax, and the batch itself, which is kept anyway."""
    trained = model()
    held = {}
    for count in (1, 2, 4, 8):
        meter = ActivationMeter(trained.parameters())

        def watched(part: tuple[Tensor, Tensor], meter: ActivationMeter = meter) -> Tensor:
            with meter.watching():
                return classification(trained, part)

        backward(watched, batch(SAMPLES), 1.0, count)
        held[count] = meter.most
    given, divisor = SAMPLES * 8 * (6 + 1), 8
    assert held == {count: given + SAMPLES // count * 8 * (8 + 3) + divisor for count in held}


def half_copy(scale: float, inputs: Tensor, count: int) -> HalfCopy:
    """Return a float16 copy, with its gradient, of a model that multiplies the inputs by one weight."""
    torch.manual_seed(0)
    layer = nn.Linear(1, 1, bias=False)
    half = HalfCopy(layer, lambda its, part: its(part).mean(), FlatBuffers(layer), "float16", LossScale(scale))
    half.gradient(inputs, 1.0, count)
    return half


def test_gradients_of_16_bits_are_added_up_in_32() -> None:
    """1 + 2⁻¹² is 1 in float16."""
    inputs = torch.tensor([[2.0], [2.0**-11]])
    assert half_copy(1024.0, inputs, 2).master.gradients.tolist() == [1 + 2.0**-12]


def test_an_overflow_in_one_micro_batch_is_one_of_the_step() -> None:
    inputs = torch.tensor([[1.0], [1.0], [64.0], [1.0]])
    for count in (1, 4):
        half = half_copy(2048.0, inputs * (4 / count), count)  # 64 · 2048 is more than float16 has
        assert half.scale is not None
        assert half.accept() is False
        assert (half.scale.value, half.scale.skipped) == (1024.0, 1)


def test_a_micro_batch_has_a_sample_at_least() -> None:
    check_micro_batches([10, 9], 8, 100, 3)  # 3 steps an epoch: parts of 4, 3, 3 and 3, 3, 3 samples
    check_micro_batches([2, 1], 1, 9, 1)  # without any sample, ranks may have nothing to do
    line = "--accumulate 4: in some steps a rank's part of the batch has 3 samples, .* give 3 or less"
    with pytest.raises(UsageError, match=line):
        check_micro_batches([10, 9], 8, 100, 4)
    check_micro_batches([10, 10], 8, 1, 4)  # whose only step has the larger part
