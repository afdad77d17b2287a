"""Distribute the shards: sent from a root by rank number, or read from files.

`scatter` is document 000's distribution of data: the root holds everything and sends shard r to rank r. `write` and
`read` are for a cluster with a shared file system: the set is cut once into numbered files, and each rank maps its own
file into memory, so that only the pages it uses are read. A manifest holds sizes and checksums. `distribute`
does one or the other, by an option. Samples may have any shape, and any type of number.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.data.datasets import Dataset
from farandole.data.shares import slices
from farandole.errors import UsageError
from farandole.runtime import files

if TYPE_CHECKING:  # shards are written and read without MPI and torch too
    import torch

    from farandole.data.samples import Reader, Samples
    from farandole.runtime.communicator import Communicator
    from farandole.runtime.world import World

PARTS = ("inputs", "targets")
MANIFEST = "manifest.json"
AGAIN = "write the shards again"


def scatter(dataset: Dataset | None, shares: Sequence[int], comm: Communicator, root: int = 0) -> Dataset:
    """Send shard r of `dataset` from the root to rank r; returns the own shard. Collective.

    Cost at the root: P − 1 messages for the inputs and as many for the targets, (P−1)/P of the set.

    Args:
        dataset: the whole set on the root, ignored elsewhere.
        shares: samples per rank, known to all (`shares.equal_shares`).
    """
    from farandole.runtime.communicator import broadcast_text  # imports MPI

    header = json.dumps([_kind(getattr(dataset, part)) for part in PARTS]) if comm.rank == root else ""
    with comm.waiting("broadcast of the samples' type and shape", root):
        header = broadcast_text(comm.mpi, header, root)
    if comm.rank == root:
        assert dataset is not None
        shards = [dataset[rows] for rows in slices(shares)]
        for rank, shard in enumerate(shards):
            if rank != root:
                for part in PARTS:
                    comm.send(np.ascontiguousarray(getattr(shard, part)), rank)
        return shards[root]
    own = Dataset(*(np.empty((shares[comm.rank], *shape), kind) for kind, shape in json.loads(header)))
    for part in PARTS:
        comm.receive(getattr(own, part), root)
    return own


def share_out(samples: Samples | None, shares: Sequence[int], comm: Communicator, is_sent: bool) -> Samples:
    """Return this rank's shard: sent by rank 0, or cut out of the samples that every rank has opened. Collective.

    Args:
        samples: all of them; where they are sent, on rank 0 only.
        shares: samples per rank.
    """
    if is_sent:
        assert samples is None or isinstance(samples, Dataset)
        return scatter(samples, shares, comm)
    assert samples is not None
    if share := getattr(samples, "share", None):  # a stream's
        return share(shares, comm.rank)  # type: ignore[no-any-return]
    return samples[slices(shares)[comm.rank]]


def distribute(
    loading: str,
    samples: Samples | None,
    shares: Mapping[int, int],
    world: World,
    folder: Path | None,
    is_sent: bool = True,
) -> Samples:
    """Return this rank's shard of all samples. Collective.

    Args:
        loading: "scatter", rank 0 sends it; or "files", it is read from files in `folder`, which rank 0 writes.
        samples: all of them; where they are sent, on rank 0 only.
        shares: rank → the size of its shard, for the ranks that get one; the others get an empty one.
        is_sent: False: every rank has opened the samples, and cuts its shard out of them.
    """
    if loading == "scatter" or not is_sent:
        return share_out(samples, [shares.get(rank, 0) for rank in range(world.size)], world.comm, is_sent)
    assert samples is None or isinstance(samples, Dataset)
    from farandole.runtime.communicator import broadcast_text  # imports MPI

    if samples is not None and folder is not None:
        write(samples, list(shares.values()), folder)
    place = Path(broadcast_text(world.control, str(folder)))
    shard = read(place, list(shares).index(world.rank) if world.rank in shares else 0, len(shares))
    return shard if world.rank in shares else shard[:0]


def write(dataset: Dataset, shares: Sequence[int], folder: Path) -> None:
    """Cut `dataset` into one pair of .npy files per share, and a manifest written last."""
    folder.mkdir(parents=True, exist_ok=True)
    checksums = []
    for number, rows in enumerate(slices(shares)):
        shard = dataset[rows]
        for part in PARTS:
            np.save(array := io.BytesIO(), getattr(shard, part), allow_pickle=False)
            files.write(_file(folder, part, number, len(shares)), array.getvalue())
        checksums.append({part: _checksum(_file(folder, part, number, len(shares))) for part in PARTS})
    files.write(folder / MANIFEST, json.dumps({"shares": list(shares), "crc32": checksums}, indent=2))


def read(folder: Path, number: int, ranks: int) -> Dataset:
    """Map shard `number` of `ranks` into memory.

    Raises:
        UsageError: no manifest, another number of shards, a missing shard, or one that is corrupt.
    """
    if len(shares := stored_shares(folder)) != ranks:
        raise UsageError(f"{folder} holds {len(shares)} shards, not {ranks}: write them for {ranks} ranks")
    checksums = _manifest(folder)["crc32"]
    arrays = []
    for part in PARTS:
        file = _file(folder, part, number, ranks)
        if not file.exists():
            raise UsageError(f"shard {file} is missing: {AGAIN}")
        if _checksum(file) != checksums[number][part]:
            raise UsageError(f"shard {file} is corrupt (its checksum differs): {AGAIN}")
        arrays.append(np.load(file, mmap_mode="r", allow_pickle=False))
    return Dataset(*arrays)


class MappedShards:
    """All shards of a folder as one set, mapped into memory: any rank can take any sample.

    Attributes:
        shares: the size of each shard.

    Raises:
        UsageError: as `read`.
    """

    def __init__(self, folder: Path) -> None:
        self.shares = stored_shares(folder)
        self._shards = [read(folder, number, len(self.shares)) for number in range(len(self.shares))]
        self._starts = np.cumsum([0, *self.shares[:-1]])

    def __len__(self) -> int:
        return sum(self.shares)

    def on(self, device: torch.device) -> Reader:
        """Return a reader that reads each batch (inputs, targets) from the files."""
        from farandole.data import samples

        return samples.Each(self._batch, device)

    def _batch(self, rows: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[Any]]:
        taken = self[rows]
        return taken.inputs, taken.targets

    def __getitem__(self, rows: NDArray[np.intp]) -> Dataset:
        """Return the samples with these numbers, counted through all shards, in this order."""
        shard_of = np.searchsorted(self._starts, rows, side="right") - 1
        first = self._shards[0]
        taken = Dataset(*(np.empty((len(rows), *getattr(first, part).shape[1:]), getattr(first, part).dtype)
                          for part in PARTS))  # fmt: skip
        for number in np.unique(shard_of):
            its = shard_of == number
            for part in PARTS:
                getattr(taken, part)[its] = getattr(self._shards[number], part)[rows[its] - self._starts[number]]
        return taken


def stored_shares(folder: Path) -> list[int]:
    """Return the size of each shard in `folder`.

    Raises:
        UsageError: there are none.
    """
    return list(_manifest(folder)["shares"])


def _manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest that `write` has written.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    file = folder / MANIFEST
    if not file.exists():
        raise UsageError(f"{folder} holds no shards (no {MANIFEST}): write them first")
    manifest = files.read_object(file, AGAIN)
    shares, checksums = manifest.get("shares"), manifest.get("crc32")
    lists = [isinstance(shares, list) and all(isinstance(share, int) for share in shares),
             isinstance(checksums, list) and all(map(_is_pair, checksums))]  # fmt: skip
    if not all(lists) or not 0 < len(manifest["shares"]) == len(manifest["crc32"]):
        raise UsageError(f"{file} is damaged: {AGAIN}")
    return manifest


def _is_pair(checksums: Any) -> bool:
    return isinstance(checksums, dict) and set(checksums) == set(PARTS)


def _kind(array: NDArray[Any]) -> tuple[str, tuple[int, ...]]:
    """Return the type of the numbers, as numpy writes it ("<f4"), and the shape of one sample."""
    return array.dtype.str, array.shape[1:]


def _file(folder: Path, part: str, number: int, count: int) -> Path:
    return folder / f"{part}-{number:05d}-of-{count:05d}.npy"


def _checksum(file: Path) -> int:
    return zlib.crc32(file.read_bytes())
