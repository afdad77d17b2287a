"""A rank's side of the process that forks sandboxes (`fork_server`): it requests one, waits for its end, or ends it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import suppress
from typing import Any

from farandole_tools.lab.contained.forks import LENGTH, STATUS

ADDRESS = "FARANDOLE_SANDBOXES"  # in the environment: the socket on which sandboxes are requested


class Fork:
    """A sandbox that was forked elsewhere, used like a `subprocess.Popen`."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def terminate(self) -> None:
        """Have it ended, with all that it has started."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    kill = terminate

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        self.connection.settimeout(timeout)
        try:
            status = self.connection.recv(STATUS.size, socket.MSG_WAITALL | socket.MSG_PEEK)
        except TimeoutError:
            raise subprocess.TimeoutExpired("a sandbox", timeout or 0.0) from None
        except OSError:
            status = b""
        return os.waitstatus_to_exitcode(*STATUS.unpack(status)) if len(status) == STATUS.size else 1


def fork(specification: dict[str, Any], output: int) -> Fork | None:
    """Have a sandbox forked whose program's output goes to the descriptor `output`; None if that is not possible."""
    if not (path := os.environ.get(ADDRESS)):
        return None
    text = json.dumps(specification).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        socket.send_fds(connection, [LENGTH.pack(len(text))], [output, *specification["descriptors"]])
        connection.sendall(text)
    except OSError:
        connection.close()
        return None
    return Fork(connection)
