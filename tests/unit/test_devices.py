"""Which device a rank gets, and its share of the cores."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from farandole.runtime import devices


def test_a_device_is_warmed_up_as_this_processs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card whose tensors are the CPU's."""
    calls: list[tuple[str, torch.device]] = []
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda device: calls.append(("set", device)))
    monkeypatch.setattr(devices, "finish", lambda device: calls.append(("wait", device)))
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *shape, device, **named: ones(*shape, **named))
    devices.warm_up(torch.device("cpu"))
    assert not calls
    devices.warm_up(torch.device("cuda", 3))
    assert calls == [("set", torch.device("cuda", 3)), ("wait", torch.device("cuda", 3))]


def test_threads_are_shared_by_the_ranks_of_a_host(same_threads: None) -> None:
    cores = len(os.sched_getaffinity(0))
    assert devices.limit_threads(1) == cores == torch.get_num_threads()
    assert devices.limit_threads(10 * cores) == 1 == torch.get_num_threads()
    assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {1}


def test_equal_seeds_give_equal_numbers_everywhere() -> None:
    def draw(seed: int) -> tuple[float, float, float]:
        devices.seed_everything(seed)
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    assert draw(3) == draw(3)
    assert all(a != b for a, b in zip(draw(3), draw(4), strict=True))
