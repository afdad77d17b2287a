"""A training that waits for whoever it has sent for: SCENARIO DEATHS [OPTION ...].

So it is known at which step a newcomer joins: where the workers exchange their losses next. DEATHS: "none", or
RANK@PLACE[,RANK@PLACE]; the ranks there kill themselves. Places: "start" (a newcomer, before it has met anybody),
"door" (a newcomer, when it is ready), "call" (the coordinator, while who it has sent for is starting, but has not come
to MPI yet: in that moment Open MPI's mpirun may crash, see docs/recovery.md), "form" (when somebody has joined, and all
form new groups), "took" (likewise, when a place has been made because somebody asked for it). A rank at "asked" or
"asked twice" does not die, but takes no notice of who asks for one more worker before step 20, and there waits until
so many have asked.
"""

import os
import signal
import sys
import threading
import time

from farandole.recovery.data_parallel import DataParallelTraining
from farandole.recovery.membership import Membership
from farandole.runtime import rank
from farandole.runtime.command_line import parse
from farandole.runtime.joining import JoiningProcess, SpawnRequest
from farandole.scenarios import load

NAP_S = 0.01
LATE_S = 40.0
SOON_S = 0.02  # less than Python takes to start


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_where_somebody_has_joined(membership: Membership) -> None:
    if membership.joined:
        die()
    form(membership)


def die_where_a_place_was_asked_for(membership: Membership) -> None:
    if membership.was_asked:
        die()
    form(membership)


def is_asked_for_more(training: DataParallelTraining) -> bool:
    deadline = time.monotonic() + LATE_S
    while training.step == 20 and len(list(training.folder.glob("join-*"))) < (2 if "asked twice" in places else 1):
        assert time.monotonic() < deadline, "nobody has asked"
        time.sleep(NAP_S)
    return training.step >= 20 and asked(training)


def wait_for_news(training: DataParallelTraining) -> None:
    membership = training.membership
    while membership.leads and membership.view.sent_for is not None and not membership.has_news:
        if "call" in places:
            may_call.set()
            time.sleep(SOON_S)
            die()
        time.sleep(NAP_S)
    draw_conclusions(training)


def call_when_it_may(called: SpawnRequest) -> None:
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
form, draw_conclusions = Membership._form, DataParallelTraining._draw_conclusions
asked = DataParallelTraining._is_asked_for_more
DataParallelTraining._draw_conclusions = wait_for_news  # type: ignore[method-assign]
call, may_call = SpawnRequest.run, threading.Event()
if "call" in places:
    SpawnRequest.run = call_when_it_may  # type: ignore[method-assign]
if "door" in places:
    JoiningProcess.wait_for_invitation = die  # type: ignore[method-assign,assignment]
if "form" in places:
    Membership._form = die_where_somebody_has_joined  # type: ignore[method-assign]
if "took" in places:
    Membership._form = die_where_a_place_was_asked_for  # type: ignore[method-assign]
if {"asked", "asked twice"} & set(places):
    DataParallelTraining._is_asked_for_more = is_asked_for_more  # type: ignore[method-assign]
module = load(scenario)
module.main(parse(module.Config, options))
