"""Which device a rank gets, and its share of the cores."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from farandole.errors import UsageError
from farandole.runtime import devices


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two cards, as far as the choice can tell."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("cards")
def test_ranks_are_dealt_to_cards_in_turn() -> None:
    assert [devices.choose("cuda", rank).index for rank in range(5)] == [0, 1, 0, 1, 0]
    assert devices.choose("auto", 1) == torch.device("cuda", 1)
    assert devices.choose("cpu", 1) == torch.device("cpu")


@pytest.mark.usefixtures("no_cards")
def test_without_a_card_auto_is_the_cpu_and_cuda_is_refused() -> None:
    assert devices.choose("auto", 0) == torch.device("cpu")
    with pytest.raises(UsageError, match="use --device cpu"):
        devices.choose("cuda", 0)


def test_threads_are_shared_by_the_ranks_of_a_host() -> None:
    before = torch.get_num_threads()
    try:
        cores = len(os.sched_getaffinity(0))
        assert devices.limit_threads(1) == cores == torch.get_num_threads()
        assert devices.limit_threads(10 * cores) == 1 == torch.get_num_threads()
        assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {1}
    finally:
        devices.limit_threads(1)
        torch.set_num_threads(before)


def test_equal_seeds_give_equal_numbers_everywhere() -> None:
    def draw(seed: int) -> tuple[float, float, float]:
        devices.seed_everything(seed)
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    assert draw(3) == draw(3)
    assert all(a != b for a, b in zip(draw(3), draw(4), strict=True))
