"""A training with a parameter server in which ranks die between two messages: SCENARIO RANK@PLACE@N [OPTION ...].

Places, each at its n-th time: "asked" (a server has got a header, but not what follows it), "taken" (it has
all of a request), "handed-on" (it has given it to the next in the chain), "answered" (it has done with it),
"told" (the manager has got a report), "stop" (the manager has told n of the others to stop).
"""

import os
import signal
import sys
from itertools import count

from mpi4py import MPI

from farandole.parameter_server.header import Kind
from farandole.parameter_server.mailbox import Mailbox
from farandole.parameter_server.manager import Manager
from farandole.parameter_server.server import Server
from farandole.scenarios import load, parse


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_around(holder: type, name: str, nth: int, *, after: bool, only: object = lambda *_: True) -> None:
    """Let this rank die before or after the n-th call of a method for which `only` holds."""
    original, calls = getattr(holder, name), count(1)

    def mortal(self: object, *arguments: object) -> object:
        last = only(*arguments) and next(calls) == nth
        if last and not after:
            die()
        result = original(self, *arguments)
        if last:
            die()
        return result

    setattr(holder, name, mortal)


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
    else:
        raise SystemExit(f"there is no place {place}")


scenario, deaths, *options = sys.argv[1:]
for death in deaths.split(","):
    rank, place, nth = death.split("@")
    if int(rank) == MPI.COMM_WORLD.rank:
        die_at(place, int(nth))
module = load(scenario)
module.main(parse(module.Config, options))
