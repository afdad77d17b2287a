"""The times of a pipeline's or a grid's messages: with one switch, or over a network whose links they share.

    activations and gradients at a border     nβ on the sender's link, and α until they arrive
    tensor ranks                              a ring all-reduce within a node, which does not enter the network
    shard, expert, context                    the collectives of the scenario grid (`grid_messages`), with one switch
    update                                    a ring all-reduce of a stage's copies

Over a network one step of equal workers is simulated event by event, in which all messages under way share its wires
(`stage_flows`). It gives each message of each copy its time, which the message has in every step, however the workers
scatter. A receiver's link is one of the wires, so what two neighbours send to a stage at once shares it. In the update
all stages reduce at the same time, step by step of the ring, and meet no other messages (`networks.passage`).

Workers are numbered as in `model_parallel.grid`: tensor ranks, then stages, then copies. placement=by-stage numbers the
copies before the stages, so that those of a stage are neighbours, and the stages are far from each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from farandole.collectives.costs import Link
from farandole.collectives.ring import RING
from farandole.cost.choice import GRID, Choice
from farandole.cost.division import Division, divided
from farandole.cost.grid_messages import Collective, Sends, held, sends
from farandole.cost.messages import IN_A_NODE, ONE_SWITCH, NetworkUse, collective_s
from farandole.cost.networks.fair_sharing import EQUAL
from farandole.cost.networks.named import NetworkChoice
from farandole.cost.networks.network import Placed
from farandole.cost.networks.passage import Passage, passage
from farandole.cost.networks.stages import Stage, stages
from farandole.cost.setting import Setting, Vector
from farandole.cost.stage_clock import Exchanged, Messages, Passing, Seconds, program
from farandole.cost.stage_flows import StageFlows
from farandole.cost.volumes import Volume
from farandole.errors import UsageError


@dataclass(frozen=True)
class Shared:
    """The messages of a step over a network.

    Attributes:
        bottleneck, alike: as of `NetworkUse`.
    """

    takes: Messages
    bottleneck: str
    alike: int


def messages(method: str, setting: Setting, choice: Choice) -> Messages:
    """Return what the messages take; those of tensor ranks stay within a node.

    Raises:
        UsageError: the workers cannot be divided so, the network is too small, or it would take too long.
    """
    division = divided(method, setting.workers, choice)
    if method == GRID and choice.has_six_axes:
        if setting.network:
            raise UsageError(
                f"--network {setting.network.text}: shard, expert and context ranks are simulated with one switch: "
                "leave it out, or these"
            )
        return _of_six_axes(division, setting, choice)
    if setting.network:
        return _shared(method, setting, choice, setting.network).takes
    return _alone(division, setting)


def use_of_stages(method: str, setting: Setting, choice: Choice) -> NetworkUse | None:
    """Return what the setting's network makes of the messages of a step of the stage that sends for longest."""
    if not setting.network:
        return None
    over, one_switch = (_shared(method, setting, choice, each) for each in (setting.network, ONE_SWITCH))
    return NetworkUse(_longest_s(over), _longest_s(one_switch), over.bottleneck, over.alike)


def _longest_s(shared: Shared) -> float:
    """Return the seconds of all messages of a step, of the stage for which they are most, with the update."""
    seconds = list(shared.takes.update_s)
    for message, passing in shared.takes.unlike.items():
        seconds[message[-2]] += float(np.max(passing.busy + passing.late))
    return max(seconds)


def _alone(division: Division, setting: Setting) -> Messages:
    """Return what messages take that share nothing."""
    link = setting.link
    tensor = replace(setting, workers=division.tensor, network=None, link=_within_a_node(link))
    copies = replace(setting, workers=division.data, network=None)
    return Messages(
        Passing(division.activation * link.beta, link.alpha),
        collective_s(RING, tensor, division.activation),
        [collective_s(RING, copies, _reduced(division, setting))] * division.stages,
    )


def sent_by(
    division: Division, setting: Setting, choice: Choice, stage: int, tensor_rank: int = 0
) -> dict[str, Volume]:
    """Return what a worker of a grid with six axes sends in a step, by what it is sent for."""
    found: defaultdict[str, Volume] = defaultdict(lambda: Volume(0, 0))
    for chunk in range(len(division.layers[stage])):
        own = _sends(division, setting, choice, stage, chunk, tensor_rank)
        for each in (*[*own.forward, *own.backward] * division.micro_batches, *own.update):
            before = found[each.what]
            found[each.what] = Volume(before.messages + each.sent.messages, before.nbytes + each.sent.nbytes)
    messages = sum(move.stage == stage and move.sent is not None for move in program(division, 0.0))
    return dict(found) | {"pipeline": Volume(messages, messages * division.activation)}


def _of_six_axes(division: Division, setting: Setting, choice: Choice) -> Messages:
    """Return what messages take with the collectives of the scenario grid."""
    grid, link, near = division.grid, setting.link, _within_a_node(setting.link)

    def seconds(sent: Sequence[Collective]) -> float:
        return sum(each.seconds(near if each.what == "tensor" else link) for each in sent)

    exchanged, update_s = {}, [0.0] * division.stages
    for stage, chunks in enumerate(division.attention):
        for chunk, attention in enumerate(chunks):
            own = _sends(division, setting, choice, stage, chunk)
            for collectives in (own.forward, own.backward):
                beside = [each for each in collectives if each.beside]
                exchanged[stage, chunk, collectives is own.forward] = Exchanged(
                    seconds([each for each in collectives if not each.beside]),
                    seconds(beside),
                    attention * (grid.context - 1) / grid.context,  # no block is under way during the last of its parts
                )
            update_s[stage] += seconds(own.update)
    return Messages(Passing(division.activation * link.beta, link.alpha), 0.0, update_s, exchanged=exchanged)


def _sends(division: Division, setting: Setting, choice: Choice, stage: int, chunk: int, tensor_rank: int = 0) -> Sends:
    """Return the collectives of a piece of the model."""
    parts = held(division.grid, choice, setting.nbytes, tensor_rank)
    layers, ends = division.layers[stage][chunk], division.ends[stage][chunk]
    return sends(division.grid, choice, division.activation, parts, layers, *ends)


def _within_a_node(link: Link) -> Link:
    return Link(link.alpha * IN_A_NODE, link.beta * IN_A_NODE)


def _reduced(division: Division, setting: Setting) -> float:
    """Return the bytes of a worker's part of the parameters."""
    return setting.nbytes / (division.stages * division.tensor)


@lru_cache(maxsize=8)
def _shared(method: str, setting: Setting, choice: Choice, network: NetworkChoice) -> Shared:
    """Send a step's messages through a network."""
    division, placed = divided(method, setting.workers, choice), network.placed(setting.workers, setting.seed)
    alone = _alone(division, setting)
    numbers = np.arange(setting.workers)
    if network.by_stage:
        slots = numbers.reshape(division.stages, division.data, division.tensor).transpose(1, 0, 2)
    else:
        slots = numbers.reshape(division.data, division.stages, division.tensor)
    hosts = np.array(placed.places(setting.workers, division.tensor))[slots]
    flows = StageFlows(
        division, placed.network, hosts, setting.link, network.hop_s, setting.compute_s, alone.exchange_s
    )
    flows.run()
    unlike = {message: Passing(_plain(flows.busy[message]), _plain(flows.late[message])) for message in flows.busy}
    reduced, update_s = _update(division, setting, network, placed, slots)
    lost = dict(flows.lost)
    most = max(lost.values(), default=0.0)
    takes = replace(alone, update_s=update_s, unlike=unlike)
    if reduced and max(update_s) - max(alone.update_s) > most:
        return Shared(takes, reduced.bottleneck, reduced.alike)
    narrow = [wire for wire, seconds in lost.items() if seconds >= most * (1 - EQUAL)]
    return Shared(takes, narrow[0] if narrow else "", len(narrow))


def _update(
    division: Division, setting: Setting, network: NetworkChoice, placed: Placed, slots: NDArray[np.intp]
) -> tuple[Passage | None, list[float]]:
    """Return the rings of all stages over the network, and how long each stage's takes."""
    if division.data == 1:
        return None, [0.0] * division.stages
    part = _reduced(division, setting)
    rings = [
        Stage(
            tuple(
                (int(sender), int(receiver), share * part)
                for source, target, share in stage.messages
                for sender, receiver in zip(slots[source].flat, slots[target].flat, strict=True)
            ),
            stage.times,
        )
        for stage in stages(RING, division.data)
    ]
    passed = passage(rings, placed, setting.workers, division.tensor)
    seconds = np.zeros(division.stages)
    for own in passed.stages:
        arrivals = own.arrivals(1.0, setting.link, network.hop_s).reshape(-1, division.stages, division.tensor)
        seconds += own.times * arrivals.max(axis=(0, 2))
    return passed, seconds.tolist()


def _plain(by_copy: Vector) -> Seconds:
    """Return one number where it is the same for all copies but for rounding."""
    first = float(by_copy[0])
    return first if np.allclose(by_copy, first, rtol=EQUAL, atol=0.0) else by_copy
