"""Which library adds up DDP's gradients: NCCL where every rank has its own card."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import FileStore  # type: ignore[attr-defined]  # torch's stubs omit it

from farandole.data_parallel import process_group
from farandole.data_parallel.ddp_twin import DdpSGD
from farandole.data_parallel.process_group import WantedBackend, backend_of
from farandole.errors import UsageError

OWN, SHARED, SOME, NONE = ["a", "b"], ["a", "a"], ["a", ""], ["", ""]


@pytest.mark.parametrize(
    ("cards", "has_nccl", "wanted", "backend"),
    [
        (OWN, True, "auto", "nccl"),
        (OWN, True, "nccl", "nccl"),
        (OWN, True, "gloo", "gloo"),
        (OWN, False, "auto", "gloo"),
        (SHARED, True, "auto", "gloo"),
        (SOME, True, "auto", "gloo"),
        (NONE, True, "auto", "gloo"),
    ],
)
def test_it_is_nccl_where_that_can_be(cards: list[str], has_nccl: bool, wanted: WantedBackend, backend: str) -> None:
    assert backend_of(wanted, cards, has_nccl) == backend


@pytest.mark.parametrize(("cards", "why"), [(SHARED, "share one"), (SOME, "have none"), (NONE, "have none")])
def test_nccl_is_refused_where_it_cannot_be(cards: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        backend_of("nccl", cards, has_nccl=True)
    with pytest.raises(UsageError, match="built without NCCL"):
        backend_of("nccl", OWN, has_nccl=False)


@pytest.mark.parametrize(("bucket_kb", "buckets"), [(1, 3), (8, 2), (100, 1), (None, 1)])
def test_ddp_closes_a_bucket_that_has_the_given_size(
    bucket_kb: int | None, buckets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three layers of 4 kB and a little, with their biases. DDP cuts them when it has seen the order of a backward."""
    monkeypatch.setattr(process_group, "_cards", lambda world: [""])
    reduced: list[int] = []

    def hook(_, bucket):  # type: ignore[no-untyped-def]  # DDP reads the annotations
        reduced.append(4 * bucket.buffer().numel())
        found: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        found.set_result(bucket.buffer())
        return found

    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(3)))
    dist.init_process_group("gloo", store=FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        world: Any = SimpleNamespace(finish_computation=lambda start: None)
        strategy = DdpSGD(world, model, lambda model, batch: model(batch).sum(), 0.1, 5.0, "gloo", bucket_kb)
        strategy.parallel.register_comm_hook(None, hook)
        for _ in range(2):
            reduced.clear()
            strategy.parallel(torch.ones(2, 32)).backward()
    finally:
        dist.destroy_process_group()
    assert len(reduced) == buckets, reduced
    assert sum(reduced) == 4 * 3 * 33 * 32
