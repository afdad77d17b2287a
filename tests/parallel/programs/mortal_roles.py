"""A training with a parameter server in which ranks die between two messages: SCENARIO RANK@PLACE@N [OPTION ...].

Places, each at its n-th time: "asked" (a replicated server has received a header, but not its payload), "taken" (it has
received all of a request), "handed-on" (it has forwarded it to the next server of the chain), "answered" (it has
carried it out), "told" (the manager has received a report), "stop" (the manager has sent STOP to n ranks), "parting"
(all work is done, and the live ranks are about to regroup).

At the place "behind" a rank does not die: a rank that may succeed the manager receives the workers' reports only when
it has succeeded it, as if they had been waiting for it until then.
"""

import os
import signal
import sys
from itertools import count

from mpi4py import MPI

from farandole.parameter_server import survivors
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.kv_server import KVServer
from farandole.parameter_server.manager import Manager
from farandole.parameter_server.message_queue import MessageQueue
from farandole.parameter_server.replicated_server import ReplicatedKVServer
from farandole.runtime.command_line import parse
from farandole.scenarios import load


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_around(holder: object, name: str, nth: int, *, after: bool, only: object = lambda *_: True) -> None:
    """Let this rank die before or after the n-th call of a method, or of a function, for which `only` holds."""
    original, calls = getattr(holder, name), count(1)

    def mortal(first: object, *arguments: object) -> object:
        last = only(*arguments) and next(calls) == nth
        if last and not after:
            die()
        result = original(first, *arguments)
        if last:
            die()
        return result

    setattr(holder, name, mortal)


def fall_behind() -> None:
    handle, on_failure, reports = Manager.handle, Manager.on_failure, []

    def late(self: Manager, header: Header) -> None:
        if header.kind == Kind.REPORT and not self.leads:
            reports.append(header)
        else:
            handle(self, header)

    def succeed(self: Manager) -> None:
        on_failure(self)
        while self.leads and reports:
            handle(self, reports.pop(0))

    Manager.handle, Manager.on_failure = late, succeed


def die_at(place: str, nth: int) -> None:
    if place == "asked":
        die_around(KVServer, "receive", nth, after=False)
    elif place == "taken":
        die_around(KVServer, "receive", nth, after=True)
    elif place == "handed-on":
        die_around(ReplicatedKVServer, "_forward", nth, after=True)
    elif place == "answered":
        die_around(ReplicatedKVServer, "handle", nth, after=True)
    elif place == "told":
        die_around(Manager, "handle", nth, after=False, only=lambda header: header.kind == Kind.REPORT)
    elif place == "stop":
        die_around(MessageQueue, "send", nth, after=True, only=lambda to, tag, header: header.kind == Kind.STOP)
    elif place == "parting":
        die_around(survivors, "ranks_within", nth, after=True)
    elif place == "behind":
        fall_behind()
    else:
        raise SystemExit(f"there is no place {place}")


scenario, deaths, *options = sys.argv[1:]
for death in deaths.split(","):
    rank, place, nth = death.split("@")
    if int(rank) == MPI.COMM_WORLD.rank:
        die_at(place, int(nth))
module = load(scenario)
module.main(parse(module.Config, options))
