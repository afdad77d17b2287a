"""Compressed gradients, simulated: the messages are those that the compressors send, and with none it is the ring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.collectives.costs import Link
from farandole.compression import choices
from farandole.compression.exchange import bytes_of_ring
from farandole.compression.majority_vote import MajorityVote
from farandole.compression.options import CompressionOptions
from farandole.compression.powersgd import PowerSGD
from farandole.compression.table import COMPRESSORS
from farandole.cost.choice import COMPRESSED, Choice
from farandole.cost.comparison import compared
from farandole.cost.compressed import exchange_s, tensors
from farandole.cost.rounds import simulated as in_rounds
from farandole.cost.setting import Setting
from farandole.cost.stragglers import parse
from farandole.models.shape import Shape
from farandole.models.transformer import transformer
from tests.expected_bytes import bytes_leaving

LENGTH = 12 * 32**2
SETTING = Setting(4, 20, 0.1, parse("lognormal:0.5"), 4 * LENGTH, Link(1e-4, 1e-7), seed=2)
OPTIONS = CompressionOptions(fraction=0.0625, levels=3, bucket=256, matrix_rank=3)


def sent(name: str, options: CompressionOptions, rank: int) -> int:
    """Return the bytes that a rank of the scenario sends in a step."""
    ranks, shapes = SETTING.workers, tensors(LENGTH, Choice())
    compressor = choices.build(replace(options, compressor=name), shapes, 0, rank, ranks)
    if isinstance(compressor, PowerSGD):
        return sum(bytes_of_ring(nbytes // 4, 4, rank, ranks) for nbytes in compressor.nbytes())
    return (
        compressor.nbytes() if isinstance(compressor, MajorityVote) else bytes_leaving(compressor, LENGTH, rank, ranks)
    )


@pytest.mark.parametrize("name", COMPRESSORS)
def test_the_bytes_are_those_that_a_rank_sends(name: str) -> None:
    in_bytes = replace(SETTING, link=Link(0.0, 1.0))
    for options in (CompressionOptions(), OPTIONS):
        found = exchange_s(name, in_bytes, Choice(compression=options))
        of_ranks = [sent(name, options, rank) for rank in range(SETTING.workers)]
        assert found == pytest.approx(np.mean(of_ranks), rel=1e-3), "parts of a ring differ by an entry"


def test_the_messages_are_those_of_the_collectives() -> None:
    counted, others = replace(SETTING, link=Link(1.0, 0.0)), SETTING.workers - 1
    messages = {name: exchange_s(name, counted, Choice()) / others for name in COMPRESSORS}
    gathered = dict.fromkeys(("bfloat16", "qsgd", "terngrad", "sign", "top-k", "dgc"), 1)
    assert messages == {"none": 2, "float16": 2, "random-k": 2, "powersgd": 4, "majority-vote": 2} | gathered
    shared = Choice(compression=CompressionOptions(share_scales=True))
    assert exchange_s("terngrad", counted, shared) == 2 * others, "the scales travel before the payloads"
    in_bytes = replace(SETTING, link=Link(0.0, 1.0))
    assert exchange_s("terngrad", in_bytes, shared) == exchange_s("terngrad", in_bytes, Choice())


def test_without_compression_it_is_the_ring_and_with_float16_one_of_half_the_bytes() -> None:
    ring = compared("ring", SETTING, Choice()).outcome
    assert in_rounds(SETTING, 1, exchange_s("none", SETTING, Choice())) == ring
    half = compared("ring", replace(SETTING, nbytes=SETTING.nbytes / 2), Choice()).outcome
    assert compared("float16", SETTING, Choice()).outcome == half


@pytest.mark.parametrize("name", COMPRESSED)
def test_alone_and_without_links_a_step_is_its_computing_and_encoding(name: str) -> None:
    for setting in (replace(SETTING, workers=1), replace(SETTING, link=Link(0.0, 0.0))):
        slowest = compared("ring", replace(setting, link=Link(0.0, 0.0)), Choice()).outcome
        outcome = compared(name, setting, Choice(encode_s=0.03)).outcome
        assert outcome.wall_s == pytest.approx(slowest.wall_s + setting.steps * 0.03)
        assert (outcome.compute_s, outcome.wait_s) == (slowest.compute_s, slowest.wait_s)


def test_payloads_that_are_gathered_lose_to_the_ring_where_workers_are_many() -> None:
    """(P − 1)c against 2(P − 1)/P·n: from P = 2n/c on, here 2·4/(8·0.0625) = 16."""
    choice, in_bytes = Choice(compression=OPTIONS), Setting(1, 1, nbytes=4 * LENGTH, link=Link(0.0, 1.0))
    more = {workers: exchange_s("top-k", replace(in_bytes, workers=workers), choice)
            / exchange_s("none", replace(in_bytes, workers=workers), choice) for workers in (8, 16, 32)}  # fmt: skip
    assert more == pytest.approx({8: 0.5, 16: 1.0, 32: 2.0})


@pytest.mark.parametrize("depth", [1, 3])
def test_a_shapes_tensors_are_those_of_the_transformer(depth: int) -> None:
    shape = Shape(depth, hidden=32, heads=2, sequence=10, vocabulary=7, tied=False)
    model = transformer((10,), 7, hidden=32, depth=depth)
    assert shape.tensors == [tuple(each.shape) for each in model.parameters()]
    tied = replace(shape, tied=True)
    assert sum(map(np.prod, tied.tensors)) == tied.parameters


def test_a_very_large_model_takes_no_memory() -> None:
    giant = Shape(128, 25_600, 160, sequence=2048, vocabulary=51_200)
    setting = replace(SETTING, nbytes=4.0 * giant.parameters)
    ring = exchange_s("none", setting, Choice())
    assert all(0 < exchange_s(name, setting, Choice(model=giant)) < ring for name in ("dgc", "powersgd", "qsgd"))
