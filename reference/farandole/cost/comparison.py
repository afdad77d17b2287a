"""38 methods by their names, on one axis.

    parameter server    seven policies, event by event                        `simulator`
    in rounds           four all-reduces, local SGD, and dynamic rounds       `rounds`, `cost_function`
                        ten compressors of gradients                          `compressed`
                        DiLoCo, and streaming, beside the computation         `outer_rounds`
                        ZeRO's three stages, unit by unit                     `sharding`
    stage by stage      seven schedules of pipelines, and a grid              `pipelines`, `division`
    decentralised       D-PSGD on a graph, all workers at once                `gossip`
                        AD-PSGD in pairs, event by event                      `pairs`

All meet the same computing times, and the same quadratic with noise stands for learning.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pkgutil import resolve_name

from farandole import methods
from farandole.collectives.schedules import SCHEDULES
from farandole.cost import compressed, gossip, messages, rounds, sharding
from farandole.cost.choice import ALL_REDUCES, COMPRESSED, GOSSIP, MEANT_FOR, PIPELINED, STREAMING, ZERO
from farandole.cost.choice import Choice as Choice
from farandole.cost.messages import NetworkUse
from farandole.cost.outer_rounds import OuterRounds
from farandole.cost.pairs import Pairs
from farandole.cost.setting import Outcome, Setting
from farandole.cost.simulator import Simulation
from farandole.cost.stage_messages import use_of_stages
from farandole.data_parallel.controller import Controller
from farandole.data_parallel.outer_step import Outer
from farandole.errors import UsageError
from farandole.parameter_server.core.policies import POLICIES, Bounds, Policy, named

OUTER_LR, OUTER_MOMENTUM = 0.7, 0.9


@dataclass(frozen=True)
class Row:
    """One method with one number of workers.

    Attributes:
        network: what the network makes of its messages; None without one, and for a method that does not use it.
        step_s: time in which each worker gives one gradient, on average.
        efficiency: the speed relative to a training with the same computing times, but without waiting or messages.
    """

    method: str
    setting: Setting = field(repr=False)
    outcome: Outcome = field(repr=False)
    network: NetworkUse | None = None

    @property
    def step_s(self) -> float:
        return self.outcome.wall_s / self.setting.steps

    @property
    def gradients_per_s(self) -> float:
        return self.outcome.gradients / self.outcome.wall_s

    @property
    def efficiency(self) -> float:
        return self.outcome.efficiency(self.setting.workers)

    @property
    def links_busy(self) -> float | None:
        """Return the share of the time for which the servers' links carry messages; None: there are no servers."""
        if self.method not in POLICIES or not self.outcome.wall_s:
            return None
        messages = self.outcome.computed * (1 if self.setting.duplex else 2)  # on each link: reads, or pushes, or both
        return min(1.0, messages * self.setting.link_busy_s / self.outcome.wall_s)

    def to_dict(self) -> dict[str, object]:
        outcome = self.outcome
        figures: dict[str, object] = {
            "method": self.method,
            "workers": self.setting.workers,
            "servers": self.setting.servers if self.method in POLICIES else None,
            "links_busy": self.links_busy,
            "step_s": self.step_s,
            "gradients_per_s": self.gradients_per_s,
            "efficiency": self.efficiency,
            "wait_share": outcome.wait_share,
            "staleness_mean": mean_of(outcome.staleness),
            "staleness_max": max(outcome.staleness, default=0),
            "lead_max": max(outcome.lead, default=0),
            "dropped": outcome.dropped,
            "to_loss_s": outcome.to_loss_s,
            "final_loss": outcome.final_loss,
            "consensus_error": outcome.consensus_error,
        }
        if self.network:  # otherwise the figures are those of a setting without one
            figures["network"] = asdict(self.network)
        return figures


def mean_of(histogram: dict[int, int]) -> float:
    total = sum(histogram.values())
    return sum(value * count for value, count in histogram.items()) / total if total else 0.0


def compared(method: str, setting: Setting, choice: Choice) -> Row:
    """Simulate a method by its name in `methods.METHODS`, or a policy by its alias.

    Raises:
        UsageError: the method's options do not fit the workers, the model or the network.
    """
    method = named(method)
    if setting.network and setting.network.by_stage and method not in PIPELINED:
        raise UsageError(f"--network {setting.network.text}: {method} has no stages, so leave placement=by-stage out")
    setting, outcome = resolve_name(methods.simulated()[method])(method, setting, choice)
    return Row(method, setting, outcome, _network_use(method, setting, choice) if setting.network else None)


# Each of these simulates one family. They return the setting too, since a method may take other numbers of steps.


def served(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """A policy of the parameter server, event by event."""
    return setting, Simulation(_policy(method, setting, choice), setting).run()


def all_reduced(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """Synchronous SGD by an all-reduce."""
    return setting, rounds.simulated(setting, 1, _all_reduce_s(method, setting, setting.nbytes, choice))


def encoded(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """Synchronous SGD with compressed gradients."""
    return setting, rounds.simulated(setting, 1, choice.encode_s + compressed.exchange_s(method, setting, choice))


def local(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """Local SGD, by a ring."""
    return setting, rounds.simulated(setting, choice.period, _all_reduce_s("ring", setting, setting.nbytes))


def outer_stepped(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """DiLoCo, by a ring, with the outer optimizer of its paper."""
    streaming = (choice.fragments, choice.delay) if method == STREAMING else ()
    outer = Outer(choice.period, OUTER_LR, OUTER_MOMENTUM, *streaming)
    reduce_s = _all_reduce_s("ring", setting, setting.nbytes / outer.fragments)
    return setting, OuterRounds(setting, outer, reduce_s).run()


def divided(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """A stage of ZeRO."""
    return setting, sharding.simulated(setting, 1 + ZERO.index(method), choice.units, choice.prefetch)


def in_dynamic_rounds(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """Rounds that a controller plans; the last one is a whole one."""
    controller = Controller(setting.workers, None, not choice.equal_steps, choice.kappa, choice.longest)
    outcome = dynamic_rounds(setting, controller)
    return replace(setting, steps=outcome.gradients // setting.workers), outcome


def gossiping(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """D-PSGD on a graph."""
    return setting, gossip.simulated(setting, choice.topology, choice.mixing_every, choice.mix_after_update)


def in_pairs(method: str, setting: Setting, choice: Choice) -> tuple[Setting, Outcome]:
    """AD-PSGD."""
    return setting, Pairs(setting, choice.topology, choice.mixing_every).run()


def dynamic_rounds(setting: Setting, controller: Controller) -> Outcome:
    """Rounds as `controller` plans them, reduced in a ring."""
    reduce_s = _all_reduce_s("ring", setting, setting.nbytes)
    telling_s = _all_reduce_s("doubling", setting, 16 * setting.workers)  # two numbers of each
    return rounds.planned(setting, controller, reduce_s, telling_s)


def _policy(method: str, setting: Setting, choice: Choice) -> Policy:
    enough = max(1, round(choice.enough * setting.workers))
    low = min(choice.least_staleness, choice.staleness)
    bounds = Bounds(choice.staleness, low, choice.longest_wait, enough, choice.patience, setting.seed)
    return POLICIES[method].make(range(setting.workers), bounds)


def _all_reduce_s(method: str, setting: Setting, nbytes: float, choice: Choice | None = None) -> float:
    schedule, per_node = messages.schedule_of(method, setting.workers, choice.per_node if choice else None)
    return messages.collective_s(schedule, setting, nbytes, per_node)


def _network_use(method: str, setting: Setting, choice: Choice) -> NetworkUse | None:
    """Return what the network makes of one collective, of one round of gossip, or of one step of a pipeline."""
    if method == GOSSIP:
        edges = [each.edges for each in gossip.rounds(choice.topology, setting.workers)]
        return messages.use_of_edges(edges, setting)
    if method in ALL_REDUCES:
        schedule, per_node = messages.schedule_of(method, setting.workers, choice.per_node)
        return messages.use_of(schedule, setting, setting.nbytes, per_node)
    if method in COMPRESSED:
        return messages.use_of(*compressed.exchange(method, setting, choice)[0])
    if method in PIPELINED:
        return use_of_stages(method, setting, choice)
    if method in ZERO:
        return messages.use_of(sharding.COLLECTIVES["gather"], setting, setting.nbytes / choice.units)
    if method in MEANT_FOR["network"]:
        parts = choice.fragments if method == STREAMING else 1
        return messages.use_of(SCHEDULES["ring"][0], setting, setting.nbytes / parts)
    return None
