"""A rank as mpirun started it: it requests from the fork server (`fork_server`) a fork that does its work.

One of these starts for each rank of a launch, as a script in a Python without site-packages (`rank_starter.command`).
It imports as little as possible. The modules `signal` and `socket` alone would take as long as everything else here,
Python's own start included; so do `typing` and `json`.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what the modules signal and socket make convenient
import _socket as socket
import marshal
import os
import resource
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
        state = marshal.dumps(process_state())
        streams = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("3i", *STREAMS))
        connection.sendmsg([NUMBER.pack(len(state))], [streams])
        connection.sendall(state)
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
    """Return the state that another process must take over to do this one's work.

    Where this one has no site-packages, "path" is None: it would be that of any other Python with this environment.
    """
    umask = os.umask(0)
    os.umask(umask)
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "argv": sys.argv,
        "path": None if sys.flags.no_site else sys.path,
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


if __name__ == "__main__":
    run()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "farandole.runtime", *sys.argv[1:]])
