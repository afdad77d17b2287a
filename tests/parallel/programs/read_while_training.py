"""A reader reads as fast as it can while workers push as fast as they can; rank 0 prints the readings.

Every gradient is −1 everywhere and every update adds it up, so that in a part of version v every
value is v: one value that is not would show a read into which an update has fallen.
"""

from __future__ import annotations

import json

import numpy as np

from farandole.parameter_server import cluster
from farandole.parameter_server.application import Application
from farandole.parameter_server.core.policies import Asynchronous
from farandole.parameter_server.core.update_rules import SGD
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.options import ServerOptions
from farandole.parameter_server.placement import Placement
from farandole.runtime.communicator import gather_text
from farandole.runtime.world import World

KEYS, PUSHES = 200_000, 100  # parts of 400 kB: such a message does not leave in one piece


class NoClock:
    def start(self) -> None: ...

    def stop(self) -> None: ...


options = ServerOptions(servers=2)
placement = Placement.usual(6, servers=2, readers=1)
seen: list[dict[int, int]] = []
torn = 0


def work(client: KVWorker) -> None:
    values, gradient = np.empty(KEYS, np.float32), np.full(KEYS, -1, np.float32)
    for _ in range(PUSHES):
        start = client.wait(client.pull(values), "pull")
        client.push(gradient, start.clock, share=1.0)


def read(client: KVWorker) -> None:
    global torn
    values, workers = np.empty(KEYS, np.float32), 1
    while workers:
        workers = client.wait(client.progress(), "progress").workers
        versions = client.wait(client.read(values), "read")
        for server, layout in client.layouts.items():
            torn += any((values[part.start : part.stop] != versions[server]).any() for part in layout.ranges)
        seen.append(versions)


with World.start(options) as world:
    workers = placement.workers
    application = Application(
        table=np.zeros(KEYS, np.float32),
        workers=workers,
        clients=workers,
        policy=lambda: Asynchronous(workers),
        rule=lambda values: SGD(1.0),
        correction=lambda: None,
        limit=None,
    )
    cluster.run(world, NoClock(), options, placement, [application], work, lambda report: None, read)
    told = [json.loads(text) for text in gather_text(world.control, json.dumps([torn, seen]))]
if told:
    torn, seen = told[placement.readers[0]]
    print(json.dumps({"torn": torn, "seen": seen, "workers": len(workers), "pushes": PUSHES}))
