"""A training with a parameter server in which ranks die between two messages: SCENARIO RANK@PLACE@N [OPTION ...].

Places, each at its n-th time: "asked" (a server has got a header, but not what follows it), "taken" (it has
all of a request), "handed-on" (it has given it to the next in the chain), "answered" (it has done with it),
"told" (the manager has got a report), "stop" (the manager has told n of the others to stop), "parting" (all work is
done, and those who are left are about to go on to the end together).

At the place "behind" a rank does not die: whoever may have to take the manager's place hears of the iterations only
when it has done so, as if the reports had been waiting for it until then.
"""

import os
import signal
import sys
from itertools import count

from mpi4py import MPI

from farandole.parameter_server import cluster
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.mailbox import Mailbox
from farandole.parameter_server.manager import Manager
from farandole.parameter_server.server import Server
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
    handle, miss, reports = Manager.handle, Manager.miss, []

    def late(self: Manager, header: Header) -> None:
        if header.kind == Kind.REPORT and not self.leads:
            reports.append(header)
        else:
            handle(self, header)

    def succeed(self: Manager) -> None:
        miss(self)
        while self.leads and reports:
            handle(self, reports.pop(0))

    Manager.handle, Manager.miss = late, succeed


def die_at(place: str, nth: int) -> None:
    if place == "asked":
        die_around(Server, "_take", nth, after=False)
    elif place == "taken":
        die_around(Server, "_take", nth, after=True)
    elif place == "handed-on":
        die_around(Server, "_hand_on", nth, after=True)
    elif place == "answered":
        die_around(Server, "handle", nth, after=True)
    elif place == "told":
        die_around(Manager, "handle", nth, after=False, only=lambda header: header.kind == Kind.REPORT)
    elif place == "stop":
        die_around(Mailbox, "send", nth, after=True, only=lambda to, tag, header: header.kind == Kind.STOP)
    elif place == "parting":
        die_around(cluster, "ranks_within", nth, after=True)
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
