"""Some layers in 16 bits, others in 32: as in torch.autocast, where both mean the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from farandole.data_parallel.float32_layers import keep_in_float32
from farandole.data_parallel.mixed_precision import HalfCopy
from farandole.errors import UsageError
from farandole.models.transformer import transformer
from farandole.runtime.buffers import FlatBuffers
from farandole.tasks import classification, mean_cross_entropy

TARGETS = torch.tensor([0, 2, 1, 2])


def model() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def inputs() -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(3))


def types_seen(module: nn.Module, given: Tensor) -> dict[str, tuple[torch.dtype, torch.dtype]]:
    """Return the input and output types of each module with parameters or of a chosen kind."""
    seen = {}
    for name, each in module.named_modules():
        if not list(each.children()):
            each.register_forward_hook(lambda _, got, out, name=name: seen.update({name: (got[0].dtype, out.dtype)}))
    module(given)
    return seen


def test_norms_compute_in_float32_and_the_rest_in_half() -> None:
    half = model().to(torch.bfloat16)
    keep_in_float32(half, ["norms"])
    assert [each.dtype for each in half.parameters()] == [torch.bfloat16] * 2 + [torch.float32] * 2 + [
        torch.bfloat16
    ] * 2
    seen = types_seen(half, inputs().bfloat16())
    assert seen["0"][1] == torch.bfloat16
    assert seen["1"] == (torch.float32, torch.float32)
    assert seen["3"] == (torch.bfloat16, torch.bfloat16)


def test_a_named_layer_and_all_below_it_and_the_output_stays_in_float32() -> None:
    half = nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 3), nn.Softmax(-1))).to(torch.float16)
    keep_in_float32(half, ["1"])
    assert {name: out for name, (_, out) in types_seen(half, inputs().half()).items()} == {
        "0": torch.float16, "1.0": torch.float32, "1.1": torch.float32,
    }  # fmt: skip
    other = nn.Sequential(nn.Linear(6, 8), nn.Softmax(-1), nn.Linear(8, 3)).to(torch.float16)
    keep_in_float32(other, ["softmax"])
    assert types_seen(other, inputs().half())["1"] == (torch.float32, torch.float32)


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    for name in ("4", "norm", ""):
        with pytest.raises(UsageError, match="there is no such layer; choose from norms, softmax, 0, 1, 2, 3"):
            keep_in_float32(model(), [name])


class WithoutAutocast(nn.LayerNorm):
    """As autocast treats a layer norm on a card; on a processor it leaves it in bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


def test_the_gradient_is_that_of_autocast() -> None:
    """Which computes linear layers in bfloat16 and layer norms in float32, from parameters in float32."""
    theirs, ours, plain = model(), model(), model()
    theirs[1].__class__ = WithoutAutocast
    with torch.autocast("cpu", torch.bfloat16):
        outputs = theirs(inputs())
    mean_cross_entropy(outputs.float(), TARGETS).backward()
    HalfCopy(ours, classification, FlatBuffers(ours), "bfloat16", float32_layers=["norms"]).gradient(
        (inputs(), TARGETS), 1.0
    )
    HalfCopy(plain, classification, FlatBuffers(plain), "bfloat16").gradient((inputs(), TARGETS), 1.0)

    def apart(module: nn.Module) -> float:
        pairs = zip(module.parameters(), theirs.parameters(), strict=True)
        return max(float((a.grad - b.grad).norm() / b.grad.norm()) for a, b in pairs)

    assert apart(ours) < 1e-6 < 1e-3 < apart(plain)


def test_what_16_bits_cannot_normalise_32_can() -> None:
    """Entries of 400 and more: the sum of their squares is beyond float16, and its norm is NaN or 0."""

    class Norm(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:  # as hardware without a wider accumulator does it
            return (x - x.mean(-1, True)) / (x - x.mean(-1, True)).square().sum(-1, True).sqrt()

    given = 400 * inputs()
    half = nn.Sequential(Norm(6)).to(torch.float16)
    assert not half(given.half()).abs().max() > 0.1
    kept = nn.Sequential(Norm(6)).to(torch.float16)
    keep_in_float32(kept, ["norms"])
    torch.testing.assert_close(kept(given.half()), nn.Sequential(Norm(6))(given.half().float()))


def test_a_tied_weight_and_the_bytes_of_the_copy() -> None:
    tied = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6))
    tied[2].weight = tied[0].weight
    half = HalfCopy(tied, classification, FlatBuffers(tied), "bfloat16", float32_layers=["2"])
    half.gradient((inputs(), TARGETS), 1.0)
    assert half.nbytes() == 4 * (36 + 6 + 6) + 2 * 12
    network = transformer((8,), 20, hidden=16, depth=1)
    flat = FlatBuffers(network)
    norms = sum(each.numel() for name, each in network.named_parameters() if "norm" in name)
    assert (
        HalfCopy(network, classification, flat, "float16", float32_layers=["norms"]).nbytes()
        == 2 * len(flat.values) + 2 * norms
    )
    assert HalfCopy(copy.deepcopy(network), classification, flat, "float16").nbytes() == 2 * len(flat.values)


def test_running_statistics_come_to_the_model_that_is_evaluated() -> None:
    network = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    HalfCopy(network, classification, FlatBuffers(network), "bfloat16", float32_layers=["norms"]).gradient(
        (inputs(), TARGETS), 1.0
    )
    assert network[1].running_mean.abs().sum() > 0
    assert int(network[1].num_batches_tracked) == 1
