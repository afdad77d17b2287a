"""The process from which sandboxes with torch are forked: it imports, waits for requests, and forks.

    forks.main(PATH, FOLDER, LISTENER, MODULE …)

`fork_server.start` starts it. PATH is that of the forks, and LISTENER the number of a descriptor, the socket in FOLDER
on which ranks request sandboxes. When the grader ends, so does standard input, and with it this process and its forks.

This file and `start` run before a submission in the same process, so they import the standard library alone.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from farandole_tools.forked_ranks import huge_pages
from farandole_tools.lab.contained import start

LENGTH = struct.Struct("<I")  # of a request
STATUS = struct.Struct("<i")  # of a fork that has ended
CREDENTIALS = struct.Struct("iii")
REQUESTS_WITHIN_S = 10.0
MOST_DESCRIPTORS = 8


@dataclass(frozen=True)
class Request:
    """A sandbox to build, and the descriptors for it: that of its output, and those that it inherits."""

    specification: dict[str, Any]
    descriptors: list[int]


@dataclass(frozen=True)
class Fork:
    """A forked process: its process id, a descriptor that becomes readable when it ends, and the rank it works for."""

    pid: int
    end: int
    client: socket.socket


class ForkServer:
    """Forks a process for each sandbox that a rank requests."""

    def __init__(self, folder: str, listener: socket.socket) -> None:
        self.folder, self.listener = folder, listener
        self.forks: set[Fork] = set()
        self.events = selectors.DefaultSelector()
        self.events.register(listener, selectors.EVENT_READ, self._fork)
        self.events.register(sys.stdin, selectors.EVENT_READ, self._end)

    def serve(self) -> Request:
        """Serve requests for ever; in a fork, return the request that it is to do."""
        while True:
            for key, _ in self.events.select():
                if request := key.data():
                    return request  # type: ignore[no-any-return]

    def _fork(self) -> Request | None:
        client, _ = self.listener.accept()
        client.settimeout(REQUESTS_WITHIN_S)
        try:
            request = received(client)
            pid = os.fork()
        except (OSError, ValueError):  # the rank has died, a sandbox requests another one, or there is no memory
            client.close()
            return None
        if not pid:
            return request
        for each in request.descriptors:
            os.close(each)
        fork = Fork(pid, os.pidfd_open(pid), client)
        self.forks.add(fork)
        self.events.register(fork.end, selectors.EVENT_READ, partial(self._ended, fork))
        self.events.register(client, selectors.EVENT_READ, partial(self._stop, fork))  # closed: the rank has died
        return None

    def _stop(self, fork: Fork) -> None:
        if fork in self.forks:
            self.events.unregister(fork.client)
            os.kill(fork.pid, signal.SIGTERM)  # so it can end all that has been started in the sandbox

    def _ended(self, fork: Fork) -> None:
        _, status = os.waitpid(fork.pid, 0)
        with suppress(OSError):  # the rank has died
            fork.client.sendall(STATUS.pack(status))
        with suppress(KeyError):
            self.events.unregister(fork.client)
        self.events.unregister(fork.end)
        self.forks.remove(fork)
        os.close(fork.end)
        fork.client.close()

    def _end(self) -> NoReturn:
        """End: the grader has ended."""
        for fork in [*self.forks]:
            os.kill(fork.pid, signal.SIGTERM)
            self._ended(fork)
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)


def received(client: socket.socket) -> Request:
    """Return what the client sends.

    Raises:
        OSError, ValueError: it is a sandbox itself, or ends or stops before it has sent all.
    """
    peer, _, _ = CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    if descends_from(os.getpid(), peer):  # Landlock keeps no process from a socket of its own user
        raise ConnectionRefusedError("a sandbox requests another one")
    header, descriptors, _, _ = socket.recv_fds(client, LENGTH.size, MOST_DESCRIPTORS)
    try:
        with client.makefile("rb") as file:
            text = file.read(LENGTH.unpack(header)[0] if len(header) == LENGTH.size else 0)
        return Request(json.loads(text), descriptors)
    except BaseException:
        for each in descriptors:
            os.close(each)
        raise


def descends_from(ancestor: int, pid: int) -> bool:
    """Return whether the process `pid` has that ancestor, or is it."""
    while pid > 1 and pid != ancestor:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return pid == ancestor


def become(request: Request) -> NoReturn:
    """In a fork: build the sandbox, and run the program in it."""
    specification = request.specification
    keep_only(request.descriptors, [1, *specification["descriptors"]])
    os.dup2(1, 2)
    specification["parent"] = os.getppid()
    specification["run"] = partial(run, specification["program"], specification["environment"])
    specification["limits"]["DATA"] += data_bytes()
    start.run(specification)


def keep_only(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give these descriptors these numbers and close all others; standard input is empty."""
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD, max(numbers) + 1) for each in descriptors]
    for each in [int(name) for name in os.listdir("/proc/self/fd")]:
        if each not in moved:
            with suppress(OSError):  # the one by which the folder was read
                os.close(each)
    os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free: standard input
    for each, number in zip(moved, numbers, strict=True):
        os.dup2(each, number, inheritable=True)
        os.close(each)


def data_bytes() -> int:
    """Return the bytes that this process counts towards its limit of data."""
    with open("/proc/self/status", encoding="utf-8") as file:
        line = next(each for each in file if each.startswith("VmData"))
    return int(line.split()[1]) * 1024


def run(program: str, environment: dict[str, str]) -> NoReturn:
    """Run the text of a program as a new Python would."""
    os.environ.clear()
    os.environ.update(environment)
    code = 0
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def forget(package: str) -> None:
    """Have a package imported anew, from where the sandbox has it."""
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        del sys.modules[name]


def main(path: list[str], folder: str, listener: str, *modules: str) -> NoReturn:
    for name in modules:
        importlib.import_module(name)
    sys.path[:] = path
    huge_pages.collapse()
    gc.freeze()  # else the first collection in each fork would write to all of torch's objects, and so copy them
    request = ForkServer(folder, socket.socket(fileno=int(listener))).serve()
    forget("farandole_tools")
    become(request)
