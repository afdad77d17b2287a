"""A rank as mpirun started it: it requests from the fork server (`fork_server`) a fork that does its work.

One of these starts for each rank of a launch. It imports as little as possible: `typing` or `json` alone would take as
long as everything else here.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys

ADDRESS = "FARANDOLE_WARM"  # in the environment: the fork server's Python, and its socket
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
NUMBER = struct.Struct("=q")
STREAMS = (0, 1, 2)


def run(in_slurm: bool = False, server: str | None = None) -> None:
    """Have this process's work done by a fork, and end as the fork ends; return if there is no fork server.

    Args:
        in_slurm: in a Slurm job, too, whose processes Slurm then neither counts nor limits.
        server: the fork server's address; None: the one in the environment.
    """
    executable, _, path = (os.environ.get(ADDRESS, "") if server is None else server).rpartition(":")
    if executable != sys.executable or ("SLURM_JOB_ID" in os.environ and not in_slurm):
        return
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        text = repr(process_state()).encode()
        socket.send_fds(connection, [NUMBER.pack(len(text))], STREAMS)
        connection.sendall(text)
        fork = _number(connection)
    except OSError:
        return

    def forward(number: int, _: object) -> None:
        try:
            os.kill(fork, number)
        except ProcessLookupError:
            return  # the fork has just ended

    for each in FORWARDED:
        signal.signal(each, forward)
    _end_like(_number(connection))


def process_state() -> dict[str, object]:
    """What another process must take over to do this one's work, as Python literals."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "argv": sys.argv,
        "path": sys.path,
        "cores": sorted(os.sched_getaffinity(0)),
        "limits": [resource.getrlimit(limit) for limit in LIMITS],
        "umask": umask,
        "ignored": [int(number) for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN],
    }


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in FORWARDED:
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file is the fork's
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _number(connection: socket.socket) -> int:
    data = connection.recv(NUMBER.size)
    if len(data) < NUMBER.size:
        raise ConnectionError("the fork server has ended")
    return int(NUMBER.unpack(data)[0])
