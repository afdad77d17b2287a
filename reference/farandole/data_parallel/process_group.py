"""A process group of torch, over gloo or NCCL, of the ranks that MPI has started: for the twins that torch provides.

gloo adds up in the memory of hosts, to which it copies what lies on cards. NCCL does so on the cards, and refuses two
ranks on one. MPI only tells the ranks where rank 0 listens.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stubs omit it

from farandole.errors import UsageError
from farandole.runtime.communicator import all_gather_text, broadcast_text
from farandole.runtime.world import World

Backend = Literal["gloo", "nccl"]
WantedBackend = Literal["auto", "gloo", "nccl"]
SIGNS = {"gloo": "gloo", "nccl": "NCCL"}  # in a library's own errors


def start(world: World, timeout_s: float, wanted: WantedBackend) -> Backend:
    """Make the ranks a process group over the library that is wanted, and return its name. Collective.

    Raises:
        UsageError: NCCL is wanted, and cannot be had.
    """
    backend = backend_of(wanted, _cards(world), dist.is_nccl_available())
    join_process_group(world, timeout_s, backend)
    assert dist.get_backend() == backend, "one that was there before"
    return backend


def backend_of(wanted: WantedBackend, cards: Sequence[str], has_nccl: bool) -> Backend:
    """Return the library that adds up the gradients: NCCL, unless gloo is wanted, if each rank has its own CUDA card.

    Args:
        cards: of all ranks, by name; "": the rank computes elsewhere.
        has_nccl: torch is built with NCCL.

    Raises:
        UsageError: NCCL is wanted, and cannot be had.
    """
    fits = has_nccl and all(cards) and len(set(cards)) == len(cards)
    if wanted == "nccl" and not fits:
        why = "some ranks have none, or share one" if has_nccl else "this torch is built without NCCL"
        raise UsageError(f"--backend nccl needs a CUDA card for each rank, and {why}: use --backend gloo")
    return "nccl" if fits and wanted != "gloo" else "gloo"


def _cards(world: World) -> list[str]:
    """Return each rank's CUDA card, by name. Collective."""
    card = world.place.card
    return all_gather_text(world.control, card.name if card and world.device.type == "cuda" else "")


def join_process_group(world: World, timeout_s: float, backend: Backend = "gloo") -> None:
    """Make the launch's ranks a process group of torch, once; rank 0 picks a free port and tells it. Collective."""
    if dist.is_initialized():
        return
    timeout = timedelta(seconds=timeout_s)
    host = "127.0.0.1" if world.local_size == world.size else socket.gethostname()
    store = None
    if world.rank == 0:
        store = TCPStore(host, 0, world.size, is_master=True, timeout=timeout, wait_for_workers=False)
    address = broadcast_text(world.control, f"{host}:{store.port}" if store else "")
    host, _, port = address.rpartition(":")
    store = store or TCPStore(host, int(port), world.size, is_master=False, timeout=timeout)
    dist.init_process_group(
        backend,
        store=store,
        rank=world.rank,
        world_size=world.size,
        timeout=timeout,
        device_id=world.device if backend == "nccl" else None,
    )
