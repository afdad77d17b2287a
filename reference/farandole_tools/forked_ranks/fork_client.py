"""The rank as mpirun started it, which asks the warm process (`warm`) for a copy that does its work.

Four of these start with every launch: what they import is kept to the least, for `typing` or `json` alone would take as
long as all else here.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys

ADDRESS = "FARANDOLE_WARM"  # in the environment: which Python it is, and where it listens
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
NUMBER = struct.Struct("=q")
STREAMS = (0, 1, 2)


def ask() -> None:
    """Have this process's work done by a copy of the warm process, and end as that ends; return if there is none."""
    executable, _, path = os.environ.get(ADDRESS, "").rpartition(":")
    if executable != sys.executable or "SLURM_JOB_ID" in os.environ:
        return
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        text = repr(what_makes_this_process()).encode()
        socket.send_fds(connection, [NUMBER.pack(len(text))], STREAMS)
        connection.sendall(text)
        copy = _number(connection)
    except OSError:
        return

    def pass_on(number: int, _: object) -> None:
        try:
            os.kill(copy, number)
        except ProcessLookupError:
            return  # it has ended in this moment

    for each in PASSED_ON:
        signal.signal(each, pass_on)
    _end_like(_number(connection))


def what_makes_this_process() -> dict[str, object]:
    """All that another process must take over to be this one, as Python's literals."""
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
        "ignored": [int(number) for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN],
    }


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # if there is a core file it is the copy's
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _number(connection: socket.socket) -> int:
    data = connection.recv(NUMBER.size)
    if len(data) < NUMBER.size:
        raise ConnectionError("the other side has ended")
    return int(NUMBER.unpack(data)[0])
