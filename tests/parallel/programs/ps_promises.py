"""The guarantees of push and pull: applied once, visible after the acknowledgement, and no call blocks.

Ranks: 0 manager, 1 and 2 servers, 3 and 4 workers.
"""

import json
import time

import numpy as np

from farandole.parameter_server import cluster
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.training import application
from farandole.runtime.communicator import gather_text
from farandole.runtime.world import World

FIRST, SECOND = 3, 4


with World.start(PolicyOptions(wait_timeout=30)) as world:
    placement = Placement.usual(world.size, servers=2)
    found = {}

    def run(sync, work):
        options = PolicyOptions(sync=sync, steps=3, lr=1.0, servers=2)
        app = application(options, placement.workers, placement.workers, np.zeros(1000))
        return cluster.run(world, None, options, placement, [app], work, reported=lambda report: None)

    def twice(client):
        """Only the first worker pushes: iteration 0 twice, then reads."""
        table = np.empty(1000)
        while world.rank == FIRST and (start := client.wait(client.pull(table), "pull")):
            once = client.push(np.ones(1000), start.clock, 0.5)
            again = client.push(np.ones(1000), start.clock, 0.5)
            found.setdefault("applied", []).append(client.wait(once, "push"))
            found.setdefault("again", []).append(client.wait(again, "push"))
            client.wait(client.read(table), "read")
            found.setdefault("seen", []).append(sorted(set(table)))

    run("async", twice)

    def not_waiting(client):
        """The first worker's push cannot be answered before the second's, and does not wait for it."""
        table = np.empty(1000)
        start = client.wait(client.pull(table), "pull")
        if world.rank == SECOND:
            time.sleep(1.0)
        begin = time.perf_counter()
        push = client.push(np.ones(1000), start.clock, 0.5)
        found["call_s"], found["done at once"] = time.perf_counter() - begin, push.done()
        client.wait(push, "push")
        found["answer_s"] = time.perf_counter() - begin

    run("bsp", not_waiting)
    everybodys = [json.loads(text) for text in gather_text(world.control, json.dumps(found))]
    if world.rank == 0:
        first = everybodys[FIRST]
        pushes = len(first["applied"])
        answer = {
            "pushes": pushes,
            "a duplicate is applied once": first["again"] == [None] * pushes and None not in first["applied"],
            "a pull after the acknowledgement sees the push": first["seen"]
            == [[-0.5 * (n + 1)] for n in range(pushes)],
            "calls return before the answers come": first["call_s"] < 0.5 < first["answer_s"]
            and not first["done at once"],
        }
        print(json.dumps(answer))
