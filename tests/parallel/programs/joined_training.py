"""A training that waits for whoever it has sent for: SCENARIO DEATHS [OPTION ...].

So it is known at which step a newcomer joins: where the workers exchange their losses next. DEATHS: "none", or
RANK@PLACE[,RANK@PLACE]; the ranks there kill themselves. Places: "start" (a newcomer, before it has met anybody),
"door" (a newcomer, when it is ready), "call" (the centre, while who it has sent for is starting, but has not come to
MPI yet: in that moment Open MPI's mpirun may crash, see docs/recovery.md), "form" (when somebody has joined, and all
form new groups). A rank at "asked" does not die, but waits at step 20 until somebody has asked for one more worker.
"""

import os
import signal
import sys
import threading
import time

from farandole.recovery.elastic import ElasticTraining
from farandole.recovery.membership import Membership
from farandole.runtime import rank
from farandole.runtime.newcomer import Arrival, Called
from farandole.scenarios import load, parse

NAP_S = 0.01
SOON_S = 0.02  # less than Python takes to start


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_where_somebody_has_joined(membership: Membership) -> None:
    if membership.joined:
        die()
    form(membership)


def wait_for_news(training: ElasticTraining) -> None:
    membership = training.membership
    while "asked" in places and training.step == 20 and not list(training.folder.glob("join-*")):
        time.sleep(NAP_S)
    while membership.leads and membership.view.sent_for is not None and not membership.has_news:
        if "call" in places:
            may_call.set()
            time.sleep(SOON_S)
            die()
        time.sleep(NAP_S)
    draw_conclusions(training)


def call_when_it_may(called: Called) -> None:
    may_call.wait()
    call(called)


scenario, deaths, *options = sys.argv[1:]
places = [
    place
    for number, _, place in (death.partition("@") for death in deaths.split(","))
    if number == str(rank.early_rank())
]
if "start" in places and rank.comes_later():
    die()
form, draw_conclusions = Membership._form, ElasticTraining._draw_conclusions
ElasticTraining._draw_conclusions = wait_for_news  # type: ignore[method-assign]
call, may_call = Called.run, threading.Event()
if "call" in places:
    Called.run = call_when_it_may  # type: ignore[method-assign]
if "door" in places:
    Arrival.wait_for_invitation = die  # type: ignore[method-assign,assignment]
if "form" in places:
    Membership._form = die_where_somebody_has_joined  # type: ignore[method-assign]
module = load(scenario)
module.main(parse(module.Config, options))
