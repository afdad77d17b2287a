"""Shard files: read back as written, and refused when damaged."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_shard_files_of_text_give_back_its_types_and_shapes(tmp_path: Path) -> None:
    dataset = datasets.load("pydoc")[slice(0, 10)]
    shards.write(dataset, [7, 3], tmp_path)
    last = shards.read(tmp_path, 1, 2)
    assert (last.inputs.dtype, last.targets.dtype) == (np.int64, np.int64)
    assert np.array_equal(last.inputs, dataset.inputs[7:])
    assert np.array_equal(last.targets, dataset.targets[7:])


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


def test_mapped_shards_give_any_samples_in_the_order_asked_for(shard_folder: Path) -> None:
    dataset = datasets.load("digits")[slice(0, 103)]
    mapped = shards.MappedShards(shard_folder)
    assert (len(mapped), mapped.shares) == (103, equal_shares(103, 4))
    rng = np.random.default_rng(0)
    backwards, again = np.arange(103)[::-1], np.array([50, 3, 50, 102, 0])
    for rows in (rng.permutation(103), backwards, again, np.array([25, 26]), np.array([7]), np.arange(0)):
        taken = mapped[rows]
        assert np.array_equal(taken.inputs, dataset.inputs[rows])
        assert np.array_equal(taken.targets, dataset.targets[rows])
        assert (taken.inputs.dtype, taken.targets.dtype) == (dataset.inputs.dtype, dataset.targets.dtype)
        assert not isinstance(taken.inputs, np.memmap), "a copy, which may be changed"


@given(st.lists(st.integers(0, 5), min_size=1, max_size=7).filter(any), st.data())
def test_mapped_shards_of_any_sizes_are_one_set(shares: list[int], data: st.DataObject) -> None:
    total = sum(shares)
    rows = data.draw(st.lists(st.integers(0, total - 1), max_size=20))
    dataset = datasets.Dataset(np.arange(total, dtype=np.float32), np.arange(total) * 10)
    with TemporaryDirectory() as folder:
        shards.write(dataset, shares, Path(folder))
        taken = shards.MappedShards(Path(folder))[np.array(rows, dtype=np.intp)]
    assert taken.inputs.tolist() == rows
    assert taken.targets.tolist() == [10 * row for row in rows]


def test_mapped_shards_of_text_keep_types_and_shapes(tmp_path: Path) -> None:
    dataset = datasets.load("pydoc")[slice(0, 10)]
    shards.write(dataset, [7, 3], tmp_path)
    taken = shards.MappedShards(tmp_path)[np.array([9, 0])]
    assert np.array_equal(taken.inputs, dataset.inputs[[9, 0]])
    assert (taken.inputs.dtype, taken.inputs.shape) == (dataset.inputs.dtype, (2, *dataset.inputs.shape[1:]))
    assert (taken.targets.dtype, taken.targets.shape) == (dataset.targets.dtype, (2, *dataset.targets.shape[1:]))


def test_mapped_shards_that_are_not_whole_are_refused(
    shard_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        shards.MappedShards(tmp_path_factory.mktemp("empty"))
    last = shard_folder / "inputs-00003-of-00004.npy"
    content = last.read_bytes()
    last.write_bytes(content[:-1])
    with pytest.raises(UsageError, match=r"inputs-00003-of-00004\.npy is corrupt"):
        shards.MappedShards(shard_folder)
    last.unlink()
    with pytest.raises(UsageError, match=r"inputs-00003-of-00004\.npy is missing"):
        shards.MappedShards(shard_folder)


def test_a_row_beyond_the_last_is_an_error(shard_folder: Path) -> None:
    with pytest.raises(IndexError):
        shards.MappedShards(shard_folder)[np.array([0, 103])]


def test_writing_that_is_interrupted_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def interrupted(file: Path, data: bytes) -> int:
        if "manifest" not in file.name:
            return write(file, data)
        write(file, data[: len(data) // 2])
        raise KeyboardInterrupt

    dataset = datasets.load("digits")[slice(0, 10)]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shards.write(dataset, [5, 5], tmp_path)
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        shards.MappedShards(tmp_path)
    shards.write(dataset, [5, 5], tmp_path)
    assert len(shards.MappedShards(tmp_path)) == 10
