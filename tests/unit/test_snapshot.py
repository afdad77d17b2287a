"""Snapshots of tensors: the same file as the library's, and repeated snapshots into the same memory."""

from __future__ import annotations

import torch
from safetensors.torch import load, save
from torch import Tensor

from farandole.recovery.snapshot import Snapshot


def tensors(seed: int) -> dict[str, Tensor]:
    noise = torch.Generator().manual_seed(seed)
    return {
        "odd": torch.randint(255, (7,), generator=noise, dtype=torch.uint8),
        "half": torch.randn(3, 5, generator=noise).to(torch.bfloat16),
        "numbers": torch.randn(4, 6, generator=noise, dtype=torch.float64),
        "turned": torch.randn(3, 4, generator=noise).T,
        "nothing": torch.empty(0, 3),
        "one": torch.tensor(seed),
        "yes": torch.tensor([True, False, bool(seed % 2)]),
    }


def test_it_is_the_librarys_file_each_time_and_in_the_same_memory() -> None:
    snapshot = Snapshot(tensors(0))
    memory = snapshot.data
    for seed in (1, 2):
        snapshot.take(tensors(seed))
        assert snapshot.data is memory
        assert bytes(memory) == save({name: each.contiguous() for name, each in tensors(seed).items()})


def test_it_does_not_change_with_the_originals() -> None:
    originals = {"a": torch.ones(4, requires_grad=True)}
    snapshot = Snapshot(originals)
    with torch.no_grad():
        originals["a"].zero_()
    assert load(bytes(snapshot.data))["a"].tolist() == [1, 1, 1, 1]


def test_other_tensors_are_laid_out_anew() -> None:
    snapshot = Snapshot({"a": torch.ones(4)})
    for others in ({"a": torch.ones(5)}, {"a": torch.ones(5, dtype=torch.int32)}, {"b": torch.zeros(5)}, {}):
        snapshot.take(others)
        found = load(bytes(snapshot.data))
        assert found.keys() == others.keys()
        assert all(torch.equal(found[name], each) for name, each in others.items())
