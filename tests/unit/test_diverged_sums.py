"""A diverging training is reported by its loss, without a warning from numpy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from farandole.collectives import executor
from farandole.collectives.ring import RING
from farandole.model_parallel.training import Losses


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(("own", "others"), [(np.inf, -np.inf), (3e38, 3e38)], ids=["no number", "overflow"])
def test_a_sum_that_is_not_finite_warns_of_nothing(own: float, others: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def communicate(_: Any, __: Any, receives: Any) -> None:
        for buffer, _source in receives:
            buffer[:] = others

    monkeypatch.setattr(executor, "_communicate", communicate)
    buffer = np.full(4, own, np.float32)
    comm: Any = SimpleNamespace(rank=0, size=2, collective=lambda *_: nullcontext())
    executor.run(RING, comm, buffer)
    assert not np.isfinite(buffer).all()


@pytest.mark.parametrize("tensor", [0, 1])
def test_an_infinite_loss_is_counted_by_the_rank_that_speaks_for_it(tensor: int) -> None:
    """The other tensor ranks add zero to it, and not zero times infinity."""
    logged: list[float] = []
    recorder: Any = SimpleNamespace(
        watch=lambda *_: None, elapsed_s=0.0, log=lambda **line: logged.append(line["loss"])
    )
    losses = Losses(2, recorder)
    losses.add(0, np.inf)
    losses.add(1, 2.0)
    world = SimpleNamespace(
        comm=SimpleNamespace(waiting=lambda *_: nullcontext()), control=SimpleNamespace(Allreduce=lambda *_: None)
    )
    parts: Any = SimpleNamespace(place={"tensor": tensor}, world=world, shard=SimpleNamespace(whole=lambda _: 1))
    last = losses.log(parts)
    assert logged == ([0.0, 0.0] if tensor else [np.inf, 2.0])
    assert last == logged[-1]
