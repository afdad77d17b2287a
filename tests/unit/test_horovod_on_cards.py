"""A Horovod built without CUDA uses no card: its sums would be wrong, without an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

pytest.importorskip("horovod", reason="no Horovod: make setup builds it")
import horovod.torch as hvd

from farandole.data_parallel.horovod_twin import HorovodSGD, unfit_for_cards
from farandole.errors import UsageError
from farandole.recovery.options import ElasticHorovodOptions
from farandole.runtime.cards import detection, rank_device
from farandole.runtime.cards.assignment import Card
from farandole.runtime.options import RunOptions
from farandole.scenarios.horovod_sgd import Config


@pytest.fixture(autouse=True)
def one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "usable_cards", lambda wanted, requested: ([Card("a")], ""))


@pytest.mark.parametrize("config", [Config, ElasticHorovodOptions])
def test_the_scenarios_refuse_cards_unless_it_is_built_for_them(
    config: type[RunOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    for built in (False, True):
        monkeypatch.setattr(hvd, "cuda_built", lambda built=built: built)
        own = rank_device._report(config(), rank=0, ranks=1, host=0)
        assert bool(own.cards) == built
        assert bool(own.unusable) != built
    monkeypatch.setattr(hvd, "cuda_built", lambda: False)
    with pytest.raises(UsageError, match=r"^--device cuda: this Horovod is built without CUDA.*; use --device cpu$"):
        rank_device.free(config(device="cuda"), "test", 1)
    assert rank_device.free(config(), "test", 1).note.startswith("all ranks compute on the CPU: this Horovod")


def test_whoever_brings_a_card_nevertheless_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hvd, "cuda_built", lambda: False)
    world = cast(Any, SimpleNamespace(device=torch.device("cuda")))
    with pytest.raises(UsageError, match="built without CUDA"):
        HorovodSGD(world, nn.Linear(1, 1), nn.functional.mse_loss, 0.1)
    monkeypatch.setattr(hvd, "cuda_built", lambda: True)
    assert unfit_for_cards() == ""
