"""The messages of `buddies`: a worker's own tensors to its buddy, and those of its ward from there.

From the second backup of a group on the sizes are known, and the exchange overlaps with the next step: a message for
each tensor. Before that, and after a death, tensors travel in one pack, with their names and shapes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from farandole.runtime.communicator import Buffer, Communicator, Pending, broadcast_bytes

TAG = 1  # of a backup's first tensor, the next ones follow: the step beside it sends with 0


def begin_exchange(comm: Communicator, own: Mapping[str, Tensor], wards: Mapping[str, Tensor]) -> Pending:
    """Begin to send the own tensors to the buddy, and to receive the ward's, which may be fewer or more."""
    buddy, ward = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    own_buffers, wards_buffers = ([tensors[name].numpy() for name in sorted(tensors)] for tensors in (own, wards))
    return comm.begin_exchange(own_buffers, buddy, wards_buffers, ward, TAG)


def exchange_packs(comm: Communicator, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Send the own tensors to the buddy; return the ward's, whose names and shapes are not known yet."""
    buddy, ward = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    pack, length = _packed(own), np.empty(1, dtype=np.int64)
    comm.exchange(np.array([pack.size]), buddy, length, ward)
    wards = np.empty(int(length[0]), dtype=np.uint8)
    comm.exchange(pack, buddy, wards, ward)
    return tensors_from_bytes(wards.tobytes())


def send_pack(comm: Communicator, tensors: Mapping[str, Tensor], to: int) -> None:
    """Send the tensors, with their names and shapes."""
    pack = _packed(tensors)
    comm.send(np.array([pack.size]), to)
    comm.send(pack, to)


def receive_pack(comm: Communicator, source: int) -> dict[str, Tensor]:
    """Return the tensors that `source` sends."""
    length = np.empty(1, dtype=np.int64)
    comm.receive(length, source)
    pack = np.empty(int(length[0]), dtype=np.uint8)
    comm.receive(pack, source)
    return tensors_from_bytes(pack.tobytes())


def broadcast_pack(comm: Communicator, tensors: Mapping[str, Tensor] | None, source: int) -> dict[str, Tensor]:
    """Return the tensors of `source` on all workers. Collective.

    Args:
        tensors: on `source`; None elsewhere.
    """
    pack = _packed(tensors) if tensors is not None else None
    return tensors_from_bytes(broadcast_bytes(comm.mpi, pack, source))


def broadcast_into(
    comm: Communicator, places: Mapping[str, Tensor], tensors: Mapping[str, Tensor] | None, source: int
) -> None:
    """Have the tensors of `source` on all workers, in memory that is already there. Collective.

    Args:
        places: flat and contiguous, of the tensors' names, lengths and types.
        tensors: on `source`; None elsewhere.

    Cost: one broadcast for each tensor, of its bytes, and on `source` a copy.
    """
    for name, place in sorted(places.items()):
        if tensors is not None:
            place.copy_(tensors[name])
        on_host = place.cpu()  # itself, unless it is on a card
        comm.mpi.Bcast(on_host.view(torch.uint8).numpy(), source)
        place.copy_(on_host)


def _packed(tensors: Mapping[str, Tensor]) -> Buffer:
    return np.frombuffer(tensors_to_bytes({name: t.cpu().contiguous() for name, t in tensors.items()}), np.uint8)
