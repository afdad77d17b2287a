"""A training that waits for the process it has requested: SCENARIO DEATHS [OPTION ...].

The step at which it joins is therefore known: the one at which the workers exchange their losses next. DEATHS: "none",
or RANK@PLACE[,RANK@PLACE]; these ranks kill themselves at these places. Places: "start" (a joining process, before it
has met its caller), "ready" (a joining process, when it is ready), "call" (the coordinator, while the process that it
has requested is starting and has not initialised MPI; mpirun may then crash, see docs/recovery.md), "form"
(when a process has joined, and all form new groups), "slot" (as "form", when a slot was made for a request from
outside). A rank at "one-request" or "two-requests" does not die. It ignores requests for one more worker before step
20, and waits there for one or two of them.
"""

import os
import signal
import sys
import threading
import time

from farandole.recovery.member_changes import MemberChanges
from farandole.recovery.membership import Membership
from farandole.recovery.protected_training import MembersChange
from farandole.runtime import rank
from farandole.runtime.command_line import parse
from farandole.runtime.joining import JoiningProcess, SpawnRequest
from farandole.scenarios import load

NAP_S = 0.01
LATE_S = 40.0
SOON_S = 0.02  # less than Python takes to start


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_where_a_process_has_joined(membership: Membership) -> None:
    if membership.joined:
        die()
    form(membership)


def die_where_a_slot_was_requested(membership: Membership) -> None:
    if membership.was_requested:
        die()
    form(membership)


def is_requested_from_step_20_on(changes: MemberChanges) -> bool:
    following, deadline = changes.record.world.position.step + 1, time.monotonic() + LATE_S
    while following == 20 and len(list(changes.record.folder.glob("join-*"))) < (2 if "two-requests" in places else 1):
        assert time.monotonic() < deadline, "there is no request"
        changes.record.world.shows_life()
        time.sleep(NAP_S)
    return following >= 20 and is_requested(changes)


def wait_for_news(changes: MemberChanges) -> MembersChange | None:
    membership = changes.membership
    while membership.leads and membership.view.spawned is not None and not membership.has_news:
        if "call" in places:
            may_call.set()
            time.sleep(SOON_S)
            die()
        changes.record.world.shows_life()  # a process may take longer to start than --hang-after
        time.sleep(NAP_S)
    return wanted(changes)


def run_when_allowed(request: SpawnRequest) -> None:
    may_call.wait()
    call(request)


scenario, deaths, *options = sys.argv[1:]
places = [
    place
    for number, _, place in (death.partition("@") for death in deaths.split(","))
    if number == str(rank.early_rank())
]
if "start" in places and rank.comes_later():
    die()
form, wanted, is_requested = Membership._form, MemberChanges.wanted, MemberChanges._is_requested
MemberChanges.wanted = wait_for_news  # type: ignore[method-assign]
call, may_call = SpawnRequest.run, threading.Event()
if "call" in places:
    SpawnRequest.run = run_when_allowed  # type: ignore[method-assign]
if "ready" in places:
    JoiningProcess.wait_for_invitation = die  # type: ignore[method-assign,assignment]
if "form" in places:
    Membership._form = die_where_a_process_has_joined  # type: ignore[method-assign]
if "slot" in places:
    Membership._form = die_where_a_slot_was_requested  # type: ignore[method-assign]
if {"one-request", "two-requests"} & set(places):
    MemberChanges._is_requested = is_requested_from_step_20_on  # type: ignore[method-assign]
module = load(scenario)
module.main(parse(module.Config, options))
