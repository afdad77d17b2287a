"""A worker that sends nothing for a while: the others continue without it, and its clocks are removed.

Ranks: 0 manager and cleaner, 1 server, 2 and 3 workers, 4 the worker that falls silent.
"""

import io
import json
import time
from contextlib import redirect_stderr
from dataclasses import replace

import numpy as np

from farandole.parameter_server import cluster
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.training import application
from farandole.runtime.communicator import gather_text
from farandole.runtime.world import World

SILENT, SILENCE_S = 4, 1.0
LONG = 100_000  # numbers, which MPI sends only to a rank that receives them


with World.start(PolicyOptions(wait_timeout=30)) as world:
    options = PolicyOptions(sync="ssp", staleness=2, steps=60, lr=1.0, ranges=2, hang_after=SILENCE_S)
    placement = Placement.usual(world.size)
    found = {"clocks": []}

    def work(client):
        table = np.empty(8)
        gradient = np.ones(8)
        while start := client.wait(client.pull(table), "pull"):
            found["clocks"].append(start.clock)
            if world.rank == SILENT and start.clock == 3:
                client.push_range(gradient[:4].copy(), 1, 0, start.clock, 1 / 3)
                time.sleep(3 * SILENCE_S)
                late = client.push(gradient, start.clock, 1 / 3)
                found["late"] = client.wait(late, "late push")
                found["pull"] = client.wait(client.pull(table), "late pull")
                break
            time.sleep(0.1)
            client.push(gradient.copy(), start.clock, 1 / 3)
            client.report(start.clock, 0.0, 1)

    with redirect_stderr(io.StringIO()) as noted:
        outcome = cluster.run(
            world, None, options, placement,
            [application(options, placement.workers, placement.workers, np.zeros(8))],
            work, reported=lambda report: None,
        )  # fmt: skip

    def work_too_long(client):
        table = np.empty(LONG)
        while start := client.wait(client.pull(table), "pull"):
            if world.rank == SILENT and start.clock == 1:
                time.sleep(3 * SILENCE_S)  # until after the others' end
            found["last"] = client.wait(client.push(table, start.clock, 1 / 3), "push")

    cluster.run(
        world, None, replace(options, steps=4), placement,
        [application(options, placement.workers, placement.workers, np.zeros(LONG))],
        work_too_long, reported=lambda report: None,
    )  # fmt: skip
    everybodys = [json.loads(text) for text in gather_text(world.control, json.dumps(found))]
    if world.rank == 0:
        pushed = sum(len(one["clocks"]) for one in everybodys) - 1  # all but the silent worker's last
        answer = {
            "dead": outcome.dead,
            "noted": noted.getvalue(),
            "others went on": min(everybodys[2]["clocks"][-1], everybodys[3]["clocks"][-1]) > 3 + 2 + 1,
            "every other gradient was applied": bool(np.allclose(outcome.tables[0], -pushed / 3)),
            "cleaned": outcome.cleaned,
            "its late push was dropped": everybodys[SILENT]["late"] is None,
            "its push after the end was not sent": everybodys[SILENT]["last"] is None,
            "its pull was answered with FINISHED": everybodys[SILENT]["pull"] is None,
        }
        print(json.dumps(answer))
