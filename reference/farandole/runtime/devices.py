"""Which device a rank computes on, how many threads it may use, its random numbers, and memory for what it exchanges.

What is particular to a kind of device stands here. Everything else distinguishes the CPU, whose memory MPI and numpy
read, from a card, whose memory they do not: `device.type != "cpu"`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from farandole.runtime.processes import available_cores

NOT_CARDS = ("mps",)  # accelerators that compute in the host's memory
CUBLAS, CUBLAS_ORDERED = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"  # one workspace for each stream
ON_HOST, ON_CARD = "random", "random on the card"  # names of generators' states


def kind_of_card() -> str | None:
    """Return the kind of this machine's cards, "cuda" or another accelerator with its own memory; None: no cards."""
    if torch.cuda.is_available():  # asks the driver; counting alone finds cards for which it is too old
        return "cuda"
    found = torch.accelerator.current_accelerator(check_available=True)
    return None if found is None or found.type in NOT_CARDS else found.type


def warm_up(device: torch.device) -> None:
    """Make `device` this process's own, and start its libraries, which may take seconds on a card the first time.

    Before anything that measures how long a rank makes no move (`recovery.heartbeat`). Without it whatever a library
    does on "the" card would be done on card 0, which is another rank's.
    """
    if device.type == "cpu":
        return
    torch.accelerator.set_device_index(device)
    values = torch.ones(1, 1, 8, 8, device=device, requires_grad=True)
    (torch.conv2d(values, values) + (values @ values).sum()).sum().backward()
    finish(device)


def describe(device: torch.device) -> str:
    """Return the device as the record names it: cpu, or the kind of card, as cuda, and its name."""
    if device.type == "cpu":
        return "cpu"
    return f"{device.type} ({torch.get_device_module(device).get_device_name(device)})"


def make_reproducible(device: torch.device) -> None:
    """Have a card's libraries add up in the same order each time, and in full precision. The CPU's do.

    Call it before the card computes: CUBLAS_WORKSPACE_CONFIG is read once. Torch's own kernels that add up by atomics,
    as the backward pass of fused attention in float32, do so still: `torch.use_deterministic_algorithms` changes that,
    and refuses operations for which there is no other kernel.
    """
    if device.type != "cpu":
        os.environ.setdefault(CUBLAS, CUBLAS_ORDERED)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def arithmetic() -> str:
    """Return what `make_reproducible` has set, for the record."""
    return f"cudnn.deterministic, no TF32, {CUBLAS}={os.environ.get(CUBLAS, CUBLAS_ORDERED)}"


def finish(device: torch.device) -> None:
    """Wait until the device has done what this thread has given to its current stream.

    A card's kernels run on after the call that started them. Copies on other streams may continue.
    """
    if device.type != "cpu":
        torch.accelerator.current_stream(device).synchronize()


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
    """Seed torch. Without a card the first `torch.manual_seed` takes 5 ms: it keeps the stack for when one comes."""
    torch.default_generator.manual_seed(seed)
    if kind := kind_of_card():
        torch.get_device_module(kind).manual_seed_all(seed)


def random_state(device: torch.device) -> Tensor:
    """Return the state of the generator whose numbers layers on this device draw."""
    if device.type == "cpu":
        return torch.get_rng_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Continue with the state that `random_state` has returned."""
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of all generators that a rank on `device` draws from, by name: the host's, and the card's."""
    states = {ON_HOST: torch.get_rng_state()}
    if device.type != "cpu":
        states[ON_CARD] = random_state(device)
    return states


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Continue with what `random_states` has returned, among other things; a card's only if a card's was kept."""
    torch.set_rng_state(states[ON_HOST])
    if ON_CARD in states and device.type != "cpu":
        set_random_state(states[ON_CARD], device)


def on_host(tensor: Tensor) -> Tensor:
    """Contiguous, and where numpy and MPI can read it: `tensor` itself where it is so already, else a copy."""
    if tensor.device.type == "cpu":
        return tensor.detach().contiguous()
    return empty_on_host(tensor.shape, tensor.dtype, tensor.device).copy_(tensor.detach())


def empty_on_host(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory on the host for what goes to or comes from `device`; pinned, if that is a GPU."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type != "cpu")
