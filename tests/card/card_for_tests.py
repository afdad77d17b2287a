"""The device "card" of torch: what `card.cpp` is to Python. torch imports it by the entry point that `build` writes.

FARANDOLE_TEST_CARDS             how many there are (default 2)
FARANDOLE_TEST_CARD_KERNEL_US    how long a kernel keeps its stream busy (default 0)
"""

from __future__ import annotations

import ctypes
import types
from pathlib import Path

import torch

NAME = "card"


class Counts(ctypes.Structure):
    """The counts of this process so far, as `card::Counts`."""

    _fields_ = [
        (name, ctypes.c_long)
        for name in ("bytes_in", "bytes_out", "late_in", "late_out", "kernels", "stream_waits", "device_waits")
    ]


def load() -> None:
    """Register the device, and the module `torch.card`."""
    library = ctypes.CDLL(str(Path(__file__).parent / "card.so"))
    library.card_random_state.restype = ctypes.c_size_t
    library.card_for_library.restype = ctypes.c_void_p
    library.card_counts.restype = ctypes.POINTER(Counts)
    library.card_register()
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, module(library))
    torch.utils.generate_methods_for_privateuse1_backend()


def module(library: ctypes.CDLL) -> types.ModuleType:
    """Return what `torch.get_device_module("card")` returns, with the functions that `torch.cuda` has, too."""
    size = library.card_random_state(0, None, False)

    def number(device: object = None) -> int:
        if isinstance(device, int):
            return device
        index = None if device is None else torch.device(device).index  # type: ignore[arg-type]
        return torch.accelerator.current_device_index() if index is None else index

    def get_rng_state(device: object = None) -> torch.Tensor:
        state = torch.empty(size, dtype=torch.uint8)
        library.card_random_state(number(device), ctypes.c_void_p(state.data_ptr()), False)
        return state

    def set_rng_state(state: torch.Tensor, device: object = None) -> None:
        library.card_random_state(number(device), ctypes.c_void_p(state.data_ptr()), True)

    def manual_seed_all(seed: int) -> None:
        for card in range(library.card_count()):
            library.card_seed(card, ctypes.c_uint64(seed % 2**64))

    def for_library(tensor: torch.Tensor) -> torch.Tensor:
        """Return the same memory as a library sees it that reads it on the card, as a CUDA-aware MPI does."""
        if tensor.device.index != number():
            raise RuntimeError("card: the calling thread has another card than the tensor")
        if not tensor.numel():
            return torch.empty(0, dtype=tensor.dtype)
        address = library.card_for_library(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes))
        if address is None:
            raise RuntimeError("card: a library is given memory that a kernel or a copy still uses")
        words = (ctypes.c_char * tensor.nbytes).from_address(address)
        return torch.frombuffer(words, dtype=tensor.dtype)

    made = types.ModuleType(f"torch.{NAME}")
    made.__dict__.update(
        device_count=library.card_count,
        is_available=lambda: library.card_count() > 0,
        is_initialized=lambda: True,
        _is_in_bad_fork=lambda: False,
        current_device=lambda: torch.accelerator.current_device_index(),
        set_device=lambda device: torch.accelerator.set_device_index(number(device)),
        get_device_name=lambda device=None: "for tests",
        synchronize=lambda device=None: library.card_synchronise(number(device)),
        current_stream=lambda device=None: torch.accelerator.current_stream(number(device)),
        get_rng_state=get_rng_state,
        set_rng_state=set_rng_state,
        manual_seed_all=manual_seed_all,
        manual_seed=manual_seed_all,
        mem_get_info=lambda device=None: (2**32, 2**32),
        for_library=for_library,
        get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
        counts=lambda: {name: getattr(library.card_counts().contents, name) for name, _ in Counts._fields_},
    )
    return made
