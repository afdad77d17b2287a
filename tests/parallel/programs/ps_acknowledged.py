"""Which pushes count when a server dies: WORKERS push ones, and record which of them were acknowledged.

Arguments: the number of pushes after which the first server dies (0: never), and the method in which it dies.
"""

import json
import os
import signal
import sys
from unittest.mock import Mock

import numpy as np

from farandole.parameter_server import cluster
from farandole.parameter_server.header import Kind
from farandole.parameter_server.kv_server import KVServer
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.replicated_server import ReplicatedKVServer
from farandole.parameter_server.survivors import Survivor
from farandole.parameter_server.training import application
from farandole.runtime.communicator import gather_text
from farandole.runtime.world import World

DIES_AFTER, PLACE = int(sys.argv[1]), sys.argv[2]
KEYS, PUSHES = 1000, 25
VICTIM = 1

with World.start(PolicyOptions(wait_timeout=30)) as world:
    options = PolicyOptions(sync="async", steps=PUSHES, lr=1.0, servers=2, replicas=2)
    placement = Placement.usual(world.size, servers=2)
    acknowledged: list[int] = []

    if world.rank == VICTIM:
        server = KVServer if PLACE == "receive" else ReplicatedKVServer
        original, pushes = getattr(server, PLACE), 0

        def dying(self, header, *rest):
            global pushes
            result = original(self, header, *rest)
            pushes += header.kind == Kind.PUSH
            if DIES_AFTER and pushes == DIES_AFTER:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(server, PLACE, dying)

    def work(client):
        table, pushed = np.empty(KEYS), []
        while start := client.wait(client.pull(table), "pull"):
            pushed.append(client.push(np.ones(KEYS), start.clock, share=1.0))
            client.report(start.clock, 0.0, 1)
        acknowledged.extend(client.wait(future, "acknowledgement") for future in pushed)

    outcome = cluster.run(
        world, None, options, placement,
        [application(options, placement.workers, placement.workers, np.zeros(KEYS))],
        work, reported=lambda report: None, survivor=Mock(Survivor),
    )  # fmt: skip
    told = [json.loads(text) for text in gather_text(world.control, json.dumps(acknowledged))]
    if world.rank == 0:
        answers = [staleness for one in told for staleness in one]
        answer = {
            "pushed": len(answers),
            "acknowledged": sum(staleness is not None for staleness in answers),
            "applied": sorted({-float(value) for value in outcome.tables[0]}),
            "dead": outcome.dead,
        }
        print(json.dumps(answer))
