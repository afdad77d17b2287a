"""Shard files: read back as written, and refused when they are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farandole.data import datasets, shards
from farandole.data.shares import equal_shares
from farandole.errors import UsageError


@pytest.fixture
def shard_folder(tmp_path: Path) -> Path:
    dataset = datasets.load("digits")[slice(0, 103)]
    shards.write(dataset, equal_shares(103, 4), tmp_path)
    return tmp_path


def test_shard_files_give_back_the_set_mapped_into_memory(shard_folder: Path) -> None:
    dataset = datasets.load("digits")[slice(0, 103)]
    parts = [shards.read(shard_folder, number, 4) for number in range(4)]
    assert all(isinstance(part.inputs, np.memmap) for part in parts)
    assert np.array_equal(np.concatenate([part.inputs for part in parts]), dataset.inputs)
    assert np.array_equal(np.concatenate([part.targets for part in parts]), dataset.targets)


def test_a_missing_shard_is_named(shard_folder: Path) -> None:
    (shard_folder / "inputs-00002-of-00004.npy").unlink()
    shards.read(shard_folder, 1, 4)
    with pytest.raises(UsageError, match=r"inputs-00002-of-00004.npy is missing"):
        shards.read(shard_folder, 2, 4)


@pytest.mark.parametrize("damage", ["truncate", "flip"])
def test_a_corrupt_shard_is_named(shard_folder: Path, damage: str) -> None:
    file = shard_folder / "targets-00000-of-00004.npy"
    content = bytearray(file.read_bytes())
    if damage == "truncate":
        del content[-1]
    else:
        content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"targets-00000-of-00004.npy is corrupt"):
        shards.read(shard_folder, 0, 4)


def test_shards_for_another_number_of_ranks_are_refused(shard_folder: Path) -> None:
    with pytest.raises(UsageError, match="holds 4 shards, not 3"):
        shards.read(shard_folder, 0, 3)


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        shards.read(tmp_path, 0, 1)
