"""A step of a pipeline over a network, with the rates of all messages anew whenever one begins or ends: an oracle.

It is slow, and it groups nothing: each worker is followed by itself, and each message shares the wires with whatever is
under way. Tensor ranks and the update are left out.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from farandole.cost.choice import Choice
from farandole.cost.division import divided
from farandole.cost.networks.fair_sharing import max_min_rates, paths
from farandole.cost.setting import Setting
from farandole.cost.stage_clock import program

SOON = 1e-12  # of a second: events that are nearer are at the same time


@dataclass
class Worker:
    """One stage of one copy: what it has still to do, and the messages that wait for its link."""

    steps: deque[Any]
    busy_until: float = 0.0
    queue: deque[Any] = field(default_factory=deque)
    arrived: set[Any] = field(default_factory=set)


def fluid_s(method: str, setting: Setting, choice: Choice) -> float:
    """Return when the last worker has computed its last pass, of equal workers."""
    division, network = divided(method, setting.workers, choice), setting.network
    assert network
    assert division.tensor == 1
    placed = network.placed(setting.workers, setting.seed)
    hosts = placed.places(setting.workers)
    by_stage: defaultdict[int, list[Any]] = defaultdict(list)
    for stage, part, _, sent, received, *_ in program(division, 0.0):
        by_stage[stage].append((part, sent, received))
    workers = {
        (copy, stage): Worker(deque(by_stage[stage]))
        for copy in range(division.data)
        for stage in range(division.stages)
    }

    def host(copy: int, stage: int) -> int:
        return hosts[stage * division.data + copy if network.by_stage else copy * division.stages + stage]

    now, last = 0.0, 0.0
    under_way: dict[tuple[int, Any], float] = {}  # message of a copy → bytes that are left
    arriving: dict[tuple[int, Any], float] = {}  # → when it arrives
    while True:
        for (copy, _), worker in workers.items():
            while worker.steps and worker.busy_until <= now + SOON:
                part, sent, received = worker.steps[0]
                if received:
                    if received not in worker.arrived:
                        break
                elif sent:
                    worker.queue.append((copy, sent))
                else:
                    worker.busy_until = now + part * setting.compute_s
                    last = max(last, worker.busy_until)
                worker.steps.popleft()
            if worker.queue and worker.queue[0] not in under_way:
                under_way[worker.queue[0]] = division.activation
        flows = list(under_way)
        routes = [placed.network.route(host(copy, sent[-2]), host(copy, sent[-1])) for copy, sent in flows]
        rates = max_min_rates(paths(routes)) / setting.link.beta if flows else np.zeros(0)
        ends = [now + under_way[flow] / rate for flow, rate in zip(flows, rates, strict=True)]
        events = [worker.busy_until for worker in workers.values() if worker.busy_until > now + SOON]
        events += [*ends, *arriving.values()]
        if not events:
            assert not any(worker.steps for worker in workers.values())
            return last
        then = min(events)
        for flow, rate, end, route in zip(flows, rates, ends, routes, strict=True):
            under_way[flow] -= rate * (then - now)
            if end <= then + SOON:
                del under_way[flow]
                copy, sent = flow
                workers[copy, sent[-2]].queue.popleft()
                arriving[flow] = then + setting.link.alpha + (len(route) - placed.network.nearest) * network.hop_s
        now = then
        for (copy, sent), at in list(arriving.items()):
            if at <= now + SOON:
                del arriving[copy, sent]
                workers[copy, sent[-1]].arrived.add(sent)
