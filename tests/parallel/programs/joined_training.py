"""A training that waits for whoever it has sent for: SCENARIO DEATHS [OPTION ...].

So it is known at which step a newcomer joins: where the workers exchange their losses next. DEATHS: "none", or
RANK@PLACE[,RANK@PLACE]; the ranks there kill themselves. Places: "start" (a newcomer, before it has met anybody),
"door" (a newcomer, when it is ready), "call" (the centre, while who it has sent for is starting), "form" (when
somebody has joined, and all form new groups).
"""

import os
import signal
import sys
import time

from farandole.recovery.elastic import ElasticTraining
from farandole.recovery.membership import Membership
from farandole.runtime import rank
from farandole.runtime.newcomer import Arrival
from farandole.scenarios import load, parse

NAP_S = 0.01


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_where_somebody_has_joined(membership: Membership) -> None:
    if membership.joined:
        die()
    form(membership)


def wait_for_news(training: ElasticTraining) -> None:
    membership = training.membership
    while membership.leads and membership.view.sent_for is not None and not membership.has_news:
        if "call" in places:
            die()
        time.sleep(NAP_S)
    draw_conclusions(training)


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
if "door" in places:
    Arrival.wait_for_invitation = die  # type: ignore[method-assign,assignment]
if "form" in places:
    Membership._form = die_where_somebody_has_joined  # type: ignore[method-assign]
module = load(scenario)
module.main(parse(module.Config, options))
