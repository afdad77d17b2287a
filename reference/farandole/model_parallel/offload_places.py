"""Where `activation_offload` keeps activations: the host's memory, or a file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from farandole.errors import UsageError
from farandole.runtime.devices import empty_on_host


class Place(Protocol):
    """Keeps what one layer has left; both methods are called in a thread, each once."""

    def put(self, values: Sequence[Tensor]) -> None:
        """Keep copies of these, which are bytes on a device."""

    def get(self, into: Sequence[Tensor]) -> None:
        """Copy them back, in the same order, and keep them no longer."""


class Host:
    """The host's memory."""

    def __init__(self) -> None:
        self._copies: list[Tensor] = []

    def put(self, values: Sequence[Tensor]) -> None:
        self._copies = [
            empty_on_host(each.shape, each.dtype, each.device).copy_(each, non_blocking=True) for each in values
        ]

    def get(self, into: Sequence[Tensor]) -> None:
        for each, copy in zip(into, self._copies, strict=True):
            each.copy_(copy, non_blocking=True)
        self._copies = []  # torch frees pinned memory after the copies from it


class File:
    """An unnamed file in the folder for temporary files (TMPDIR): it is gone however a rank ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - `get` closes it

    def put(self, values: Sequence[Tensor]) -> None:
        try:
            for each in values:
                left = each.cpu().numpy().data
                while left:
                    left = left[self._file.write(left) :]
        except OSError as error:
            raise UsageError(
                f"--offload-activations disk: {error.strerror}: {tempfile.gettempdir()} cannot take the activations; "
                "set TMPDIR to a folder with more space"
            ) from error

    def get(self, into: Sequence[Tensor]) -> None:
        self._file.seek(0)
        for each in into:
            values = each if each.device.type == "cpu" else torch.empty(each.shape, dtype=each.dtype)
            left = values.numpy().data
            while left:
                left = left[self._file.readinto(left) :]
            if values is not each:
                each.copy_(values)
        self._file.close()


PLACES: dict[str, type[Host] | type[File]] = {"host": Host, "disk": File}
