"""Whether the two servers of each part end with the same values, although one worker is late: SYNC."""

import json
import sys
import time
from unittest.mock import Mock

import numpy as np

from farandole.parameter_server import cluster
from farandole.parameter_server.header import Kind
from farandole.parameter_server.options import PolicyOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.replicated_server import ReplicatedKVServer
from farandole.parameter_server.survivors import Survivor
from farandole.parameter_server.training import application
from farandole.runtime.communicator import gather_text
from farandole.runtime.world import World

KEYS, STEPS = 1000, 60
PAUSE_S = {3: 0.002, 4: 0.03}

with World.start(PolicyOptions(wait_timeout=30)) as world:
    options = PolicyOptions(sync=sys.argv[1], steps=STEPS, lr=1.0, servers=2, replicas=2, enough=1)
    placement = Placement.usual(world.size, servers=2)
    copies, ticks = {}, 0
    forward = ReplicatedKVServer._forward

    def counted(self, header, payload):
        global ticks
        ticks += header.kind == Kind.TICK
        forward(self, header, payload)

    def stop(self):
        for (partition, _), part in self.parts.items():
            copies[partition] = [part.shard.updates, part.shard.values.tobytes().hex()]

    ReplicatedKVServer._forward, ReplicatedKVServer.stop = counted, stop

    def work(client):
        table, random = np.empty(KEYS), np.random.default_rng(world.rank)
        while start := client.wait(client.pull(table), "pull"):
            time.sleep(PAUSE_S[world.rank])
            client.push(random.normal(size=KEYS), start.clock, share=0.5)
            client.report(start.clock, 0.0, 1)

    cluster.run(
        world, None, options, placement,
        [application(options, placement.workers, placement.workers, np.zeros(KEYS))],
        work, reported=lambda report: None, survivor=Mock(Survivor),
    )  # fmt: skip
    told = [json.loads(text) for text in gather_text(world.control, json.dumps([copies, ticks]))]
    if world.rank == 0:
        copies_of = {name: [copies[name] for copies, _ in told if name in copies] for name in ("1", "2")}
        print(json.dumps({"copies": copies_of, "ticks": sum(ticks for _, ticks in told)}))
