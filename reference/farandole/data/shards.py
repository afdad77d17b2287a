"""How a share comes to its rank: sent by number from a root, or read from its own files.

`scatter` is document 000's distribution of data: the root holds everything and sends shard r to
rank r. `write` and `read` are the way of a cluster with a shared file system: the set is cut
once into numbered files, and each rank maps its own into memory, so that only the pages it uses
are ever read. A manifest holds sizes and checksums.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from farandole.data.datasets import Dataset
from farandole.data.shares import slices
from farandole.errors import UsageError

if TYPE_CHECKING:  # shards are written and read without MPI too
    from farandole.runtime.communicator import Communicator

PARTS = ("inputs", "targets")


def scatter(dataset: Dataset | None, shares: Sequence[int], comm: Communicator, root: int = 0) -> Dataset:
    """Send shard r of `dataset` from the root to rank r; returns the own shard. Collective.

    Cost at the root: P − 1 messages for the inputs and as many for the targets, (P−1)/P of the set.

    Args:
        dataset: the whole set on the root, ignored elsewhere.
        shares: samples per rank, known to all (`shares.equal_shares`).
    """
    shape = np.zeros(3, dtype=np.int64)
    if comm.rank == root:
        assert dataset is not None
        shape[:] = dataset.inputs.shape[1:]
    comm.mpi.Bcast(shape, root)
    if comm.rank == root:
        assert dataset is not None
        shards = [dataset[part] for part in slices(shares)]
        for rank, shard in enumerate(shards):
            if rank != root:
                comm.send(np.ascontiguousarray(shard.inputs), rank)
                comm.send(np.ascontiguousarray(shard.targets), rank)
        return shards[root]
    own = Dataset(np.empty((shares[comm.rank], *shape), dtype=np.float32), np.empty(shares[comm.rank], dtype=np.int64))
    comm.receive(own.inputs, root)
    comm.receive(own.targets, root)
    return own


def write(dataset: Dataset, shares: Sequence[int], folder: Path) -> None:
    """Cut `dataset` into one pair of .npy files per share, and a manifest written last."""
    folder.mkdir(parents=True, exist_ok=True)
    checksums = []
    for number, rows in enumerate(slices(shares)):
        shard = dataset[rows]
        np.save(_file(folder, "inputs", number, len(shares)), shard.inputs)
        np.save(_file(folder, "targets", number, len(shares)), shard.targets)
        checksums.append({part: _checksum(_file(folder, part, number, len(shares))) for part in PARTS})
    manifest = {"shares": list(shares), "crc32": checksums}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2))


def read(folder: Path, number: int, ranks: int) -> Dataset:
    """Map shard `number` of `ranks` into memory.

    Raises:
        UsageError: no manifest, another number of shards, a missing shard, or one that is corrupt.
    """
    manifest_file = folder / "manifest.json"
    if not manifest_file.exists():
        raise UsageError(f"{folder} holds no shards (no manifest.json): write them first")
    manifest = json.loads(manifest_file.read_text())
    if len(manifest["shares"]) != ranks:
        raise UsageError(f"{folder} holds {len(manifest['shares'])} shards, not {ranks}: write them for {ranks} ranks")
    arrays = []
    for part in PARTS:
        file = _file(folder, part, number, ranks)
        if not file.exists():
            raise UsageError(f"shard {file} is missing: write the shards again")
        if _checksum(file) != manifest["crc32"][number][part]:
            raise UsageError(f"shard {file} is corrupt (its checksum differs): write the shards again")
        arrays.append(np.load(file, mmap_mode="r", allow_pickle=False))
    return Dataset(*arrays)


def _file(folder: Path, part: str, number: int, count: int) -> Path:
    return folder / f"{part}-{number:05d}-of-{count:05d}.npy"


def _checksum(file: Path) -> int:
    return zlib.crc32(file.read_bytes())
