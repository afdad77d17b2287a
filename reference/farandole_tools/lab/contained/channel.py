"""Messages of a text and raw bytes over a socket between two processes.

This file, and all that `wire` imports, runs inside the sandbox too, and imports numpy and the standard library alone.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from socket import socket
from typing import Any

LENGTHS = struct.Struct("<II")  # bytes of text, number of blobs
INBOX = 262_144  # bytes; messages lie in mappings, since tracemalloc must not count them as the submission's
MOST = 2**30  # bytes of one message
MOST_PARTS = 500  # of one system call


class Ended(Exception):
    """The other process has ended."""


class Malformed(Exception):
    """The other process sends what is no message."""


class Channel:
    """One end of a connected socket."""

    def __init__(self, connection: socket) -> None:
        self.connection = connection
        self._inbox = memoryview(mmap.mmap(-1, INBOX))
        self._start = self._end = 0  # what has arrived and is not read yet

    def send(self, text: bytes, blobs: Sequence[Any]) -> None:
        """Send one message.

        Args:
            blobs: bytes, or views of bytes.

        Raises:
            Ended: the other process has ended.
        """
        head = LENGTHS.pack(len(text), len(blobs)), struct.pack(f"<{len(blobs)}Q", *map(_size, blobs))
        parts = [*head, text, *blobs]
        try:
            sent = self.connection.sendmsg([part for part in parts if _size(part)][:MOST_PARTS])
            for part in parts:
                if sent < _size(part):
                    self.connection.sendall(memoryview(part)[sent:])
                sent = max(0, sent - _size(part))
        except OSError as error:
            raise Ended from error

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """Return the next message; its blobs are good until the one after it is read.

        Raises:
            Ended, Malformed: there is none.
        """
        if self._start == self._end:
            self._start = self._end = 0
        length, number = LENGTHS.unpack(self._read(LENGTHS.size))
        if length > MOST or number > MOST // 8:
            raise Malformed("a message that is too long")
        sizes = struct.unpack(f"<{number}Q", self._read(8 * number))
        if sum(sizes) > MOST:
            raise Malformed("a message that is too long")
        return bytes(self._read(length)), [self._read(size) for size in sizes]

    def _read(self, size: int) -> memoryview:
        while size <= INBOX - self._start:
            if self._end - self._start >= size:
                self._start += size
                return self._inbox[self._start - size : self._start]
            self._end += self._received(self._inbox[self._end :])
        view = memoryview(mmap.mmap(-1, size))
        read = self._end - self._start
        view[:read] = self._inbox[self._start : self._end]
        self._start = self._end
        while read < size:
            read += self._received(view[read:])
        return view

    def _received(self, place: memoryview) -> int:
        try:
            got = self.connection.recv_into(place)
        except OSError as error:
            raise Ended from error
        if not got:
            raise Ended
        return got


def _size(part: Any) -> int:
    return part.nbytes if isinstance(part, memoryview) else len(part)
