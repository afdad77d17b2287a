"""Arrays that two processes share by copies, and that keep their identity.

The array that a side has received is the counterpart of the one that was sent. Before each message the bytes that have
changed on one side are copied to the other.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Raw:
    """An array's bytes, which arrive as a buffer that nothing else holds: no copy that tracemalloc would count."""

    array: np.ndarray


@dataclass
class Temporary:
    """Arrays that live for one call, by number: those sent with it, or those received and their checksums then."""

    arrays: dict[int, np.ndarray] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)

    def hold(self, arguments: Sequence[Any]) -> None:
        """Find arguments that share memory: their whole base is sent, and they are views of it."""
        arrays = [each for each in arguments if isinstance(each, np.ndarray) and not each.dtype.hasobject]
        for index, one in enumerate(arrays):
            if any(other is not one and np.may_share_memory(one, other) for other in arrays[index + 1 :]):
                root = root_of(one)
                if not self.holds(root):
                    self.arrays[len(self.arrays)] = root

    def holds(self, array: np.ndarray) -> bool:
        return any(array is each for each in self.arrays.values())

    def number(self, array: np.ndarray) -> int:
        """Return the number of an array, a new one if it has none."""
        known = [number for number, each in self.arrays.items() if each is array]
        number = known[0] if known else len(self.arrays)
        self.arrays[number] = array
        return number

    def changed(self) -> list[list[Any]]:
        """Return the number and the bytes of each received array that has changed since."""
        return [[number, Raw(array)] for number, array in self.arrays.items() if checksum(array) != self.before[number]]


class SharedArrays:
    """The arrays that were sent or received, by token: positive on the side on which the array was first."""

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[np.ndarray, int]] = {}  # token → array, checksum at the last message
        self._tokens: dict[int, int] = {}  # id → token
        self._next = 1

    def token(self, array: np.ndarray) -> int | None:
        return self._tokens.get(id(array))

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, token: int) -> np.ndarray:
        return self._arrays[token][0]

    def add(self, array: np.ndarray, token: int | None = None) -> int:
        """Keep an array, by the token that the other side has given it, or by a new one; return the token."""
        if token is None:
            token = self._next
            self._next += 1
        self._tokens[id(array)] = token
        self._arrays[token] = array, checksum(array)
        return token

    def news(self, blobs: list[Any]) -> tuple[list[int], list[list[int]]]:
        """Return what the other side has to know before the next message, and add what has changed to `blobs`.

        Returns:
            The tokens of arrays no longer in use here; token and number of the blob of those that have changed.
        """
        forget = [token for token, count in references(self._arrays).items() if count <= ALONE]
        changed = []
        for token, (array, before) in self._arrays.items():
            if (now := checksum(array)) != before:
                self._arrays[token] = array, now
                changed.append([token, len(blobs)])
                blobs.append(bytes_of(array))
        for token in forget:  # after its last change has been noted
            self._forget(token)
        return forget, changed

    def take_news(self, forget: Sequence[int], changed: Sequence[Sequence[int]], blobs: Sequence[Any]) -> None:
        """Do what the other side's `news` say; there a token has the other sign."""
        for token, blob in changed:
            array, _ = self._arrays[-token]
            fill(array, blobs[blob])
            self._arrays[-token] = array, checksum(array)
        for token in forget:
            if -token in self._arrays:
                self._forget(-token)

    def _forget(self, token: int) -> None:
        del self._tokens[id(self._arrays[token][0])]
        del self._arrays[token]


def references(arrays: dict[int, tuple[np.ndarray, int]]) -> dict[int, int]:
    return {token: sys.getrefcount(array) for token, (array, _) in arrays.items()}


ALONE = references({0: (np.empty(1), 0)})[0]  # references to an array that nothing but the table holds


def root_of(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def bytes_of(array: np.ndarray) -> Any:
    """Return a view of the elements, in the order in which they are sent: as they lie, if they lie together."""
    if not array.flags.c_contiguous:
        array = array.T if array.flags.f_contiguous else np.ascontiguousarray(array)
    whole: Any = array.reshape(-1).view(np.uint8)
    return memoryview(whole) if array.size else b""


def checksum(array: np.ndarray) -> int:
    return zlib.crc32(bytes_of(array)) if not array.dtype.hasobject else 0


def fill(array: np.ndarray, content: Any) -> None:
    """Copy bytes into an array, also one that is not to be written to."""
    if not array.size:
        return
    writeable = array.flags.writeable
    if not writeable:  # to set it is refused where the memory is not numpy's, as that of a tensor
        array.flags.writeable = True
    flat = np.frombuffer(content, array.dtype)
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        array.T[...] = flat.reshape(array.T.shape)
    else:
        array[...] = flat.reshape(array.shape)
    if not writeable:
        array.flags.writeable = False
