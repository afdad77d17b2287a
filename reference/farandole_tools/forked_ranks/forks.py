"""The fork server's own process: it imports, waits for requests, and forks.

    python -P -m farandole_tools.forked_ranks.forks FOLDER LISTENER [MODULE ...]

started by `fork_server.start`. LISTENER is the number of a descriptor, the socket in FOLDER on which ranks request
forks. When the process that has started this one ends, so does standard input, and with it this process and its forks.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import marshal
import os
import resource
import select
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, NoReturn

from farandole_tools.forked_ranks import huge_pages
from farandole_tools.forked_ranks.fork_client import FORWARDED, LIMITS, NUMBER, STREAMS

IMPORTED = ("torch", "cyclopts.validators", "multiprocessing.synchronize")  # by nearly every rank
# By the ranks of some programs only: imported after the first fork that has imported it. Of torch only these: a module
# that initialises CUDA when it is imported would leave all later forks without a GPU.
LATER = ("torch.fx.experimental.symbolic_shapes", "torch._dynamo")
LATER_OF = ("farandole", "scipy", "sklearn")  # and all modules of these packages
# Of this package, before the first fork: with what they import, nearly all that most methods need. None of this
# package's modules initialises MPI.
OWN = (
    "farandole.compression.choices",
    "farandole.data_parallel.mixed_precision",
    "farandole.data_parallel.training",
    "farandole.decentralised.graph_file",
    "farandole.model_parallel.parts",
    "farandole.parameter_server.classification",
    "farandole.recovery.data_parallel",
    "farandole.report.table",
    "farandole.runtime.command_line",
    "farandole.scenarios",
)

LAUNCH = "FARANDOLE_RANK_LAUNCH"  # in a rank's environment: the number of its launch (`farandole.runtime.rank`)
REQUESTS_WITHIN_S = 10.0  # a rank that is stopped in the middle of its request keeps others waiting for so long


@dataclass(frozen=True)
class Request:
    """A request for a fork: the requesting rank's state (`fork_client.process_state`), and its standard streams."""

    state: dict[str, Any]
    streams: list[int]


@dataclass(frozen=True)
class Fork:
    """A forked process: its process id, a descriptor that becomes readable when it ends, and the rank it works for."""

    pid: int
    end: int
    client: socket.socket


class ForkServer:
    """Imports torch, this package and `modules`, and forks a process for each rank that requests one.

    Attributes:
        path: where modules are searched for.
        own_path: the same without what PYTHONPATH puts in front.
        sources: of the package's modules, file → when it was changed.
    """

    def __init__(self, folder: str, listener: socket.socket, modules: Sequence[str] = ()) -> None:
        self.folder = folder
        for name in (*IMPORTED, *modules):
            importlib.import_module(name)
        self.path = list(sys.path)
        self.own_path = self.path[len(path_in_front(os.environ, os.getcwd())) :]
        self.sources: dict[str, int] = {}
        with suppress(ImportError, OSError, RuntimeError):  # where there is no MPI
            import mpi4py

            mpi4py.rc.initialize = False  # each fork does it (`rank.initialise_mpi`)
            importlib.import_module("mpi4py.MPI")
            for name in OWN:
                importlib.import_module(name)
            do_once_for_all()
            self.sources = changed([str(sys.modules[name].__file__) for name in own_modules()])
        gc.freeze()  # else the first collection in each fork would write to all of torch's objects, and so copy them
        self.settled = False  # whether its memory lies in huge pages
        self.imported, self.imported_by_fork = os.pipe()  # names of modules that forks had to import themselves
        self.listener = listener
        self.launch: str | None = None  # the last one that has requested a fork
        self.edited = False  # whether a file of the package was edited then
        self.forks: set[Fork] = set()
        self.events = selectors.DefaultSelector()
        self.events.register(listener, selectors.EVENT_READ, self._fork)
        self.events.register(sys.stdin, selectors.EVENT_READ, self._end)
        self.events.register(self.imported, selectors.EVENT_READ, self._learn)

    def serve(self) -> Request:
        """Serve requests for ever; in a fork, return the request that it is to do."""
        while True:
            waits_for_work = not self.settled and not self.forks
            ready = self.events.select(0 if waits_for_work else None)
            if not ready:  # not before ranks that wait already, as those of a single launch do, nor beside a launch
                huge_pages.collapse()
                self.settled = True
            for key, _ in ready:
                if request := key.data():
                    return request  # type: ignore[no-any-return]

    def _fork(self) -> Request | None:
        client, _ = self.listener.accept()
        client.settimeout(REQUESTS_WITHIN_S)
        try:
            request = _request(client)
        except (OSError, ValueError):  # it has died, or stopped, before it had sent the whole request
            client.close()
            return None
        is_edited = self._is_edited(request.state["environment"].get(LAUNCH))
        try:
            pid = os.fork()
        except OSError:  # no memory, or too many processes: the rank does its work itself
            _close_all(request.streams)
            client.close()
            return None
        if not pid:
            client.close()
            self._close()
            atexit.register(tell_imported, self.imported_by_fork, next(reversed(sys.modules)))
            if request.state["path"] is None:
                in_front = path_in_front(request.state["environment"], request.state["folder"])
                request.state["path"] = [*dict.fromkeys([*in_front, *self.own_path])]
            if request.state["path"] != self.path or is_edited:
                forget_own_modules()
            return request
        _close_all(request.streams)
        fork = Fork(pid, os.pidfd_open(pid), client)
        self.forks.add(fork)
        self.events.register(fork.end, selectors.EVENT_READ, partial(self._ended, fork))
        self.events.register(client, selectors.EVENT_READ, partial(self._kill, fork))  # closed: the rank has died
        with suppress(OSError):
            client.sendall(NUMBER.pack(pid))
        return None

    def _is_edited(self, launch: str | None) -> bool:
        """Return whether a file of the package was edited. All ranks of a launch get the same answer.

        In a fork it would take twice as long, since the fork would have to copy what it looks at.
        """
        if launch is None or launch != self.launch:
            self.launch, self.edited = launch, changed(self.sources) != self.sources
        return self.edited

    def _learn(self) -> None:
        """Import what forks had to, so that the next ones need not."""
        for name in set(os.read(self.imported, select.PIPE_BUF).decode().split()):
            with suppress(Exception):  # it cannot be imported here, or two reads have divided its name
                importlib.import_module(name)
        self.sources = changed([str(sys.modules[name].__file__) for name in own_modules()]) | self.sources
        gc.freeze()

    def _kill(self, fork: Fork) -> None:
        if fork in self.forks:
            self.events.unregister(fork.client)
            os.kill(fork.pid, signal.SIGKILL)

    def _ended(self, fork: Fork) -> None:
        _, status = os.waitpid(fork.pid, 0)
        with suppress(OSError):  # the rank has died
            fork.client.sendall(NUMBER.pack(status))
        with suppress(KeyError):
            self.events.unregister(fork.client)
        self.events.unregister(fork.end)
        self.forks.remove(fork)
        _close(fork)

    def _end(self) -> NoReturn:
        """End: the process that has started this one has ended."""
        for fork in [*self.forks]:
            os.kill(fork.pid, signal.SIGKILL)
            self._ended(fork)
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)

    def _close(self) -> None:
        """In a fork: close what only the server needs."""
        self.events.close()
        self.listener.close()
        os.close(self.imported)
        for fork in self.forks:
            _close(fork)


def _close(fork: Fork) -> None:
    os.close(fork.end)
    fork.client.close()


def _close_all(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        os.close(each)


def _request(client: socket.socket) -> Request:
    """Return what the client sends.

    Raises:
        OSError, ValueError: it ends, or stops, before it has sent all.
    """
    header, streams, _, _ = socket.recv_fds(client, NUMBER.size, len(STREAMS))
    try:
        if len(header) < NUMBER.size:
            raise ConnectionError("the rank has died")
        (length,) = NUMBER.unpack(header)
        with client.makefile("rb") as file:
            state = file.read(length)
        if len(state) < length:
            raise ConnectionError("the rank has died")
        return Request(marshal.loads(state), streams)
    except BaseException:
        _close_all(streams)
        raise


def become(request: Request) -> None:
    """In a fork: take over the requesting rank's state and streams."""
    state = request.state
    for given, own in zip(request.streams, STREAMS, strict=True):
        os.dup2(given, own)
        os.close(given)
    os.environ.clear()
    os.environ.update(state["environment"])
    os.chdir(state["folder"])
    os.umask(state["umask"])
    os.sched_setaffinity(0, state["cores"])
    for limit, values in zip(LIMITS, state["limits"], strict=True):
        resource.setrlimit(limit, tuple(values))
    for number in FORWARDED:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if int(number) in state["ignored"] else default)
    sys.argv, sys.path = state["argv"], state["path"]
    draw_seeds()


def path_in_front(environment: Mapping[str, str], folder: str) -> list[str]:
    """Return the folders that PYTHONPATH puts in front of the path of a Python that starts in `folder`."""
    names = environment["PYTHONPATH"].split(os.pathsep) if environment.get("PYTHONPATH") else []
    return [*dict.fromkeys(os.path.abspath(os.path.join(folder, name)) for name in names)]


def do_once_for_all() -> None:
    """Do what takes long only for the first time in a process: each fork would do it anew, in 10 ms."""
    import threadpoolctl
    from rich.console import Console
    from rich.table import Table

    from farandole.runtime import command_line, options, rank_end

    rank_end.leave_torch_as_it_is()  # at its end each fork would look at torch's 174 exit functions
    threadpoolctl.ThreadpoolController()  # looks up where each of 150 libraries lies (`devices.limit_threads`)
    command_line.parse(options.RunOptions, ["--seed=0", "--device=cpu"])
    table = Table("run")
    table.add_row("0")
    Console(file=io.StringIO()).print(table)


def draw_seeds() -> None:
    """In a fork: seed anew what was seeded at random when it was imported, as Python does by itself for `random`."""
    import torch

    torch.default_generator.seed()
    if numpys := sys.modules.get("numpy.random"):
        numpys.seed()


def tell_imported(server: int, last_shared: str) -> None:
    """At a fork's end: tell the server what this process had to import of LATER and LATER_OF, in order.

    Args:
        server: the descriptor that the server reads.
        last_shared: the last module that the server had imported. Those before it are left alone, since each would
            cost a copy of a page that this process shares with the server: 4 ms for all.
    """
    found = [*takewhile(lambda name: name != last_shared, reversed(sys.modules))][::-1]
    own = [name for name in found if name in LATER or name.partition(".")[0] in LATER_OF]
    if not own:
        return
    with suppress(OSError):  # the server has ended, or the program has closed all descriptors
        # One write, which no other fork's can divide. The first names import most of those that are cut off.
        os.write(server, " ".join(own).encode()[: select.PIPE_BUF - 1] + b" ")


def own_modules() -> list[str]:
    """Return the names of the imported modules of this project."""
    return [name for name in sys.modules if name.partition(".")[0] in ("farandole", "farandole_tools")]


def forget_own_modules() -> None:
    """In a fork: have this project's modules imported anew."""
    for name in own_modules():
        del sys.modules[name]


def changed(files: Iterable[str]) -> dict[str, int]:
    """Return file → when it was changed, in nanoseconds; 0 where it is gone."""
    times = {}
    for file in files:
        try:
            times[file] = os.stat(file).st_mtime_ns
        except OSError:
            times[file] = 0
    return times


if __name__ == "__main__":
    become(ForkServer(sys.argv[1], socket.socket(fileno=int(sys.argv[2])), sys.argv[3:]).serve())
    from farandole.runtime import processes, rank

    processes.end_with_parent()
    rank.main()
