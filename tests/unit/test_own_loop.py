"""A user's own loop on one rank: its refusals, and its optimizer under torch's own helpers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import IterableDataset

from farandole import OwnLoop, UsageError

pytestmark = pytest.mark.usefixtures("same_threads")


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.zeros(9, 2)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    with OwnLoop(out=tmp_path / "run") as loop:
        optimizer = torch.optim.SGD(loop.share(model).parameters(), lr=0.1)
        with pytest.raises(UsageError, match="there is no all-reduce 'rung': choose from"):
            loop.optimizer(optimizer, collective="rung")
        with pytest.raises(UsageError, match="every=0: a step needs at least 1 batch"):
            loop.optimizer(optimizer, every=0)
        with pytest.raises(UsageError, match="takes no closure"):
            loop.optimizer(optimizer).step(lambda: None)
        with pytest.raises(UsageError, match="must be from 1 to the 5 training samples"):
            next(iter(loop.batches(torch.zeros(5, 2), 6)))
        with pytest.raises(UsageError, match="give steps="):
            next(iter(loop.batches(Stream(), 6)))
        with pytest.raises(UsageError, match="log belongs to a batch"):
            loop.log(1.0)
        with pytest.raises(UsageError, match="the model's 1 is a SyncBatchNorm"):
            loop.share(torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.SyncBatchNorm(1)))
    assert loop.summary
    assert loop.summary.final_loss is None, "none was logged"
    with pytest.raises(UsageError, match="Unknown option"):
        OwnLoop(learning_rate=0.1)


def test_torchs_helpers_take_the_optimizer(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(3, 1), torch.ones(8, 3)
    with OwnLoop(out=tmp_path / "run") as loop:
        inner = torch.optim.AdamW(loop.share(model).parameters(), lr=0.1)
        optimizer = loop.optimizer(inner)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
        before = model.weight.clone()
        for batch in loop.batches(x, 2, epochs=1):
            optimizer.zero_grad()
            loss = model(batch).mean() * (torch.inf if loop.step == 1 else 1)
            scaler.scale(loss).backward()
            optimizer.reduce()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            if loop.step == 1:
                assert torch.equal(model.weight, before), "a step that is not finite is left out"
            before = model.weight.clone()
        assert scaler.get_scale() == 2.0**39
        assert inner.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-12)
        again = torch.optim.AdamW(model.parameters(), lr=0.5)
        other = loop.optimizer(again)
        other.load_state_dict(optimizer.state_dict())
        assert again.param_groups[0]["lr"] == inner.param_groups[0]["lr"]
        assert again.state[model.weight]["step"] == 3
    assert loop.summary
    assert loop.summary.steps == 4
