"""A training with a parameter server in which ranks die between two messages: SCENARIO RANK@PLACE@N [OPTION ...].

Places, each at its n-th time: "header" (a replicated server has received a header, but not its payload), "received" (it
has received a whole request), "forwarded" (it has forwarded it to the next server of the chain), "handled" (it has
carried it out), "report" (the manager has received a report), "stop" (the manager has sent STOP to n ranks), "regroup"
(all work is done, and the live ranks are about to regroup).

At the place "late-reports" a rank does not die: a rank that may succeed the manager receives the workers' reports only
after it has succeeded it, as if they had been in its queue until then.
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
    """Kill this rank before or after the n-th call of a method, or of a function, for which `only` holds."""
    original, calls = getattr(holder, name), count(1)

    def dying(first: object, *arguments: object) -> object:
        last = only(*arguments) and next(calls) == nth
        if last and not after:
            die()
        result = original(first, *arguments)
        if last:
            die()
        return result

    setattr(holder, name, dying)


def receive_reports_late() -> None:
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
    if place == "header":
        die_around(KVServer, "receive", nth, after=False)
    elif place == "received":
        die_around(KVServer, "receive", nth, after=True)
    elif place == "forwarded":
        die_around(ReplicatedKVServer, "_forward", nth, after=True)
    elif place == "handled":
        die_around(ReplicatedKVServer, "handle", nth, after=True)
    elif place == "report":
        die_around(Manager, "handle", nth, after=False, only=lambda header: header.kind == Kind.REPORT)
    elif place == "stop":
        die_around(MessageQueue, "send", nth, after=True, only=lambda to, tag, header: header.kind == Kind.STOP)
    elif place == "regroup":
        die_around(survivors, "ranks_within", nth, after=True)
    elif place == "late-reports":
        receive_reports_late()
    else:
        raise SystemExit(f"there is no place {place}")


scenario, deaths, *options = sys.argv[1:]
for death in deaths.split(","):
    rank, place, nth = death.split("@")
    if int(rank) == MPI.COMM_WORLD.rank:
        die_at(place, int(nth))
module = load(scenario)
module.main(parse(module.Config, options))
