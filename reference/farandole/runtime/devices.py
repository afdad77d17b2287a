"""Which device a rank computes on, how many threads it may use, and its random numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from farandole.errors import UsageError
from farandole.runtime.processes import available_cores


def choose(wanted: str, local_rank: int) -> torch.device:
    """The rank's device.

    Args:
        wanted: "cpu"; "cuda", one card per local rank, shared round-robin when there are fewer
            cards than ranks; "auto", cuda where there is one.

    Raises:
        UsageError: "cuda" without a usable card.
    """
    cards = torch.cuda.device_count() if wanted != "cpu" else 0
    if wanted == "cuda" and not cards:
        raise UsageError("--device cuda: no CUDA device is usable here; use --device cpu")
    return torch.device("cuda", local_rank % cards) if cards else torch.device("cpu")


def describe(device: torch.device) -> str:
    """The device as the record names it: cpu, or cuda and the card."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"


def limit_threads(local_size: int) -> int:
    """Give each of the host's `local_size` ranks its part of the cores, at least one; returns it.

    To torch and to numpy's linear algebra, whose threads would else keep each other from the cores while they wait.
    """
    threads = max(1, available_cores() // local_size)
    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")
    return threads


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch on every rank: equal seeds give equal initial models.

    Args:
        seed: not negative; taken modulo 2⁶⁴, since a method may derive seed + 1 from the largest seed.
    """
    seed %= 2**64  # torch's range; numpy's legacy generator accepts words of 32 bits
    random.seed(seed)
    np.random.seed([seed % 2**32, seed // 2**32])
    _seed_torch(seed)


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Seed torch's generator for this rank, and for the step from which it begins: no two draw the same numbers."""
    _seed_torch(((seed * 1_000_003 + step) * 1_009 + rank) % 2**64)


def _seed_torch(seed: int) -> None:
    """As `torch.manual_seed`, whose first call without a card takes 5 ms: it describes the stack for when one comes."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def on_host(tensor: Tensor) -> Tensor:
    """Contiguous, and where numpy and MPI can read it: `tensor` itself where it is so already, else a copy."""
    if tensor.device.type == "cpu":
        return tensor.detach().contiguous()
    return empty_on_host(tensor.shape, tensor.dtype, tensor.device).copy_(tensor.detach())


def empty_on_host(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory on the host for what goes to or comes from `device`; pinned, if that is a GPU."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")
