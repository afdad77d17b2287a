"""The time of a method's messages: counted over a schedule's steps, or sent through a network.

Without a network only the workers' own links are limited, and the critical rank's steps are the time of all
(`collectives.costs`). With one the messages of all ranks share its links, stage by stage (`networks`). A single switch
as the network gives the same times, which a test compares.

A node of `hierarchical` has one worker for each of its links, and a message within it takes a tenth of one that leaves
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from farandole.collectives.costs import Link, coefficients
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.schedules import SCHEDULES
from farandole.collectives.steps import Schedule
from farandole.cost.cost_function import hierarchical_s
from farandole.cost.networks.named import NetworkChoice, parse
from farandole.cost.networks.network import Placed
from farandole.cost.networks.passage import Passage, passage
from farandole.cost.networks.stages import Message, Stage, stages
from farandole.cost.setting import Setting, Vector
from farandole.errors import UsageError

IN_A_NODE = 0.1  # the cost of a message within a node, relative to one between two nodes
MOST_IN_A_NODE = 8
MOST_MESSAGES = 200_000  # between neighbours that are sent through a network
ONE_SWITCH = parse("single-switch")


@dataclass(frozen=True)
class NetworkUse:
    """The use of a network by a method's messages: by one collective, or by one round of gossip.

    Attributes:
        one_switch_s: what the same messages take with one switch.
        bottleneck: the wire at which most time is lost; "": none is slower than the hosts' own links.
        alike: how many wires lose as much.
    """

    seconds: float
    one_switch_s: float
    bottleneck: str
    alike: int

    @property
    def slower(self) -> float:
        """Return how many times as long the messages take as with one switch."""
        return self.seconds / self.one_switch_s if self.one_switch_s else 1.0


def schedule_of(method: str, workers: int, per_node: int | None = None) -> tuple[Schedule, int]:
    """Return an all-reduce's schedule, and how many workers a node has in it.

    Raises:
        UsageError: the workers do not fill their nodes.
    """
    if method != "hierarchical":
        return SCHEDULES[method][0], 1
    fitting = max(count for count in range(1, MOST_IN_A_NODE + 1) if workers % count == 0)
    per_node = min(per_node or fitting, workers)
    if workers % per_node:
        raise UsageError(f"{workers} workers do not fill nodes of {per_node}: give a multiple, or another --per-node")
    return hierarchical(per_node), per_node


def collective_s(schedule: Schedule, setting: Setting, nbytes: float, per_node: int = 1) -> float:
    """Return the seconds of a collective of all workers, for a vector of `nbytes`."""
    workers, link = setting.workers, setting.link
    if setting.network:
        passed = _passage(schedule, workers, setting.network.placed(workers, setting.seed), per_node)
        return passed.seconds(nbytes, link, setting.network.hop_s)
    if per_node > 1:
        return hierarchical_s(workers, per_node, nbytes, Link(link.alpha * IN_A_NODE, link.beta * IN_A_NODE), link)
    alphas, betas, _ = coefficients(schedule, workers)
    return alphas * link.alpha + betas * nbytes * link.beta


def use_of(schedule: Schedule, setting: Setting, nbytes: float, per_node: int = 1) -> NetworkUse | None:
    """Return what the setting's network makes of a collective; None if it has none."""
    if not setting.network:
        return None
    passed = _passage(schedule, setting.workers, setting.network.placed(setting.workers, setting.seed), per_node)
    alone_s = collective_s(schedule, replace(setting, network=ONE_SWITCH), nbytes, per_node)
    return NetworkUse(collective_s(schedule, setting, nbytes, per_node), alone_s, passed.bottleneck, passed.alike)


@lru_cache(maxsize=64)
def _passage(schedule: Schedule, workers: int, placed: Placed, per_node: int) -> Passage:
    return passage(_stages(schedule, workers), placed, workers, per_node, IN_A_NODE)


@lru_cache(maxsize=16)
def _stages(schedule: Schedule, workers: int) -> list[Stage]:
    return stages(schedule, workers)


def sending_s(edges: Sequence[tuple[int, int]], setting: Setting) -> Vector:
    """Return for how long each worker sends its messages to its neighbours, one after the other.

    Without a network each takes α + nβ. With one, all workers' first messages share it, then all second ones, and so
    on. A worker sends first to the neighbour whose number follows its own most closely.

    Args:
        edges: (sender, receiver) of all messages.

    Raises:
        UsageError: there are more than one would wait for.
    """
    if not setting.network:
        counts = np.bincount([sender for sender, _ in edges], minlength=setting.workers)
        seconds: Vector = counts.astype(float) * setting.link.message_s(setting.nbytes)
        return seconds
    return _sent(_in_turn(edges, setting.workers), setting, setting.network)[0]


def use_of_edges(rounds: Sequence[Sequence[tuple[int, int]]], setting: Setting) -> NetworkUse | None:
    """Return what the setting's network makes of a round of messages to neighbours, the mean of all rounds.

    The bottleneck is the one of the slowest round.
    """
    if not setting.network:
        return None
    turns = [_in_turn(edges, setting.workers) for edges in rounds]
    sent = [_sent(each, setting, setting.network) for each in turns]
    slowest = max(sent, key=lambda each: float(each[0].max()))[1]
    seconds, alone_s = (float(np.mean([_sent(each, setting, network)[0].max() for each in turns]))
                        for network in (setting.network, ONE_SWITCH))  # fmt: skip
    return NetworkUse(seconds, alone_s, slowest.bottleneck, slowest.alike)


def _sent(turns: Sequence[Stage], setting: Setting, network: NetworkChoice) -> tuple[Vector, Passage]:
    """Return for how long each worker sends, and the passage of the messages."""
    passed = passage(turns, network.placed(setting.workers, setting.seed), setting.workers)
    seconds: Vector = np.zeros(setting.workers)
    for stage, each in zip(turns, passed.stages, strict=True):
        senders = [sender for sender, _, _ in stage.messages]
        seconds[senders] += each.arrivals(setting.nbytes, setting.link, network.hop_s)  # each sends one message
    return seconds, passed


def _in_turn(edges: Sequence[tuple[int, int]], workers: int) -> list[Stage]:
    """Return the stages in which every worker sends its first, its second, … message."""
    if len(edges) > MOST_MESSAGES:
        raise UsageError(
            f"--network: {len(edges):,} messages between neighbours are more than {MOST_MESSAGES:,}, which takes too "
            "long: give fewer workers, or another --topology"
        )
    turns: list[list[Message]] = []
    sent: Counter[int] = Counter()
    for sender, receiver in sorted(edges, key=lambda edge: (edge[1] - edge[0]) % workers):
        if sent[sender] == len(turns):
            turns.append([])
        turns[sent[sender]].append((sender, receiver, 1.0))
        sent[sender] += 1
    return [Stage(tuple(messages), 1) for messages in turns]
