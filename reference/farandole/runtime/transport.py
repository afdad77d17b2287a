"""The way of messages between a card and MPI: `--card-transport`.

    staged    card → pinned memory of the host → MPI → pinned memory → card       with any MPI
    direct    card → MPI → card                                                   with an MPI that reads a card's memory

The two ways of a flat gradient are in `buffers` and `copy_stream`; a vector that MPI reads on the card is a
`card_vector.CardVector`. Source: Wang et al., "MVAPICH2-GPU: optimized GPU to GPU communication for InfiniBand
clusters", 2011.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Literal

from farandole.errors import UsageError
from farandole.runtime.options import RunOptions

if TYPE_CHECKING:  # a program that only asks MPI needs no torch
    import torch

Transport = Literal["staged", "direct"]
# Extensions by which an MPI says that it reads the memory of a kind of card.
QUERIES = {"cuda": "MPIX_Query_cuda_support", "rocm": "MPIX_Query_rocm_support"}


def mpi_reads(kind: str) -> bool:
    """Return whether this process's MPI says that it reads and writes the memory of this kind of card, of `QUERIES`."""
    from mpi4py import MPI

    for library in (MPI.__file__, None):  # None: what this process has loaded; mpi4py may load MPI without linking it
        if kind in QUERIES and (query := getattr(ctypes.CDLL(library), QUERIES[kind], None)):
            return bool(query())
    return False


def of_rank(options: RunOptions, device: torch.device) -> Transport | None:
    """Return the transport of a rank that computes on `device`; None: on the CPU, whose memory MPI reads anyway.

    Raises:
        UsageError: as `chosen`.
    """
    needs_host = options.needs_host_memory()
    if not needs_host and options.resends:
        needs_host = "messages that may be sent again are kept in the host's memory"
    reads = device.type != "cpu" and options.card_transport != "staged" and mpi_reads(_kind(device))
    return chosen(options.card_transport, device.type != "cpu", reads, needs_host)


def chosen(
    wanted: Literal["staged", "direct", "auto"], on_card: bool, mpi_reads_it: bool, needs_host: str
) -> Transport | None:
    """Return which transport a rank has; None: it computes on the CPU.

    Args:
        on_card: whether the rank computes on a card.
        mpi_reads_it: whether MPI reads that card's memory.
        needs_host: why what is sent has to lie in the host's memory; "": it need not.

    Raises:
        UsageError: direct is wanted, and is not possible.
    """
    if wanted == "direct":
        if needs_host:
            raise UsageError(f"--card-transport direct: {needs_host}; use --card-transport staged")
        if not on_card:
            raise UsageError("--card-transport direct is for cards, and this run computes on the CPU: leave it out")
        if not mpi_reads_it:
            raise UsageError(
                "--card-transport direct needs a CUDA-aware MPI, and this one does not say that it is: use "
                "--card-transport staged, or build the environment with the cluster's CUDA-aware MPI (farandole doctor)"
            )
    if not on_card:
        return None
    return "direct" if wanted != "staged" and mpi_reads_it and not needs_host else "staged"


def _kind(device: torch.device) -> str:
    """Return the kind of card as `QUERIES` has it: torch calls AMD's cards cuda, too."""
    import torch

    return "rocm" if device.type == "cuda" and torch.version.hip else device.type
